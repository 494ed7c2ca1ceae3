"""The HTTP client handed to SDKs: their own class, with a pool that is no bottleneck."""

from __future__ import annotations

import importlib
import ssl
from collections.abc import Callable
from typing import Any


def unlimited_client(client_type: Callable[..., Any], ca_file: str) -> Any:
    """A client of the SDK's own type, which is httpx's or httpx2's.

    Args:
        client_type: the SDK's ``DefaultAsyncHttpxClient``.
    """
    base = next(kind for kind in client_type.__mro__ if kind.__name__ == "AsyncClient")
    http = importlib.import_module(base.__module__.partition(".")[0])
    limits = http.Limits(max_connections=None, max_keepalive_connections=None)
    return client_type(limits=limits, verify=ssl.create_default_context(cafile=ca_file), trust_env=False)
