"""Tells an exceeded context window and an exhausted account from their look-alikes.

Providers say both in many ways, and the same sentence may mean either a bill to pay or a minute to
wait. So the structured fields of an error (its ``code``, ``type``, ``status``, ``reason``) are read
first, and its wording second.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Final

_MESSAGE_SCAN: Final = 4096
_URL = re.compile(r"https?://\S+")
_LOWER_TO_UPPER = re.compile(r"(?<=[a-z0-9])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])")
_NOT_A_WORD = re.compile(r"[^a-z0-9]+")


def normalize_code(value: object) -> str:
    """One spelling for a provider's error code: ``RateLimitReached`` becomes ``rate_limit_reached``.

    A namespace is dropped (``com.amazon#ThrottlingException``, ``ValidationException:http://...``).
    A sentence in the place of a code, or anything that is no string, becomes the empty string.
    """
    if not isinstance(value, str):
        return ""
    value = value.strip().split(":", 1)[0].rsplit("#", 1)[-1]
    if len(value) > 64 or " " in value:
        return ""
    return _NOT_A_WORD.sub("_", _LOWER_TO_UPPER.sub("_", value).lower()).strip("_")


def _any_of(*patterns: str) -> re.Pattern[str]:
    return re.compile("|".join(f"(?:{pattern})" for pattern in patterns), re.IGNORECASE)


_RATE_CODE = _any_of(
    "rate_?limit", "too_many_requests", "throttl", "resource_exhausted", "slow_down", "too_many_tokens_error"
)
_RATE_WORDING = _any_of(
    r"rate[\s_-]*limit",
    r"too many requests",
    r"throttl",
    r"\bper[\s_-](?:second|sec|minute|min|hour|day)\b",
    r"\bresets?\b",
    r"\b(?:try again|retry) (?:in|after)\b",
    r"please wait",
)

_OVERFLOW_CODE = _any_of(
    r"context_(?:length|window|size)_(?:limit_)?(?:exceed|overflow|too_)",
    r"^exceed(?:s|ed)?_context_(?:length|window|size)",
    r"^too_many_(?:prompt_|input_)?tokens$",
    r"^(?:prompt|input|context)_too_(?:long|large)$",
)
_OVERFLOW_WORDING = _any_of(
    r"context[\s_-]*(?:length|window|size|limit)[\s_-]*(?:(?:is|was|has been)\s+)?(?:exceed|overflow)",
    r"(?:exceed\w*|overflow\w*|(?:larger|greater|longer) than)\s+(?:[\w'\u2019-]+\s+){0,4}?context"
    r"[\s_-]*(?:length|window|size|limit)",
    r"maximum (?:allowed )?(?:context|prompt|model) (?:length|window|size)",
    r"too (?:long|large|big) for (?:(?:this|the|that|your|requested|selected)\s+)*model",
    r"\b(?:prompt|input|conversation) (?:(?:is|was) )?too long",
    r"length of all messages is too long",
    r"\b(?:input|prompt) tokens?\b[^.]{0,60}\bexceed",
    r"reduce the length of the (?:messages|prompt|input)",
    r"exceed\w*\s+(?:the\s+)?model(?:'s)?\s+(?:maximum\s+)?token limit",
    r"prompt exceeds max(?:imum)? length",
    r"range of input length should be",
    r"`inputs` tokens \+ `max_new_tokens` must be",
)
_OVERFLOW_UNLESS_RATE = _any_of(r"too many (?:input |prompt )?tokens")
_OVERSIZE_REQUEST = _any_of(r"request too large\b.{0,200}\btokens? per (?:minute|min|day)\b")
_LIMIT_AND_REQUESTED = re.compile(
    r"\btokens?\b.{0,80}?\blimit:? *([\d,]+).{0,60}?\brequested:? *([\d,]+)", re.IGNORECASE | re.DOTALL
)

_QUOTA_CODE = _any_of(
    r"^insufficient_(?:\w+_)?(?:quota|balance|credits?|funds)",
    r"^exceeded_current_quota",
    r"^billing_(?:error|(?:hard_)?limit_(?:reached|exceeded)|not_active)$",
    r"(?:credits?|balance)_(?:exhausted|depleted|too_low)$",
    r"^out_of_credits?$",
    r"usage_(?:limit_(?:reached|exceeded)|not_included)$",
    r"spend(?:ing)?_limit_(?:reached|exceeded)$",
    r"^payment_required",
    r"^arrearage$",
    r"^account_overdue",
)
_QUOTA_CODE_UNLESS_RATE = _any_of(r"^quota_(?:exceeded|exhausted)(?:_error)?$")
_QUOTA_WORDING = _any_of(
    r"insufficient[\s_-]+(?:\w+[\s_-]+)?(?:quota|balance|credits?|funds)\b",
    r"\b(?:balance|credits?)\b[^.]{0,40}\b(?:exhausted|depleted|used up|too low|insufficient|run out)\b",
    r"\bexhausted\b[^.]{0,30}\b(?:balance|credits?)\b",
    r"\bout of (?:\w+ )?credits?\b",
    r"\b(?:no|any|more|not enough|used all)\s+(?:\w+ ){0,2}credits\b",
    r"\busage limits?\b[^.]{0,30}\b(?:exceeded|reached|hit)\b",
    r"\b(?:exceeded|reached|hit)\b[^.]{0,40}\busage limits?\b",
    r"\b(?:billing|spend|spending)(?: hard)? limit\b",
    r"\bkey limit exceeded\b",
    r"\baccount is not active\b[^.]{0,30}\bbilling\b",
)
_QUOTA_WORDING_UNLESS_RATE = _any_of(
    r"\bexceeded\b[^.]{0,40}\bquota\b",
    r"\bquota\b[^.]{0,40}\b(?:exceeded|exhausted|used up|depleted)\b",
    r"\bplan and billing details\b",
)


def _prose(message: str | None) -> str:
    # Links to a page about rate limits or quotas stand in messages about anything.
    return _URL.sub(" ", (message or "")[:_MESSAGE_SCAN])


def _normalized(codes: Iterable[object]) -> list[str]:
    return [word for word in map(normalize_code, codes) if word]


def _speaks_of_rate(words: list[str], prose: str) -> bool:
    return any(map(_RATE_CODE.search, words)) or _RATE_WORDING.search(prose) is not None


def is_rate_limit_code(codes: Iterable[object]) -> bool:
    """Whether a structured field of an error names a rate limit (its wording is not asked)."""
    return any(map(_RATE_CODE.search, _normalized(codes)))


def _outgrows_a_limit(prose: str) -> bool:
    if _OVERSIZE_REQUEST.search(prose):
        return True
    found = _LIMIT_AND_REQUESTED.search(prose)
    if found is None:
        return False
    limit, requested = (number.replace(",", "").lstrip("0").rjust(20, "0") for number in found.groups())
    return requested > limit


def is_context_window_exceeded(message: str | None, codes: Iterable[object] = ()) -> bool:
    """Whether an error says that the request is larger than the model, or a limit, can ever take.

    One request that outgrows a per-minute token limit counts, because waiting never helps and
    shrinking does. A limit on the output alone does not count.

    Args:
        message: the provider's text.
        codes: its structured fields (``code``, ``type``, ``status``, ``reason``), in any spelling;
            what is no string is passed over.
    """
    words, prose = _normalized(codes), _prose(message)
    if any(map(_OVERFLOW_CODE.search, words)) or _outgrows_a_limit(prose):
        return True
    if _OVERFLOW_WORDING.search(prose):
        return True
    return _OVERFLOW_UNLESS_RATE.search(prose) is not None and not _speaks_of_rate(words, prose)


def is_quota_exceeded(message: str | None, codes: Iterable[object] = ()) -> bool:
    """Whether an error says that the account has nothing left to spend, so that waiting is no help.

    A quota that refills by itself (per minute, "resets", "try again in") is a rate limit, whatever
    it is called: Google and OpenAI use one sentence for both, and only the fields tell them apart.

    Args:
        message: the provider's text.
        codes: see :func:`is_context_window_exceeded`.
    """
    words, prose = _normalized(codes), _prose(message)
    if any(map(_QUOTA_CODE.search, words)) or _QUOTA_WORDING.search(prose):
        return True
    perhaps = any(map(_QUOTA_CODE_UNLESS_RATE.search, words)) or _QUOTA_WORDING_UNLESS_RATE.search(prose)
    return bool(perhaps) and not _speaks_of_rate(words, prose)
