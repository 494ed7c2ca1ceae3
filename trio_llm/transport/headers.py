"""Headers, on their way out and in."""

from __future__ import annotations

import re
from collections.abc import Iterable

from ..model import codes
from ..model.failures import LlmError

_HEADER_NAME = re.compile(r"[-!#$%&'*+.^_`|~0-9A-Za-z]+")
_HEADER_VALUE = re.compile(r"[!-~](?:[ \t!-~]*[!-~])?|")
_CREDENTIAL_HEADERS = frozenset(
    {"authorization", "proxy-authorization", "x-api-key", "api-key", "x-goog-api-key", "cookie"}
)


def checked_headers(headers: Iterable[tuple[str, str]]) -> list[tuple[str, str]]:
    """Those headers that a caller may set.

    Raises:
        LlmError: INVALID_CONFIG or INVALID_CREDENTIAL for one that HTTP cannot carry.
    """
    checked = []
    for name, value in headers:
        if _HEADER_NAME.fullmatch(name) is None:
            raise LlmError(f"{name!r} cannot be the name of a header", codes.INVALID_CONFIG)
        lower = name.lower()
        if _HEADER_VALUE.fullmatch(value) is None:
            code = codes.INVALID_CREDENTIAL if lower in _CREDENTIAL_HEADERS else codes.INVALID_CONFIG
            raise LlmError(f"the value of the header {name!r} is not printable ASCII", code)
        if lower not in ("user-agent", "accept-encoding"):
            checked.append((name, value))
    return checked


def by_name(items: Iterable[tuple[bytes, bytes]]) -> dict[str, str]:
    """The headers of a head by name; h11 gives the names in lower case."""
    headers: dict[str, str] = {}
    for name, value in items:
        key, text = name.decode("ascii"), value.decode("latin-1")
        headers[key] = f"{headers[key]}, {text}" if key in headers else text
    return headers
