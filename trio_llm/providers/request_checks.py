"""What several wires refuse in a request before any I/O, in the same words."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any

from ..model.codes import UNSUPPORTED_OPTION, UNSUPPORTED_REASONING_EFFORT
from ..model.failures import LlmError
from ..model.requests import GenerateOptions


def refused(message: str) -> LlmError:
    """UNSUPPORTED_OPTION, to be raised."""
    return LlmError(message, UNSUPPORTED_OPTION)


def check_provider_options(options: GenerateOptions, known: Collection[str], who: str) -> None:
    """Refuse a key of ``provider_options`` that is none of the known.

    Args:
        who: how the message calls the other side.

    Raises:
        LlmError: UNSUPPORTED_OPTION.
    """
    for key in options.provider_options or ():
        if key not in known:
            listed = ", ".join(sorted(known)) or "none"
            raise refused(f"{who} has no provider option {key!r} here (known: {listed})")


def check_server_tools(options: GenerateOptions) -> None:
    """Refuse ``server_tools`` of another shape than a list of objects.

    Raises:
        LlmError: UNSUPPORTED_OPTION.
    """
    extra: Mapping[str, Any] = options.provider_options or {}
    tools = extra.get("server_tools", ())
    if not isinstance(tools, tuple) or not all(isinstance(tool, Mapping) for tool in tools):
        raise refused("server_tools is a list of tools, each an object")


def check_strict(options: GenerateOptions, who: str) -> None:
    """Refuse a response format that is no more than a wish, where it is always enforced.

    Raises:
        LlmError: UNSUPPORTED_OPTION.
    """
    if options.response_format is not None and not options.response_format.strict:
        raise refused(f"{who} always enforces a response format")


def check_effort(effort: str | None, offered: Collection[str], who: str) -> None:
    """Refuse a reasoning effort that is not on offer.

    Raises:
        LlmError: UNSUPPORTED_REASONING_EFFORT.
    """
    if effort is not None and effort not in offered:
        listed = ", ".join(offered) or "none"
        raise LlmError(
            f"{who} has no reasoning effort {effort!r} here (known: {listed})", UNSUPPORTED_REASONING_EFFORT
        )
