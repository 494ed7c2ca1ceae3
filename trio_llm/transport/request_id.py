"""Finds the id by which a provider's support staff know a request."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from ..model.identifiers import ProviderRequestId

_OWN: Final = (
    "x-request-id",
    "request-id",
    "x-deepseek-request-id",
    "apim-request-id",
    "x-goog-request-id",
    "x-amzn-requestid",
    "x-ds-trace-id",
)
# The id of the network in front of the provider: better than none, where the body has none either.
_IN_FRONT: Final = ("cf-ray",)


def clean_request_id(value: object) -> ProviderRequestId | None:
    """A request id fit to be kept: printable ASCII, trimmed, at most 256 characters; else None."""
    if not isinstance(value, str):
        return None
    value = value.strip()
    fit = 0 < len(value) <= 256 and value.isascii() and value.isprintable()
    return ProviderRequestId(value) if fit else None


def find_request_id(headers: Mapping[str, str], in_body: str | None = None) -> ProviderRequestId | None:
    """The request id of a response: from the provider's headers, else its body, else its network's header.

    Args:
        headers: names in any case.
        in_body: the id the body names, if it does.
    """
    lower = {name.lower(): value for name, value in headers.items()}
    candidates = (*map(lower.get, _OWN), in_body, *map(lower.get, _IN_FRONT))
    return next((found for value in candidates if (found := clean_request_id(value))), None)
