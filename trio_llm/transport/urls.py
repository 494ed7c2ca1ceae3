"""Joins an endpoint's base URL and path, and shows URLs without their secrets.

A base URL is a prefix, as every provider documents its own (``https://host/v1``): the endpoint's path
is added to it, nothing of it is lost and nothing is said twice.
"""

from __future__ import annotations

import functools
import re
from typing import Final
from urllib.parse import SplitResult, parse_qsl, urlsplit

from ..model import codes
from ..model.failures import LlmError

_UNFIT: Final = re.compile(r"[\s\x00-\x20\x7f-\x9f\\<>\"`{}|^]")
_SCHEME: Final = re.compile(r"([A-Za-z][A-Za-z0-9+.-]*)://")
_ASCII_HOST: Final = re.compile(r"[A-Za-z0-9_~-]+(?:\.[A-Za-z0-9_~-]+)*\.?")
_VERSION: Final = re.compile(r"v[0-9]+(?:(?:alpha|beta)[0-9]*)?", re.IGNORECASE)
# Query parameters that say how to answer; any other may be a key.
_HARMLESS: Final = ("alt", "api-version")


@functools.lru_cache(64)  # an adapter asks for the same one with every request
def join_url(base: str, path: str) -> str:
    """The URL of ``path`` below ``base``.

    Slashes meet as one. A version segment is not repeated: where the base ends with one and the path
    starts with one, the base's stands. A base that already is the whole endpoint stays as it is. The
    query of either is kept.

    Args:
        base: absolute, http or https; white space around it is dropped.
        path: such as ``chat/completions``; a segment that holds a slash is percent-encoded by the caller.

    Raises:
        LlmError: INVALID_BASE_URL, for no or another scheme, no host, a bad port, white space or
            characters no URL has, a user name or password, a fragment. The text never repeats a part
            that may be secret.
    """
    parts = _checked(base.strip())
    route, _, route_query = path.partition("?")
    before = [segment for segment in parts.path.split("/") if segment]
    after = [segment for segment in route.split("/") if segment]
    if len(after) > 1 and before[-len(after) :] == after:
        after = []
    elif before and after and _VERSION.fullmatch(before[-1]) and _VERSION.fullmatch(after[0]):
        after = after[1:]
    joined = "/".join(("", *before, *after)) or "/"
    if route.endswith("/") and not joined.endswith("/"):
        joined += "/"
    query = "&".join(filter(None, (parts.query, route_query)))
    return f"{parts.scheme}://{parts.netloc}{joined}" + (f"?{query}" if query else "")


def redact_url(url: str) -> str:
    """``url`` for people: no user name, password or fragment, its query values starred out. Never raises."""
    try:
        parts = urlsplit(url.strip())
    except ValueError:
        return "an invalid URL"
    if parts.scheme not in ("http", "https", "ws", "wss") or not parts.netloc:
        return "an invalid URL"
    shown = "&".join(
        f"{name}={value if name.lower() in _HARMLESS else '***'}"
        for name, value in parse_qsl(parts.query, keep_blank_values=True)
    )
    return f"{parts.scheme}://{parts.netloc.rpartition('@')[2]}{parts.path}" + (f"?{shown}" if shown else "")


def url_repr(url: str | None) -> str:
    """The repr of an attrs field that holds a URL, as one may hold a key."""
    return repr(None if url is None else redact_url(url))


def _refused(why: str) -> LlmError:
    return LlmError(f"The base URL {why}.", codes.INVALID_BASE_URL)


def _checked(base: str) -> SplitResult:
    if not base:
        raise _refused("is empty")
    if unfit := _UNFIT.search(base):
        character = ord(unfit.group())
        raise _refused(f"holds U+{character:04X} at character {unfit.start() + 1}, which no URL can hold")
    scheme = _SCHEME.match(base)
    if scheme is None:
        raise _refused("has no scheme: write it as https://host/path")
    if scheme.group(1).lower() not in ("http", "https"):
        raise _refused(f"starts with {scheme.group()}, but http:// or https:// is needed")
    try:
        parts = urlsplit(base)
        port = parts.port
    except ValueError:
        raise _refused("has a host or port that is not valid; a port is a number from 1 to 65535") from None
    if "@" in parts.netloc:
        raise _refused("holds a user name or password: take it out and give the key as the credential")
    host = parts.hostname
    if not host:
        raise _refused("names no host")
    if port == 0:
        raise _refused("names port 0, which no server has")
    if not _host_is_valid(host):
        raise _refused("names a host that is not valid")
    if parts.fragment or base.endswith("#"):
        raise _refused("has a fragment (#...), which is never sent: take it out")
    return parts


def _host_is_valid(host: str) -> bool:
    if ":" in host:  # an IPv6 address, which urlsplit has checked
        return True
    try:
        return _ASCII_HOST.fullmatch(host.encode("idna").decode("ascii")) is not None
    except UnicodeError:
        return False
