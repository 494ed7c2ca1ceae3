"""What an exception of the library means: by structure first, by wording second."""

from __future__ import annotations

import json
import re
from typing import Any, Final

from ...model import codes
from ...model.classify import is_context_window_exceeded, is_quota_exceeded, normalize_code
from ...model.error_chain import error_chain
from ...model.failures import LlmError, LlmFailure
from ...transport.errors import failure_from_error_object, failure_from_response
from ...transport.secrets import blacked_out
from .library import Library

_BROKEN_WORDING: Final = re.compile(
    r"connection|socket|\bpeer\b|incomplete (?:chunked )?(?:read|message)|truncat|broken pipe|network|\bEOF\b"
    r"|closed before|ended without",
    re.IGNORECASE,
)
_CATEGORIES: Final = (
    # The library's own classes, most telling first; a subclass stands before what it is derived from.
    ("ModelContextWindowExceededError", codes.CONTEXT_WINDOW_EXCEEDED),
    ("ModelAuthenticationError", codes.AUTH),
    ("ModelQuotaExceededError", codes.QUOTA),
    ("ModelRateLimitError", codes.RATE_LIMIT),
    ("ModelTimeoutError", codes.TIMEOUT),
    ("ModelRequestTimeout", codes.TIMEOUT),
    ("ModelConnectionError", codes.TRANSPORT),
    ("ModelUnavailableError", codes.SERVER),
    ("ModelServerError", codes.SERVER),
    ("ModelRequestRejectedError", codes.INVALID_REQUEST),
    ("ContentFilterError", codes.CONTENT_FILTER),
)


def error_of(library: Library, error: Exception, *, asked: bool, secrets: tuple[str, ...]) -> LlmError:
    """The error to raise for what came out of the library; ``error`` is its cause.

    In this order: an LlmError is itself; a body or a status says what it says on every wire; the library's
    own classes; undecodable JSON; wording; a code of the provider's own; UNKNOWN.

    Args:
        asked: whether a request was sent; what the library refuses before is UNSUPPORTED_OPTION.
        secrets: blacked out where a message repeats one.
    """
    if isinstance(error, LlmError):
        return error
    made = LlmError.of(_failure(library, error, asked, secrets))
    made.__cause__ = error
    return made


def _failure(library: Library, error: Exception, asked: bool, secrets: tuple[str, ...]) -> LlmFailure:
    exceptions = library.exceptions
    message = blacked_out(error_chain(error), secrets)
    if isinstance(error, exceptions.UserError):
        return LlmFailure(message, codes.UNKNOWN if asked else codes.UNSUPPORTED_OPTION)
    if isinstance(error, exceptions.ModelAPIError):
        structured = _structured(error, exceptions, secrets)
        if structured is not None:
            return structured
    code = _category(error, exceptions) or _worded(error, message) or _own_code(error) or codes.UNKNOWN
    return LlmFailure(message, code, provider_retry_after_ms=_delay(error))


def _structured(error: Any, exceptions: Any, secrets: tuple[str, ...]) -> LlmFailure | None:
    """By the provider's own words, where the exception still has them."""
    if isinstance(error, exceptions.ModelHTTPError) and not error.in_stream:
        body = error.body if isinstance(error.body, str) else json.dumps(error.body, default=str)
        return failure_from_response(
            error.status_code, error.headers or {}, body.encode("utf-8", "replace"), secrets=secrets
        )
    if error.body is not None:
        headers = getattr(error, "headers", None)
        return failure_from_error_object(error.body, headers=headers, secrets=secrets)
    return None


def _category(error: Exception, exceptions: Any) -> str | None:
    return next((code for name, code in _CATEGORIES if isinstance(error, getattr(exceptions, name))), None)


def _worded(error: BaseException, message: str) -> str | None:
    cause: BaseException | None = error
    while cause is not None:
        if isinstance(cause, (json.JSONDecodeError, UnicodeDecodeError)):
            return codes.MALFORMED_RESPONSE
        cause = cause.__cause__
    if is_context_window_exceeded(message):
        return codes.CONTEXT_WINDOW_EXCEEDED
    if is_quota_exceeded(message):
        return codes.QUOTA
    return codes.TRANSPORT if _BROKEN_WORDING.search(message) else None


def _own_code(error: Exception) -> str | None:
    named = getattr(error, "provider_error_code", None) or getattr(error, "provider_error_type", None)
    return normalize_code(named).upper() or None


def _delay(error: Exception) -> float | None:
    seconds = getattr(error, "retry_after", None)
    if not isinstance(seconds, (int, float)) or isinstance(seconds, bool):
        return None
    return seconds * 1000 if 0 < seconds < float("inf") else None
