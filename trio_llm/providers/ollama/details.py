"""What a server tells of each of its models (Ollama docs, "Show model details")."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from typing import Any, Final

import attrs
import trio

from ...model.catalogue import DiscoveredModel
from ...model.failures import LlmError
from ...protocol.json_text import decode_lenient, encode_body
from ...transport.client import HttpClient
from ..model_list import LIST_LIMIT, capacity

AT_ONCE: Final = 8
"""How many models are asked after at once."""

SECONDS: Final = 10.0
"""How long the whole may take; models that were not told of by then are listed by their names alone."""

_NUM_CTX: Final = re.compile(r"^num_ctx\s+(\d+)\s*$", re.MULTILINE)


async def shown(
    client: HttpClient, url: str, headers: Sequence[tuple[str, str]], models: Iterable[DiscoveredModel]
) -> list[DiscoveredModel]:
    """The models with what the server tells of them, without those that it says do not chat.

    Never fails for what the server answers: one without this question (404, 405), or with a model that it
    cannot open, leaves the model as it is. Cancellation closes the connections.
    """
    found: list[DiscoveredModel | None] = list(models)
    waiting = iter(list(enumerate(found)))

    async def ask() -> None:
        for index, model in waiting:
            assert model is not None  # none has been left out of what waits
            try:
                found[index] = _told(model, await _show(client, url, headers, model.id))
            except LlmError:
                pass

    with trio.move_on_after(SECONDS):
        async with trio.open_nursery() as nursery:
            for _ in range(min(AT_ONCE, len(found))):
                nursery.start_soon(ask)
    return [model for model in found if model is not None]


async def _show(client: HttpClient, url: str, headers: Sequence[tuple[str, str]], model: str) -> Any:
    """The answer; None where it is none."""
    typed = [("content-type", "application/json"), *headers]
    async with client.request("POST", url, headers=typed, content=encode_body({"model": model})) as response:
        body = await response.read(LIST_LIMIT + 1)
        return decode_lenient(body) if response.status == 200 and len(body) <= LIST_LIMIT else None


def _told(model: DiscoveredModel, answer: Any) -> DiscoveredModel | None:
    """A model with what an answer says; None where it says that the model does not chat."""
    if not isinstance(answer, dict):
        return model
    window = _window(answer)
    abilities = answer.get("capabilities")
    if not isinstance(abilities, list):  # servers before 0.6.4
        return attrs.evolve(model, context_window=window)
    if "completion" not in abilities:
        return None
    return attrs.evolve(
        model,
        context_window=window,
        input_modalities=("text", "image") if "vision" in abilities else ("text",),
        tools="tools" in abilities,
        reasoning="thinking" in abilities,
    )


def _window(answer: dict[str, Any]) -> int | None:
    info = answer.get("model_info")
    most = None
    if isinstance(info, dict):
        most = capacity(info.get(f"{info.get('general.architecture')}.context_length"))
    parameters = answer.get("parameters")
    given = _NUM_CTX.search(parameters) if isinstance(parameters, str) else None
    return most if given is None else min(filter(None, (capacity(int(given[1])), most)), default=None)
