"""Keeps the keys that a request carried out of everything that is told of its response.

Servers repeat keys: in messages, in headers, in whatever words they send. What is told of a response (errors,
records, reasons of its end) passes through here before it is cut to a length, as half a key is a leak too.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import lru_cache
from typing import Any, Final

import attrs

from ..model.chunks import Aborted, Error, Finish
from ..model.failures import LlmError, LlmFailure
from ..model.identifiers import ProviderRequestId

BLACKED_OUT: Final = "[redacted]"

_SHORTEST: Final = 6
"""A shorter secret is none: blacking it out would leave holes in any text."""

_DEEPEST: Final = 50
"""What lies deeper in a decoded value is left out: nothing is read of it."""


@lru_cache(maxsize=64)
def _pattern(secret: str) -> re.Pattern[str]:
    # In any case, as words become codes; in JSON text, and in JSON in JSON, there may be backslashes in it.
    return re.compile(r"\\{0,3}".join(map(re.escape, secret)), re.IGNORECASE)


def blacked_out(text: str, secrets: Sequence[str]) -> str:
    """``text`` without any of ``secrets``."""
    for secret in secrets:
        if len(secret) >= _SHORTEST:
            text = _pattern(secret).sub(BLACKED_OUT, text)
    return text


def value_without(value: Any, secrets: Sequence[str], depth: int = _DEEPEST) -> Any:
    """A decoded JSON value without any of ``secrets``, down to that depth."""
    if isinstance(value, str):
        return blacked_out(value, secrets)
    if not isinstance(value, (dict, list, tuple)):
        return value
    if depth == 0:
        return None
    if isinstance(value, dict):
        return {key: value_without(item, secrets, depth - 1) for key, item in value.items()}
    return [value_without(item, secrets, depth - 1) for item in value]


def failure_without(failure: LlmFailure, secrets: Sequence[str]) -> LlmFailure:
    """The failure without any of ``secrets``; itself, where there is none."""
    message, code = blacked_out(failure.message, secrets), blacked_out(failure.code, secrets)
    id = failure.request_id and ProviderRequestId(blacked_out(failure.request_id, secrets))
    if (message, code, id) == (failure.message, failure.code, failure.request_id):
        return failure
    return attrs.evolve(failure, message=message, code=code, request_id=id)


def finish_without(finish: Finish, secrets: Sequence[str]) -> Finish:
    """A finish whose reason repeats none of ``secrets``."""
    reason = finish.reason
    raw = reason.raw and blacked_out(reason.raw, secrets)
    if raw != reason.raw:
        reason = attrs.evolve(reason, raw=raw)
    if isinstance(reason, (Aborted, Error)):
        reason = attrs.evolve(reason, failure=failure_without(reason.failure, secrets))
    return finish if reason == finish.reason else attrs.evolve(finish, reason=reason)


@contextmanager
def kept_secret(secrets: Sequence[str]) -> Iterator[None]:
    """Let no LlmError pass that repeats one of ``secrets``; it stays the same object.

    A cause that does is left out, as other libraries put what a server says into their exceptions.
    """
    try:
        yield
    except LlmError as error:
        error.failure = failure_without(error.failure, secrets)
        error.args = (error.failure.message,)
        told = "\n".join(_told_by(error.__cause__ or error.__context__))
        if blacked_out(told, secrets) != told:
            error.__cause__ = error.__context__ = None
        raise


def _told_by(error: BaseException | None) -> Iterator[str]:
    """What an exception and those behind it say of themselves."""
    seen: set[int] = set()
    left = [error]
    while left:
        error = left.pop()
        if error is not None and id(error) not in seen:
            seen.add(id(error))
            yield f"{error}\n{error!r}"
            left += [error.__cause__, error.__context__]
            if isinstance(error, BaseExceptionGroup):
                left += error.exceptions
