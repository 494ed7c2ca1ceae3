"""Asks an endpoint for the list of its models, as every wire has one."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final

from ..model.catalogue import DiscoveredModel
from ..model.codes import DISCOVERY_FAILED, DISCOVERY_UNSUPPORTED
from ..model.failures import LlmError
from ..protocol.json_text import decode_lenient
from ..transport.client import HttpClient
from ..transport.errors import error_from_response

LIST_LIMIT: Final = 4 * 1024 * 1024
"""How much of a list is read, in bytes received; one that is longer is no list of models."""

_ABSENT: Final = (404, 405, 501)


async def list_remote_models(
    client: HttpClient,
    url: str,
    headers: Sequence[tuple[str, str]],
    read_row: Callable[[dict[str, Any]], DiscoveredModel | None],
    *,
    rows: str,
    bare: bool = False,
    secrets: Sequence[str] = (),
) -> list[DiscoveredModel]:
    """GET ``url`` and read its rows. Cancellation closes the connection.

    Args:
        read_row: one row; None for one that cannot be used.
        rows: the name of the member that holds the rows; null there is an empty list (as Go encodes one).
        bare: whether the list may also come by itself.
        secrets: blacked out where an error repeats one.

    Raises:
        LlmError: DISCOVERY_UNSUPPORTED where there is no such list, else DISCOVERY_FAILED; what the request
            itself amounts to is its cause.
    """
    try:
        async with client.request("GET", url, headers=headers) as response:
            body = await response.read(LIST_LIMIT + 1)
            status = response.status
            failure = error_from_response(
                status, response.headers, body[:LIST_LIMIT], url=url, secrets=secrets
            )
        if len(body) > LIST_LIMIT:
            raise LlmError(f"it is longer than {LIST_LIMIT} bytes", DISCOVERY_FAILED)
        if not 200 <= status <= 299:
            raise failure
        listed = decode_lenient(body)
    except LlmError as error:
        status = error.failure.status or 0
        hint = "; check the API key" if status in (401, 403) else ""
        raise LlmError(
            f"the list of models cannot be had: {error.failure.message}{hint}",
            DISCOVERY_UNSUPPORTED if status in _ABSENT else DISCOVERY_FAILED,
            status=error.failure.status,
            request_id=error.failure.request_id,
        ) from error
    found = listed if bare else None
    if isinstance(listed, dict) and rows in listed:
        found = [] if listed[rows] is None else listed[rows]
    if not isinstance(found, list):
        raise LlmError("the endpoint's answer is no list of models", DISCOVERY_FAILED)
    return [model for row in found if isinstance(row, dict) and (model := read_row(row)) is not None]


def capacity(value: object) -> int | None:
    """A count of tokens as a row has it; None where it is none."""
    return value if type(value) is int and value > 0 else None


def text(value: object) -> str | None:
    """A text as a row has it; None where it is none, or empty."""
    return value if isinstance(value, str) and value else None
