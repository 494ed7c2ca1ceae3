"""How long a provider asks to wait.

Sources: RFC 9110 section 10.2.3 (``Retry-After``: seconds or a date, in any of the three forms of
section 5.6.7); ``retry-after-ms`` as OpenAI and Azure send it; google.rpc.RetryInfo; and the wording
of OpenAI, Groq, Azure and Gemini, some of which tell the delay nowhere else. The many
``x-ratelimit-reset`` headers are not read: they tell when a window is full again, one of several, and
not when the next request would pass.
"""

from __future__ import annotations

import math
import re
import time
from collections.abc import Mapping
from datetime import UTC
from email.utils import parsedate_to_datetime
from typing import Any, Final

from .error_body import ErrorBody

_DECIMAL: Final = re.compile(r"[0-9]{1,30}(?:\.[0-9]{0,30})?|\.[0-9]{1,30}")
# A unit ends where no letter follows: "6m0s" is two of them, "5mb" none.
_DURATION: Final = (
    r"(?:[0-9]{1,12}(?:\.[0-9]{1,20})?\s*"
    r"(?:days?|d|hours?|h|minutes?|mins?|m|seconds?|secs?|s|milliseconds?|ms)(?![a-z])\s*)+"
)
_WORDING: Final = re.compile(
    rf"\b(?:try again|retry|wait)\s+(?:(?:in|after|for)\s+)?(?:about\s+)?(?P<delay>{_DURATION})",
    re.IGNORECASE,
)
_PART: Final = re.compile(r"([0-9]+(?:\.[0-9]+)?)\s*([a-z]+)", re.IGNORECASE)
_UNIT_MS: Final = {"d": 86_400_000, "h": 3_600_000, "m": 60_000, "s": 1000, "ms": 1}
_FIELDS_MS: Final = {
    "retry_after_ms": 1,
    "retry_after": 1000,
    "retry_after_seconds": 1000,
    "resets_in_seconds": 1000,
}


def retry_after_ms(
    headers: Mapping[str, str], body: ErrorBody | None = None, *, now: float | None = None
) -> float | None:
    """The delay a response asks for, in milliseconds; None if it asks for none that can be obeyed.

    The headers come first (``retry-after-ms``, then ``retry-after``), then the body, where the longer
    of a stated and a worded delay counts. Only positive, finite delays are given. Never raises.

    Args:
        headers: names in any case.
        body: what the body says; see :func:`~trio_llm.transport.error_body.read_error`.
        now: seconds since the epoch, against which a date counts; default: the system's clock.
    """
    lower = {name.lower(): value for name, value in headers.items()}
    milliseconds = _positive(_decimal(lower.get("retry-after-ms", "")))
    if milliseconds is not None:
        return milliseconds
    value = lower.get("retry-after", "").strip()
    seconds = _decimal(value)
    if seconds is None:
        seconds = _seconds_until(value, now)
    asked = _positive(None if seconds is None else seconds * 1000)
    if asked is None and body is not None:
        asked = _body_delay(body)
    return asked


def _positive(value: float | None) -> float | None:
    return value if value is not None and math.isfinite(value) and value > 0 else None


def _decimal(text: str) -> float | None:
    text = text.strip()
    return float(text) if _DECIMAL.fullmatch(text) else None


def _seconds_until(text: str, now: float | None) -> float | None:
    if ":" not in text or len(text) > 64:  # every HTTP date has a time of day; the parser is more lenient
        return None
    try:
        moment = parsedate_to_datetime(text)
        if moment.tzinfo is None:
            moment = moment.replace(tzinfo=UTC)
        return moment.timestamp() - (time.time() if now is None else now)
    except (ValueError, TypeError, IndexError, OverflowError):
        return None


def _body_delay(body: ErrorBody) -> float | None:
    delays = [_worded_delay(body.message or "")]
    for node in body.objects:
        delays.append(_stated_delay(node.get("retryDelay")))
        delays.extend(_scaled(node.get(field), factor) for field, factor in _FIELDS_MS.items())
    return max((delay for delay in delays if delay is not None), default=None)


def _scaled(value: Any, factor: int) -> float | None:
    if isinstance(value, str):
        value = _decimal(value)
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        return None
    try:
        return _positive(float(value) * factor)
    except OverflowError:  # JSON integers have no bound
        return None


def _stated_delay(value: Any) -> float | None:
    # google.protobuf.Duration: "48.9s" in JSON, an object of seconds and nanos from some gateways.
    if isinstance(value, str):
        return _positive(_total_ms(value)) if len(value) <= 64 else None
    if isinstance(value, dict):
        return _scaled(value.get("seconds"), 1000)
    return None


def _worded_delay(message: str) -> float | None:
    found = _WORDING.search(message)
    return None if found is None else _positive(_total_ms(found["delay"]))


def _total_ms(duration: str) -> float:
    total = 0.0
    for number, unit in _PART.findall(duration):
        short = unit.lower()
        total += float(number) * _UNIT_MS["ms" if short == "ms" or short.startswith("milli") else short[0]]
    return total
