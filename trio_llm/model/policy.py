"""Retry policies and timeouts: values that say when to try again and how long to wait."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from typing import Any, ClassVar, TypeAlias

import attrs

from . import codes

DEFAULT_RETRYABLE_CODES = (
    codes.EMPTY_RESPONSE,
    codes.RATE_LIMIT,
    codes.SERVER,
    codes.TIMEOUT,
    codes.TRANSPORT,
    codes.STREAM_CLOSED,
)


def _number(value: object) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool) and math.isfinite(value)


def _delay(instance: object, attribute: attrs.Attribute[Any], value: Any) -> None:
    if not _number(value) or value <= 0:
        raise ValueError(f"{attribute.name} is positive and finite, not {value!r}")


def _ratio(instance: object, attribute: attrs.Attribute[Any], value: Any) -> None:
    if not _number(value) or not 0 <= value <= 1:
        raise ValueError(f"{attribute.name} lies between 0 and 1, not {value!r}")


def _retries(instance: object, attribute: attrs.Attribute[Any], value: Any) -> None:
    if type(value) is not int or value < 0:
        raise ValueError(f"{attribute.name} is a count, not {value!r}")


def _codes(values: Iterable[str]) -> tuple[str, ...]:
    if isinstance(values, str):
        raise TypeError("retryable_codes is a list of codes, not one string")
    listed = tuple(values)
    if any(not isinstance(code, str) or not code for code in listed):
        raise ValueError("retryable_codes holds non-empty strings")
    if len(set(listed)) != len(listed):
        raise ValueError("retryable_codes names a code twice")
    return tuple(sorted(listed))  # the order says nothing, so equal sets are equal policies


@attrs.frozen
class _Backoff:
    initial_delay_ms: float = attrs.field(default=500, validator=_delay, kw_only=True)
    max_delay_ms: float = attrs.field(default=10_000, validator=_delay, kw_only=True)
    jitter_ratio: float = attrs.field(default=0.1, validator=_ratio, kw_only=True)

    def __attrs_post_init__(self) -> None:
        if self.initial_delay_ms > self.max_delay_ms:
            raise ValueError("initial_delay_ms is at most max_delay_ms")


@attrs.frozen
class NormalRetry(_Backoff):
    """Try again a bounded number of times, and only after some codes.

    Attributes:
        max_retries: how many attempts may follow the first.
        retryable_codes: without duplicates; kept sorted, as the order says nothing.
        initial_delay_ms, max_delay_ms: the backoff, in milliseconds.
        jitter_ratio: how far a delay may stray, from 0 to 1, either way.

    Raises:
        ValueError: a value outside its range.
        TypeError: ``retryable_codes`` is one string.
    """

    mode: ClassVar[str] = "normal"
    max_retries: int = attrs.field(default=5, validator=_retries)
    retryable_codes: tuple[str, ...] = attrs.field(default=DEFAULT_RETRYABLE_CODES, converter=_codes)


@attrs.frozen
class AlwaysRetry(_Backoff):
    """Try again after every failure, without bound, with the same backoff as :class:`NormalRetry`."""

    mode: ClassVar[str] = "always"


RetryPolicy: TypeAlias = NormalRetry | AlwaysRetry
_POLICIES: dict[str, type[RetryPolicy]] = {"normal": NormalRetry, "always": AlwaysRetry}


def retry_policy(settings: Mapping[str, Any]) -> RetryPolicy:
    """A policy from configuration: ``mode`` ("normal" by default) and the fields of that policy.

    Raises:
        ValueError: an unknown mode or key, or a value outside its range.
    """
    fields = dict(settings)
    mode = fields.pop("mode", "normal")
    if mode not in _POLICIES:
        raise ValueError(f"mode is 'normal' or 'always', not {mode!r}")
    policy = _POLICIES[mode]
    known = {field.name for field in attrs.fields(policy)}
    for key in fields:
        if key not in known:
            raise ValueError(f"unknown key {key!r} in a retry policy of mode {mode!r}")
    return policy(**fields)


def _seconds(instance: object, attribute: attrs.Attribute[Any], value: Any) -> None:
    if value is None or (value == math.inf and attribute.name != "idle"):
        return
    if not _number(value) or value <= 0:
        finite = " and finite" if attribute.name == "idle" else ""
        raise ValueError(f"{attribute.name} is a positive{finite} number of seconds, not {value!r}")


@attrs.frozen(kw_only=True)
class Timeouts:
    """How long each phase of a call may take, in seconds. None leaves the phase to the next owner.

    All count on a clock that stands still while the consumer is thinking. ``math.inf`` switches a
    phase off (but ``idle``, which is always finite).

    Attributes:
        connect: until a connection is there, waiting for a free one included. Default 30.
        first_event: from the request sent to the first model event. Off by default.
        idle: without a byte either way. Default 300.
        progress: without a model event although bytes arrive. Off by default.
        total: for the whole attempt. Off by default.

    Raises:
        ValueError: a value that is not positive, or an idle time that is not finite.
    """

    connect: float | None = attrs.field(default=None, validator=_seconds)
    first_event: float | None = attrs.field(default=None, validator=_seconds)
    idle: float | None = attrs.field(default=None, validator=_seconds)
    progress: float | None = attrs.field(default=None, validator=_seconds)
    total: float | None = attrs.field(default=None, validator=_seconds)

    def over(self, base: Timeouts) -> Timeouts:
        """These timeouts where set, ``base`` elsewhere."""
        if self is base or self == _UNSET:
            return base
        return Timeouts(
            connect=base.connect if self.connect is None else self.connect,
            first_event=base.first_event if self.first_event is None else self.first_event,
            idle=base.idle if self.idle is None else self.idle,
            progress=base.progress if self.progress is None else self.progress,
            total=base.total if self.total is None else self.total,
        )


_UNSET = Timeouts()

DEFAULT_TIMEOUTS = Timeouts(connect=30, first_event=math.inf, idle=300, progress=math.inf, total=math.inf)
"""What holds where neither a call nor its adapter says otherwise."""
