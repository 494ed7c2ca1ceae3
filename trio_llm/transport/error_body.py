"""Reads the facts out of an error answer, whatever its shape.

Every provider wraps its errors differently: an ``error`` object, an ``error`` string, a ``detail``
list, an array around it all, JSON inside a JSON string, an HTML page of a proxy, or nothing.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Any, Final

import attrs

from ..model.identifiers import ProviderRequestId
from .request_id import clean_request_id

_MAX_DEPTH: Final = 8
_MAX_NODES: Final = 256
_MAX_MESSAGE: Final = 2000
_MAX_EXCERPT: Final = 200
_PAGE_SCAN: Final = 8192

# Where an error hides inside another value. `raw` is what OpenRouter's upstream answered.
_WRAPPERS: Final = (
    "error",
    "errors",
    "message",
    "detail",
    "details",
    "metadata",
    "raw",
    "response",
    "innererror",
    "inner_error",
)
_MESSAGE_KEYS: Final = (
    "message",
    "Message",
    "msg",
    "error_msg",
    "error_message",
    "errorMessage",
    "error_description",
)
_INSTEAD_OF_A_MESSAGE: Final = ("error", "errors", "detail", "details", "response", "raw", "title")
_CODE_KEYS: Final = ("code", "type", "status", "reason", "error_type", "error_code", "errorCode", "__type")
_STATUS_KEYS: Final = ("code", "status", "status_code", "statusCode", "error_code")
_REQUEST_ID_KEYS: Final = ("request_id", "requestId", "RequestId", "requestID")

_HTML: Final = re.compile(r"\s*(?:<!doctype\s+html|<html|<head|<body|<\?xml)", re.IGNORECASE)
_TITLE: Final = re.compile(r"<(title|h1)\b[^>]*>([^<]{1,500})</\1", re.IGNORECASE)
_UNPRINTABLE: Final = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f]")


@attrs.frozen
class ErrorBody:
    """What an error answer says of itself.

    Attributes:
        message: the provider's text, printable and at most 2,000 characters; None if it has none.
        codes: every structured code, type, status word and reason, as the provider spells them.
        status: an HTTP status the body names (400..599), as in-band errors do.
        request_id: the request's id, if the body names it.
        objects: the JSON objects that made up the error, outermost first.
    """

    message: str | None = None
    codes: tuple[str, ...] = ()
    status: int | None = None
    request_id: ProviderRequestId | None = None
    objects: tuple[dict[str, Any], ...] = attrs.field(default=(), repr=False)


def printable(text: str, limit: int = _MAX_MESSAGE) -> str:
    """``text`` without control characters and lone surrogates, trimmed and cut to ``limit``."""
    joined = text[: 2 * limit].encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")
    clean = _UNPRINTABLE.sub(" ", joined).strip()
    return clean if len(clean) <= limit else clean[: limit - 1].rstrip() + "…"


def decode_json(text: str) -> Any:
    """The JSON value ``text`` is, or None. Never raises."""
    try:
        return json.loads(text, strict=False)
    except (ValueError, RecursionError):
        return None


def is_html(text: str) -> bool:
    """Whether ``text`` is a page for a browser."""
    return _HTML.match(text) is not None


def html_title(text: str) -> str | None:
    """The title or first heading of a page, on one line."""
    found = _TITLE.search(text[:_PAGE_SCAN])
    return printable(" ".join(found.group(2).split()), _MAX_EXCERPT) or None if found else None


def excerpt(text: str) -> str:
    """The start of ``text`` on one line, at most 200 characters."""
    return printable(" ".join(text[: 4 * _MAX_EXCERPT].split()), _MAX_EXCERPT)


def decode_error_body(text: str) -> Any:
    """The JSON value an error body holds, also where it comes as an event stream. Never raises."""
    value = decode_json(text)
    if value is not None:
        return value
    for line in text.splitlines():
        if line.startswith("data:") and (value := decode_json(line[5:])) is not None:
            return value
    return None


def read_error(value: Any) -> ErrorBody:
    """Read the facts out of a decoded error, whatever it is. Never raises.

    Args:
        value: an error object, an event that holds one, a list of them, or a text.
    """
    objects = tuple(_objects(value))
    message = _message(value, _MAX_DEPTH)
    return ErrorBody(
        message=printable(message) or None,
        codes=tuple(word for node in objects for key in _CODE_KEYS if isinstance(word := node.get(key), str)),
        status=next((status for node in objects if (status := _status(node)) is not None), None),
        request_id=next((found for node in objects if (found := _request_id(node)) is not None), None),
        objects=objects,
    )


def _unwrapped(value: Any) -> Any:
    if isinstance(value, str) and value.lstrip()[:1] in ("{", "["):
        decoded = decode_json(value)
        return value if decoded is None else decoded
    return value


def _objects(value: Any) -> Iterator[dict[str, Any]]:
    level, left = [value], _MAX_NODES
    for _ in range(_MAX_DEPTH):
        below: list[Any] = []
        for item in level[:left]:
            node = _unwrapped(item)
            if isinstance(node, dict):
                yield node
                below.extend(node[key] for key in _WRAPPERS if key in node)
            elif isinstance(node, (list, tuple)):
                below.extend(node[:_MAX_NODES])
        left -= len(level)
        if left <= 0:
            return
        level = below


def _message(value: Any, depth: int) -> str:
    value = _unwrapped(value)
    if depth == 0:
        return ""
    if isinstance(value, str):
        return value.strip()
    if isinstance(value, (list, tuple)):
        parts = [part for item in value[:5] if (part := _message(item, depth - 1))]
        return "; ".join(dict.fromkeys(parts))
    if not isinstance(value, dict):
        return ""
    own = _first(value, _MESSAGE_KEYS, depth)
    if not own:
        return _first(value, _INSTEAD_OF_A_MESSAGE, depth)
    if (place := value.get("loc")) and isinstance(place, (list, tuple)):
        own = f"{'.'.join(map(str, place[:10]))}: {own}"
    upstream = value.get("metadata")
    raw = _message(upstream.get("raw"), depth - 1) if isinstance(upstream, dict) else ""
    return f"{own}: {raw}" if raw and raw not in own else own


def _first(node: dict[str, Any], keys: tuple[str, ...], depth: int) -> str:
    return next((text for key in keys if (text := _message(node.get(key), depth - 1))), "")


def _status(node: dict[str, Any]) -> int | None:
    for key in _STATUS_KEYS:
        value = node.get(key)
        if isinstance(value, str) and re.fullmatch("[45][0-9]{2}", value):
            return int(value)
        if type(value) is int and 400 <= value <= 599:
            return value
    return None


def _request_id(node: dict[str, Any]) -> ProviderRequestId | None:
    return next((found for key in _REQUEST_ID_KEYS if (found := clean_request_id(node.get(key)))), None)
