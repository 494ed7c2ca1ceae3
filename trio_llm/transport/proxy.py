"""Which proxy the environment names for a URL, by httpx's rules.

httpx reads HTTP_PROXY, HTTPS_PROXY, ALL_PROXY and NO_PROXY only for transports of its own. The rules are
those of its documentation ("Environment variables"), with networks in NO_PROXY ("10.0.0.0/8") as httpx2
has them.
"""

from __future__ import annotations

import ipaddress
from types import ModuleType
from typing import Any
from urllib.request import getproxies

import attrs

from ..model import codes
from ..model.failures import LlmError
from .connection import Endpoint, Proxy

_DEFAULT_PORTS = {"http": 80, "https": 443}
_IpNetwork = ipaddress.IPv4Network | ipaddress.IPv6Network


@attrs.frozen
class SocksProxy:
    """A SOCKS proxy, which the own transport does not speak.

    Attributes:
        url: as the environment gives it, credentials included.
    """

    url: str = attrs.field(repr=False)


@attrs.frozen
class _Exception:
    """One entry of NO_PROXY."""

    scheme: str | None
    host: str
    subdomains_only: bool
    subdomains: bool
    port: int | None
    network: _IpNetwork | None

    def covers(self, scheme: str, host: str, port: int | None) -> bool:
        if self.scheme is not None and self.scheme != scheme:
            return False
        if self.port is not None and self.port != port:
            return False
        if self.network is not None:
            address = _address(host)
            return address is not None and address in self.network
        if not self.host:
            return True
        if host == self.host:
            return not self.subdomains_only
        return self.subdomains and host.endswith("." + self.host)


def _address(host: str) -> ipaddress.IPv4Address | ipaddress.IPv6Address | None:
    try:
        return ipaddress.ip_address(host.strip("[]"))
    except ValueError:
        return None


def _exception(entry: str, library: ModuleType) -> _Exception | None:
    """An entry that cannot be understood is ignored, as curl does it."""
    scheme, separator, rest = entry.rpartition("://")
    if "/" in rest or _address(rest) is not None:
        try:
            network = ipaddress.ip_network(rest.replace("[", "").replace("]", ""), strict=False)
        except ValueError:
            return None
        return _Exception(_only(scheme), "", False, False, None, network)
    stripped = rest.removeprefix("*")
    subdomains_only = stripped.startswith(".")
    # With a scheme, only a star speaks of subdomains; without one, every name but localhost does.
    subdomains = rest.startswith("*") if separator else rest.lower() != "localhost"
    try:
        url: Any = library.URL(f"all://{stripped.removeprefix('.')}")
    except library.InvalidURL:
        return None
    return _Exception(_only(scheme), url.host, subdomains_only, subdomains, url.port, None)


def _only(scheme: str) -> str | None:
    return None if scheme in ("", "all") else scheme


class EnvironmentProxies:
    """The proxies of the environment as it is when this is made.

    Raises:
        LlmError: INVALID_CONFIG, if a variable holds no URL of a proxy. The URL is not told: it may hold a
            password.
    """

    def __init__(self, library: ModuleType) -> None:
        found = getproxies()
        self._proxies: dict[str, Proxy | SocksProxy] = {}
        self._exceptions: list[_Exception] = []
        for scheme in ("http", "https", "all"):
            if found.get(scheme):
                self._proxies[scheme] = _proxy(found[scheme], f"{scheme.upper()}_PROXY", library)
        for entry in map(str.strip, found.get("no", "").split(",")):
            if entry == "*":
                self._proxies.clear()
            elif entry and (exception := _exception(entry, library)) is not None:
                self._exceptions.append(exception)

    def proxy_for(self, scheme: str, host: str, port: int | None) -> Proxy | SocksProxy | None:
        """The proxy for a URL; None: connect directly.

        Args:
            port: as the URL tells it; None where it is the scheme's own.
        """
        proxy = self._proxies.get(scheme) or self._proxies.get("all")
        if proxy is None or any(exception.covers(scheme, host, port) for exception in self._exceptions):
            return None
        return proxy


def _proxy(text: str, variable: str, library: ModuleType) -> Proxy | SocksProxy:
    text = text if "://" in text else f"http://{text}"
    try:
        url: Any = library.URL(text)
    except library.InvalidURL:
        url = None
    if url is not None and url.host and url.scheme in ("socks5", "socks5h"):
        return SocksProxy(text)
    if url is None or not url.host or url.scheme not in _DEFAULT_PORTS:
        raise LlmError(
            f"{variable} does not hold the URL of an http, https or socks5 proxy", codes.INVALID_CONFIG
        )
    endpoint = Endpoint(url.scheme, url.raw_host.decode("ascii"), url.port or _DEFAULT_PORTS[url.scheme])
    authorization = Proxy.basic(url.username, url.password) if url.username or url.password else None
    return Proxy(endpoint, authorization)
