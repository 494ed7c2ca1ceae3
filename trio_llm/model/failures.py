"""Failures as facts.

An :class:`LlmFailure` says what happened and nothing about what to do; an :class:`LlmError` carries
one through an ``except``. Both paths of the stream contract (raise, or finish with Error) hold the
same type, so a failure can be recorded, sent and compared.
"""

from __future__ import annotations

import math
from typing import Any

import attrs

from .identifiers import ProviderRequestId


def _non_empty(instance: object, attribute: attrs.Attribute[Any], value: Any) -> None:
    if not isinstance(value, str) or not value:
        raise ValueError(f"{attribute.name} is a non-empty string, not {value!r}")


def _status(instance: object, attribute: attrs.Attribute[Any], value: Any) -> None:
    if value is not None and (type(value) is not int or not 100 <= value <= 599):
        raise ValueError(f"status is an HTTP status from 100 to 599, not {value!r}")


def _delay(instance: object, attribute: attrs.Attribute[Any], value: Any) -> None:
    if value is not None and not (
        isinstance(value, (int, float)) and not isinstance(value, bool) and math.isfinite(value) and value > 0
    ):
        raise ValueError(f"provider_retry_after_ms is positive and finite, not {value!r}")


@attrs.frozen
class LlmFailure:
    """What went wrong, in serializable facts.

    Attributes:
        message: for people; never holds a secret or a header value.
        code: one of :mod:`trio_llm.model.codes`, or a provider's own word in upper case.
        status: the HTTP status, where there was one.
        provider_retry_after_ms: how long the provider asks to wait, in milliseconds.
        request_id: the provider's id of the request.

    Raises:
        ValueError: an empty message or code, a status outside 100..599, a delay that is not
            positive and finite, an empty request id.
    """

    message: str = attrs.field(validator=_non_empty)
    code: str = attrs.field(validator=_non_empty)
    status: int | None = attrs.field(default=None, validator=_status)
    provider_retry_after_ms: float | None = attrs.field(default=None, validator=_delay)
    request_id: ProviderRequestId | None = attrs.field(
        default=None, validator=attrs.validators.optional(_non_empty)
    )


class LlmError(Exception):
    """Raised for every failure this library knows the facts of; ``failure`` holds them.

    Args:
        message: for people.
        code: see :class:`LlmFailure`.

    Raises:
        ValueError: the facts are not valid (see :class:`LlmFailure`).
    """

    def __init__(
        self,
        message: str,
        code: str,
        *,
        status: int | None = None,
        provider_retry_after_ms: float | None = None,
        request_id: ProviderRequestId | None = None,
    ) -> None:
        self.failure = LlmFailure(message, code, status, provider_retry_after_ms, request_id)
        super().__init__(message)

    @classmethod
    def of(cls, failure: LlmFailure) -> LlmError:
        """An error that carries ``failure`` itself."""
        error = cls(failure.message, failure.code)
        error.failure = failure
        return error

    @property
    def code(self) -> str:
        """The failure's code."""
        return self.failure.code

    def __str__(self) -> str:
        return f"{self.failure.code}: {self.failure.message}"

    def __reduce__(self) -> tuple[object, ...]:
        return (LlmError.of, (self.failure,))
