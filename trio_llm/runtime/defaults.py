"""The defaults an adapter supplies where a request sets nothing."""

from __future__ import annotations

from typing import Any, TypeVar

import attrs

from ..model import codes
from ..model.catalogue import ResolvedModelInfo
from ..model.failures import LlmError
from ..model.requests import LlmCallConfig

Config = TypeVar("Config", bound=LlmCallConfig)


def materialise(config: Config, info: ResolvedModelInfo) -> tuple[Config, tuple[str, ...]]:
    """``config`` with the model's defaults, and the names of the fields that were supplied.

    What the request sets wins. It is the same object if there is nothing to supply.

    Raises:
        LlmError: UNSUPPORTED_REASONING_EFFORT, the request asks for an effort that the model does not
            offer; none is offered by a model of which no effort is known.
    """
    supplied: dict[str, Any] = {}
    if config.reasoning_effort is None:
        if info.reasoning is not None and info.reasoning.default_effort is not None:
            supplied["reasoning_effort"] = info.reasoning.default_effort
    else:
        offered = [effort.id for effort in info.reasoning.efforts] if info.reasoning else []
        if config.reasoning_effort not in offered:
            known = f"offers {', '.join(offered)}" if offered else "is not known to offer any"
            raise LlmError(
                f"model {config.model!r} {known}; effort {config.reasoning_effort!r} was asked for",
                codes.UNSUPPORTED_REASONING_EFFORT,
            )
    if config.max_tokens is None and info.default_max_tokens is not None:
        supplied["max_tokens"] = info.default_max_tokens
    return (attrs.evolve(config, **supplied) if supplied else config), tuple(supplied)
