"""Turns a provider's answer that is no stream into one failure.

Structured fields decide first, because a status alone misleads: some providers answer a bad key with
400, an empty account with 429, a request that is too large with 413, and errors inside a stream with
200. Then the wording, then the status.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from http import HTTPStatus
from typing import Any, Final

from ..model import codes
from ..model.classify import is_context_window_exceeded, is_quota_exceeded, is_rate_limit_code, normalize_code
from ..model.failures import LlmError, LlmFailure
from ..model.identifiers import ProviderRequestId
from .error_body import ErrorBody, decode_error_body, excerpt, html_title, is_html, read_error
from .request_id import find_request_id
from .retry_after import retry_after_ms
from .secrets import BLACKED_OUT, blacked_out, value_without
from .urls import redact_url

# Bedrock and Azure name the error's class in a header.
_CODE_HEADERS: Final = ("x-amzn-errortype", "x-ms-error-code")

_CONTENT_FILTER_CODE: Final = re.compile(
    r"content_(?:filter|policy|moderation)|responsible_ai_policy|data_inspection_failed|moderation_(?:blocked|failed)"
)
_AUTH_CODE: Final = re.compile(
    r"authentication|unauthori[sz]ed|unauthenticated|(?:invalid|incorrect|missing|expired)_api_?key"
    r"|api_?key_(?:invalid|expired|missing|not_found|service_blocked)|permission_(?:denied|error)|access_denied"
    r"|account_deactivated|unrecognized_client|(?:invalid|expired)_(?:security_)?token|^forbidden$"
)
_BUSY_CODE: Final = re.compile(
    r"overload|capacity_exceeded|insufficient_system_resource|service_unavailable|^unavailable$|model_timeout|model_not_ready"
)
_SERVER_CODE: Final = re.compile(
    r"server_error|internal|^api_error$|timeout|bad_gateway|deadline_exceeded|model_stream_error"
)
_REQUEST_CODE: Final = re.compile(
    r"invalid|bad_request|unsupported|not_supported|not_found|validation|unprocessable|too_large|tool_use_failed"
    r"|failed_precondition|out_of_range|missing"
)

_CONTENT_FILTER_WORDING: Final = re.compile(
    r"violat\w*\s+(?:\S+\s+){0,3}(?:usage|content|safety) (?:guidelines|polic)|content management policy"
    r"|content exists risk|input was flagged|flagged as potentially violating"
    r"|blocked by (?:\S+ )?content filter",
    re.IGNORECASE,
)
_AUTH_WORDING: Final = re.compile(
    r"(?:incorrect|invalid|missing|expired|no) (?:x-)?api[ _-]?key"
    r"|api[ _-]?key (?:is |was )?(?:not valid|not found|invalid|expired|missing)",
    re.IGNORECASE,
)

_PHRASES: Final = {529: "Overloaded"} | {status.value: status.phrase for status in HTTPStatus}
_HINTS: Final = {
    codes.AUTH: "Check the API key, and that it belongs to this endpoint and may use this model.",
    codes.QUOTA: "The account has nothing left to spend; waiting does not help.",
    codes.CONTEXT_WINDOW_EXCEEDED: "Shorten the conversation or the output asked for, or use a larger model.",
    codes.CONTENT_FILTER: "The provider's content filter refused; the same request will be refused again.",
}
# OpenAI shows a refused key with its middle starred out.
_MASKED_KEY: Final = re.compile(r"[\w-]{1,64}\*{3,256}[\w-]{0,64}")
_TAG: Final = re.compile(r"<[^>]*>")
_PAGE_SCAN: Final = 2048


class ProviderResponseError(Exception):
    """What a provider answered, word for word: the cause of the :class:`LlmError` made of it.

    Its text says how much of what came; the body itself may repeat parts of the conversation, so it
    is in no text and no repr.

    Attributes:
        status: the HTTP status.
        content_type: as the provider declared it.
        body: the bytes that came, as far as they were read.
    """

    def __init__(self, status: int, content_type: str, body: bytes) -> None:
        self.status = status
        self.content_type = content_type
        self.body = body
        super().__init__(status, content_type, body)

    def __str__(self) -> str:
        return (
            f"HTTP {self.status} with {len(self.body)} bytes of {self.content_type or 'an undeclared type'}"
        )

    def __repr__(self) -> str:
        return f"<ProviderResponseError: {self}>"


def error_from_response(
    status: int,
    headers: Mapping[str, str],
    body: bytes,
    *,
    url: str | None = None,
    secrets: Sequence[str] = (),
    silent_overflow: bool = False,
    now: float | None = None,
) -> LlmError:
    """The error to raise for a response; its ``__cause__`` is a :class:`ProviderResponseError`.

    Where the remedy is plain the error carries it as a note. Arguments are those of
    :func:`failure_from_response`.
    """
    failure = failure_from_response(
        status, headers, body, url=url, secrets=secrets, silent_overflow=silent_overflow, now=now
    )
    error = LlmError.of(failure)
    declared = blacked_out(_header(headers, "content-type"), secrets)
    error.__cause__ = ProviderResponseError(status, excerpt(declared), body)
    if hint := _HINTS.get(failure.code):
        error.add_note(hint)
    return error


def failure_from_response(
    status: int,
    headers: Mapping[str, str],
    body: bytes,
    *,
    url: str | None = None,
    secrets: Sequence[str] = (),
    silent_overflow: bool = False,
    now: float | None = None,
) -> LlmFailure:
    """The facts of a response that is not the stream it should be. Never raises.

    The code: by the body's structured fields; by its wording; by status: 401 and 403 AUTH, 402 QUOTA,
    429 RATE_LIMIT, 400, 404, 413 and 422 INVALID_REQUEST, 500 and above SERVER, else ``HTTP_<n>``. A
    successful status is EMPTY_RESPONSE if nothing came, what the body says if it holds an error, else
    MALFORMED_RESPONSE.

    The message: the provider's own if the body parses, else the status in words, with the start of a
    plain text or the title of a page.

    Args:
        headers: names in any case.
        body: as far as it was read.
        url: where the request went; a 404 names it, without credentials.
        secrets: the keys the request carried; a message that repeats one has it blacked out.
        silent_overflow: this provider answers an overflow with a 400 or 413 without any body, as Cerebras
            does; by default that is INVALID_REQUEST.
        now: seconds since the epoch, for a ``Retry-After`` that is a date; default: the system's clock.
    """
    text = blacked_out(body.decode("utf-8-sig", "replace"), secrets)
    headers = {name: blacked_out(value, secrets) for name, value in headers.items()}
    error = read_error(None if is_html(text) else value_without(decode_error_body(text), secrets))
    spelled = (*error.codes, *(_header(headers, name) for name in _CODE_HEADERS))
    if error.message is not None:
        message, worded = error.message, error.message
    else:
        message = _status_text(status, headers, text) + _named(error)
        worded = "" if is_html(text) else text
    if 200 <= status <= 299:
        code = _code_of_success(error, text)
    elif silent_overflow and status in (400, 413) and not text.strip():
        code = codes.CONTEXT_WINDOW_EXCEEDED
    else:
        code = _code(status, worded, spelled)
    if status == 404 and url is not None:
        message = f"{message} (HTTP 404 from {redact_url(url)})"
    return LlmFailure(
        _MASKED_KEY.sub(BLACKED_OUT, message),
        code,
        status if 100 <= status <= 599 else None,
        retry_after_ms(headers, error, now=now),
        find_request_id(headers, error.request_id),
    )


def failure_from_error_object(
    error: Any,
    *,
    status: int | None = None,
    headers: Mapping[str, str] | None = None,
    secrets: Sequence[str] = (),
) -> LlmFailure:
    """The facts of an error that came inside a stream. Never raises.

    The status of the stream says nothing about the error; one that the error itself names does. What
    tells nothing at all is SERVER: the request had been accepted.

    Args:
        error: the decoded error, the whole event that holds it, a list of them, or a text.
        status: of the stream, kept where the error names none.
        headers: of the stream, for the request id where the error names none.
        secrets: as for :func:`failure_from_response`.
    """
    facts = read_error(value_without(error, secrets))
    message = facts.message or f"The provider reported an error without a message{_named(facts)}"
    own = facts.status if facts.status is not None else status
    return LlmFailure(
        _MASKED_KEY.sub(BLACKED_OUT, message),
        _code(facts.status, message, facts.codes),
        own if own is not None and 100 <= own <= 599 else None,
        retry_after_ms({}, facts),
        _known_by(headers or {}, facts.request_id, secrets),
    )


def _code(status: int | None, worded: str, spelled: Iterable[str]) -> str:
    words = [word for word in map(normalize_code, spelled) if word]

    def named(pattern: re.Pattern[str]) -> bool:
        return any(map(pattern.search, words))

    if is_context_window_exceeded(worded, words):
        return codes.CONTEXT_WINDOW_EXCEEDED
    if is_quota_exceeded(worded, words):
        return codes.QUOTA
    if named(_CONTENT_FILTER_CODE):
        return codes.CONTENT_FILTER
    if named(_AUTH_CODE) and status != 404:  # a model one may not see is reported as not found
        return codes.AUTH
    if is_rate_limit_code(words):
        return codes.RATE_LIMIT
    if named(_BUSY_CODE):
        return codes.SERVER
    if status is None or 400 <= status <= 499:
        if _CONTENT_FILTER_WORDING.search(worded):
            return codes.CONTENT_FILTER
        if status in (None, 400) and _AUTH_WORDING.search(worded):
            return codes.AUTH
    if status is not None:
        return _code_of_status(status)
    # The generic words come last: providers put them beside any status.
    return codes.INVALID_REQUEST if named(_REQUEST_CODE) and not named(_SERVER_CODE) else codes.SERVER


def _code_of_status(status: int) -> str:
    if status in (401, 403):
        return codes.AUTH
    if status == 402:
        return codes.QUOTA
    if status == 429:
        return codes.RATE_LIMIT
    if status in (400, 404, 413, 422):
        return codes.INVALID_REQUEST
    return codes.SERVER if status >= 500 else f"HTTP_{status}"


def _code_of_success(error: ErrorBody, text: str) -> str:
    if not text.strip():
        return codes.EMPTY_RESPONSE
    if any(map(_is_error, error.objects)):
        return _code(error.status, error.message or "", error.codes)
    return codes.MALFORMED_RESPONSE


def _is_error(node: dict[str, Any]) -> bool:
    return bool(node.get("error") or node.get("errors")) or "error" in (node.get("object"), node.get("type"))


def _status_text(status: int, headers: Mapping[str, str], text: str) -> str:
    said = f"HTTP {status} {_PHRASES.get(status, '')}".rstrip()
    if 200 <= status <= 299:
        declared = excerpt(_header(headers, "content-type")) or "an undeclared type"
        start = html_title(text) or excerpt(_TAG.sub(" ", text[:_PAGE_SCAN]))
        if not text.strip():
            return f"{said}, but the body is empty"
        return f"{said}, but {declared} instead of an event stream: {start!r}; check the base URL"
    if 300 <= status <= 399:
        return f"{said}: the endpoint redirects, which is not followed; check the base URL"
    if is_html(text):
        title = html_title(text)
        page = f"a web page ({title!r})" if title else "a web page"
        return f"{said}: {page} instead of an API error; check the base URL and any proxy"
    start = excerpt(text)
    return f"{said}: {start}" if start and not start.startswith(("{", "[")) else said


def _named(error: ErrorBody) -> str:
    named = next((word for word in map(excerpt, error.codes) if word and word != "error"), None)
    return f": {named}" if named else ""


def _header(headers: Mapping[str, str], wanted: str) -> str:
    return next((value for name, value in headers.items() if name.lower() == wanted), "")


def _known_by(
    headers: Mapping[str, str], in_body: ProviderRequestId | None, secrets: Sequence[str]
) -> ProviderRequestId | None:
    found = find_request_id(headers, in_body)
    return found and ProviderRequestId(blacked_out(found, secrets))
