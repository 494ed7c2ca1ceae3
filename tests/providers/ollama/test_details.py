"""What a server tells of each of its models, and servers that tell nothing."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import attrs
import pytest
import trio
from trio.testing import MockClock

from trio_llm.model.catalogue import DiscoveredModel, ModelDiscoveryRequest
from trio_llm.providers.model_list import LIST_LIMIT
from trio_llm.providers.ollama import OllamaAdapter, OllamaConfig
from trio_llm.providers.ollama.details import AT_ONCE, SECONDS
from trio_llm.testing.wire_script import Cut, Hold, Pause, Response, json_response
from trio_llm.testing.wire_server import WireRequest, WireServer

QWEN = {
    "parameters": 'stop "<|im_end|>"\ntemperature 0.6',
    "model_info": {"general.architecture": "qwen3", "qwen3.context_length": 40_960, "a.context_length": 1},
    "capabilities": ["completion", "tools", "thinking"],
}


def serving(names: list[str], show: Callable[[str], Response]) -> Callable[[WireRequest], Response]:
    """A server that has models of these names."""

    def answer(request: WireRequest) -> Response:
        if request.method == "GET":
            return json_response({"models": [{"name": name, "model": name} for name in names]})
        assert (request.method, request.target) == ("POST", "/api/show")
        assert request.header("content-type") == "application/json"
        return show(request.json()["model"])

    return answer


async def ask(names: list[str], show: Callable[[str], Response], **config: Any) -> list[DiscoveredModel]:
    async with (
        WireServer(serving(names, show)) as server,
        OllamaAdapter(OllamaConfig(base_url=server.base_url, **config)) as adapter,
    ):
        found = await adapter.discover(ModelDiscoveryRequest(provider="p"))
        assert all(request.header("authorization") == "Bearer sk-1" for request in server.requests)
    return found


async def told(answer: Any) -> DiscoveredModel | None:
    """What becomes of one model named ``m``."""
    shown = answer if isinstance(answer, Response) else json_response(answer)
    found = await ask(["m"], lambda name: shown, api_key="sk-1")
    assert len(found) <= 1
    return found[0] if found else None


def model(window: int | None = None, *modalities: str, **rest: Any) -> DiscoveredModel:
    return DiscoveredModel("m", "m", window, input_modalities=modalities or None, **rest)


@pytest.mark.parametrize(
    ("answer", "expected"),
    [
        (QWEN, model(40_960, "text", tools=True, reasoning=True)),
        (
            QWEN | {"capabilities": ["completion", "vision"]},
            model(40_960, "text", "image", tools=False, reasoning=False),
        ),
        (
            QWEN | {"parameters": "num_ctx                        8192\nstop x", "capabilities": None},
            model(8192),
        ),
        (QWEN | {"parameters": "num_ctx 80000", "capabilities": None}, model(40_960)),
        ({"parameters": "num_ctx 8192"}, model(8192)),
        ({"parameters": "num_ctx 0"}, model()),
        (
            {"parameters": "xnum_ctx 8192\nnum_ctx 8192x", "model_info": {"general.architecture": "a"}},
            model(),
        ),
        ({"parameters": 3, "model_info": {"x.context_length": 5}}, model()),
        ({"model_info": {"general.architecture": "a", "a.context_length": "8k"}}, model()),
        ({"details": {}, "model_info": None}, model()),
        (QWEN | {"capabilities": ["embedding"]}, None),
        ([QWEN], model()),
    ],
)
async def test_P10_what_a_model_can_is_taken_as_far_as_it_makes_sense(
    answer: Any, expected: DiscoveredModel | None
) -> None:
    assert await told(answer) == expected


@pytest.mark.parametrize(
    "answer",
    [
        json_response({"error": "not found"}, 404),
        json_response({"error": "what?"}, 405),
        json_response({"error": "broken model"}, 500),
        Response(200, {}, b"<html>"),
        Response(200, {}, [b"{", Cut()]),
        Response(200, {}, [b" " * (LIST_LIMIT + 1)]),
    ],
)
async def test_P10_a_model_of_which_the_server_tells_nothing_is_listed_by_its_name(answer: Response) -> None:
    assert await told(answer) == model()


async def test_P10_models_keep_their_order_and_few_are_asked_after_at_once(autojump_clock: MockClock) -> None:
    names = [f"m{n}" for n in range(3 * AT_ONCE)]
    pauses = dict.fromkeys(names, 0.01) | {"m0": 0.1}

    def show(name: str) -> Response:
        return attrs.evolve(json_response(QWEN), before=[Pause(pauses[name])])

    async with (
        WireServer(serving(names, show)) as server,
        OllamaAdapter(OllamaConfig(base_url=server.base_url)) as adapter,
    ):
        found = await adapter.discover(ModelDiscoveryRequest(provider="p"))
        assert len(server.connections) == AT_ONCE
    assert [(entry.id, entry.context_window) for entry in found] == [(name, 40_960) for name in names]


async def test_P10_a_server_that_does_not_answer_costs_a_bounded_time(autojump_clock: MockClock) -> None:
    before = trio.current_time()
    found = await ask(
        ["quick", "stuck"],
        lambda name: Response(200, {}, [Hold()]) if name == "stuck" else json_response(QWEN),
        api_key="sk-1",
    )
    assert [(entry.id, entry.context_window) for entry in found] == [("quick", 40_960), ("stuck", None)]
    assert trio.current_time() - before == pytest.approx(SECONDS)


async def test_P10_cancelling_closes_every_connection(autojump_clock: MockClock) -> None:
    async with (
        WireServer(serving(["a", "b"], lambda name: Response(200, {}, [Hold()]))) as server,
        OllamaAdapter(OllamaConfig(base_url=server.base_url)) as adapter,
    ):
        with trio.move_on_after(1) as scope:
            await adapter.discover(ModelDiscoveryRequest(provider="p"))
        assert scope.cancelled_caught
        with trio.fail_after(5):
            for connection in server.connections:
                await connection.gone.wait()


async def test_P05_another_endpoint_is_asked_without_the_configured_key() -> None:
    async with (
        WireServer(serving(["a"], lambda name: json_response(QWEN))) as server,
        OllamaAdapter(OllamaConfig(api_key="sk-1", headers={"x-key": "sk-1"})) as adapter,
    ):
        found = await adapter.discover(ModelDiscoveryRequest(base_url=server.base_url))
        assert [entry.context_window for entry in found] == [40_960]
        for request in server.requests:
            assert (request.header("authorization"), request.header("x-key")) == (None, None)
