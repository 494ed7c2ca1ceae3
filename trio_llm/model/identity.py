"""Who sends the requests. Attribution can be replaced, not switched off."""

from __future__ import annotations

from importlib import metadata
from typing import Any

import attrs


def _token(instance: object, attribute: attrs.Attribute[Any], value: Any) -> None:
    if value is None:
        return
    if not value or any(not "!" <= character <= "~" for character in value):
        raise ValueError(f"{attribute.name} is printable ASCII without spaces, not {value!r}")


def _version() -> str:
    try:
        return metadata.version("trio-llm")
    except metadata.PackageNotFoundError:  # run from a source tree that was never installed
        return "0"


@attrs.frozen
class AppIdentity:
    """The product a request is sent by.

    Attributes:
        product: one HTTP token (RFC 9110 section 10.1.5).
        version: one HTTP token; by default this package's version from its metadata.
        url: where to read about the product.

    Raises:
        ValueError: a part is empty or not printable ASCII without spaces.
    """

    product: str = attrs.field(default="trio-llm", validator=_token)
    version: str = attrs.field(factory=_version, validator=_token)
    url: str | None = attrs.field(default=None, validator=_token)


APP_IDENTITY = AppIdentity()
"""The identity used where none is given."""


def attribution_headers(identity: AppIdentity = APP_IDENTITY) -> dict[str, str]:
    """``user-agent: product/version (+url)`` and nothing else."""
    url = "" if identity.url is None else f" (+{identity.url})"
    return {"user-agent": f"{identity.product}/{identity.version}{url}"}
