"""Asks an endpoint for the list of its models, as every wire has one."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final
from urllib.parse import quote

import trio

from ..model.catalogue import DiscoveredModel
from ..model.codes import DISCOVERY_FAILED, DISCOVERY_UNSUPPORTED
from ..model.failures import LlmError
from ..protocol.json_text import decode_lenient
from ..transport.client import HttpClient
from ..transport.errors import error_from_response
from ..transport.secrets import kept_secret

LIST_LIMIT: Final = 4 * 1024 * 1024
"""How much of a list is read, in bytes received, all pages together; a longer one is no list of models."""

LIST_SECONDS: Final = 30.0
"""How long a list may take, all pages together."""

_ABSENT: Final = (404, 405, 501)


async def list_remote_models(
    client: HttpClient,
    url: str,
    headers: Sequence[tuple[str, str]],
    read_row: Callable[[dict[str, Any]], DiscoveredModel | None],
    *,
    rows: str,
    bare: bool = False,
    next_page: Callable[[dict[str, Any]], tuple[str, str] | None] = lambda page: None,
    secrets: Sequence[str] = (),
) -> list[DiscoveredModel]:
    """GET ``url`` and the pages that follow, and read their rows. Cancellation closes the connection.

    Args:
        read_row: one row; None for one that cannot be used.
        rows: the name of the member that holds the rows; null there is an empty list (as Go encodes one).
        bare: whether the list may also come by itself.
        next_page: the name and the value of the parameter, to be added to a query that ``url`` has, by which
            the page after this one is asked for; None where it is the last.
        secrets: blacked out where an error repeats one.

    Raises:
        LlmError: DISCOVERY_UNSUPPORTED where there is no such list, else DISCOVERY_FAILED; what the request
            itself amounts to is its cause.
    """
    models: list[DiscoveredModel] = []
    asked: set[str] = set()
    left = LIST_LIMIT
    page: str | None = url
    with kept_secret(secrets), trio.move_on_after(LIST_SECONDS):
        while page is not None:
            if page in asked:
                raise LlmError("the pages of the list of models lead in a circle", DISCOVERY_FAILED)
            asked.add(page)
            answer, received = await _page(client, page, headers, left, secrets)
            left -= received
            found = answer if bare else None
            if isinstance(answer, dict) and (rows in answer or models):  # Google leaves out what is empty
                listed = answer.get(rows)
                found = [] if listed is None else listed
            if not isinstance(found, list):
                raise LlmError("the endpoint's answer is no list of models", DISCOVERY_FAILED)
            models += [
                model for row in found if isinstance(row, dict) and (model := read_row(row)) is not None
            ]
            following = next_page(answer) if isinstance(answer, dict) else None
            page = following and f"{url}&{following[0]}={quote(following[1], safe='')}"
        return models
    raise LlmError(f"the list of models took longer than {LIST_SECONDS:g} seconds", DISCOVERY_FAILED)


async def _page(
    client: HttpClient, url: str, headers: Sequence[tuple[str, str]], limit: int, secrets: Sequence[str]
) -> tuple[Any, int]:
    """One answer, and how many bytes it took."""
    try:
        async with client.request("GET", url, headers=headers) as response:
            body = await response.read(limit + 1)
            status = response.status
            failure = error_from_response(status, response.headers, body[:limit], url=url, secrets=secrets)
        if len(body) > limit:
            raise LlmError(f"it is longer than {LIST_LIMIT} bytes", DISCOVERY_FAILED)
        if not 200 <= status <= 299:
            raise failure
        return decode_lenient(body), len(body)
    except LlmError as error:
        status = error.failure.status or 0
        hint = "; check the API key" if status in (401, 403) else ""
        raise LlmError(
            f"the list of models cannot be had: {error.failure.message}{hint}",
            DISCOVERY_UNSUPPORTED if status in _ABSENT else DISCOVERY_FAILED,
            status=error.failure.status,
            request_id=error.failure.request_id,
        ) from error


def capacity(value: object) -> int | None:
    """A count of tokens as a row has it; None where it is none."""
    return value if type(value) is int and value > 0 else None


def text(value: object) -> str | None:
    """A text as a row has it; None where it is none, or empty."""
    return value if isinstance(value, str) and value else None


def flag(value: object) -> bool | None:
    """Whether a row says yes or no; None where it says neither."""
    return value if isinstance(value, bool) else None
