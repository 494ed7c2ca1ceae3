"""API keys: where they come from, and that they never show.

A key comes from a value, a callable or a named environment variable, and from nothing else: no file is
hunted for, and a named source that has no key is an error, never a reason to try another.
"""

from __future__ import annotations

import inspect
import os
from collections.abc import Awaitable, Callable
from typing import TypeAlias, Union

import attrs

from ..model import codes
from ..model.failures import LlmError


@attrs.frozen
class Secret:
    """A text that shows itself only when asked: neither its repr nor its str holds any of it.

    Attributes:
        value: the text itself.
    """

    value: str = attrs.field(repr=False)

    def __str__(self) -> str:
        return "[redacted]"


def _name(instance: object, attribute: attrs.Attribute[str], value: str) -> None:
    if not isinstance(value, str) or not value or "=" in value or "\0" in value:
        raise ValueError("an environment variable has a non-empty name without '='")


@attrs.frozen
class EnvironmentVariable:
    """Takes the key from an environment variable, at the time of each call.

    Raises:
        ValueError: the name is empty or holds ``=`` or NUL.
    """

    name: str = attrs.field(validator=_name)


Credential: TypeAlias = Union[
    str, Secret, EnvironmentVariable, Callable[[], Union[str, Secret, Awaitable["str | Secret"]]]
]
"""A key, or where to get one: a value, an environment variable, or a callable (sync or async)."""


def protect(credential: Credential | None) -> Credential | None:
    """Wrap a bare key in :class:`Secret`: the converter of every attrs field that holds a credential."""
    return Secret(credential) if isinstance(credential, str) else credential


async def resolve_credential(credential: Credential | None, provider: str) -> str:
    """The key itself, trimmed and fit for a header.

    A checkpoint only where an async callable makes one; cancellation passes through it.

    Args:
        credential: None where nothing is configured.
        provider: named in the errors.

    Raises:
        LlmError: MISSING_CREDENTIAL, if there is none, it is blank, or its callable failed (the cause is
            what it raised); INVALID_CREDENTIAL, if it is no text or holds anything but printable ASCII
            (0x21-0x7E). No error repeats any part of a key.
    """
    if credential is None:
        raise LlmError(f"No API key is configured for {provider!r}", codes.MISSING_CREDENTIAL)
    if isinstance(credential, EnvironmentVariable):
        found: object = os.environ.get(credential.name)
        source = f"the environment variable {credential.name}"
        if found is None:
            raise LlmError(
                f"The API key of {provider!r} is missing: {source} is not set", codes.MISSING_CREDENTIAL
            )
    elif callable(credential):
        found, source = await _asked(credential, provider), "what its callable returned"
    else:
        found, source = credential, "the configured value"
    if isinstance(found, Secret):
        found = found.value
    return _fit_for_a_header(found, source, provider)


async def _asked(ask: Callable[[], object], provider: str) -> object:
    try:
        answer = ask()
        return await answer if inspect.isawaitable(answer) else answer
    except LlmError:
        raise
    except Exception as error:
        # Its text may hold what it tried to read.
        raise LlmError(
            f"The API key of {provider!r} could not be had: its callable raised {type(error).__name__}",
            codes.MISSING_CREDENTIAL,
        ) from error


def _fit_for_a_header(found: object, source: str, provider: str) -> str:
    if found is None:
        raise LlmError(f"The API key of {provider!r} is missing: {source} is None", codes.MISSING_CREDENTIAL)
    if not isinstance(found, str):
        raise LlmError(
            f"The API key of {provider!r} is no text: {source} is a {type(found).__name__}",
            codes.INVALID_CREDENTIAL,
        )
    key = found.strip()
    if not key:
        raise LlmError(f"The API key of {provider!r} is missing: {source} is empty", codes.MISSING_CREDENTIAL)
    for position, character in enumerate(key, 1):
        if not "!" <= character <= "~":
            raise LlmError(
                f"The API key of {provider!r} cannot be sent: {source} holds U+{ord(character):04X} at "
                f"character {position}, and only printable ASCII without spaces is allowed; "
                "copy the key alone once more",
                codes.INVALID_CREDENTIAL,
            )
    return key
