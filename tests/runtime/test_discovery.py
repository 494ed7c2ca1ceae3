"""Asking endpoints for their models."""

from __future__ import annotations

import math
from collections.abc import Iterable

import pytest
import trio
import trio.testing

from trio_llm.model import codes
from trio_llm.model.catalogue import (
    DiscoveredModel,
    ModelContext,
    ModelDiscoveryRequest,
    ModelInfo,
    ResolvedModelInfo,
)
from trio_llm.model.failures import LlmError
from trio_llm.model.signal import AbortSignal
from trio_llm.runtime.runtime import LlmRuntime

from .support import answering, raises_code

ENDPOINT = ModelDiscoveryRequest(base_url="http://127.0.0.1/v1")


class Endpoint:
    """Answers with some models, or raises."""

    def __init__(self, answer: Iterable[DiscoveredModel] | Exception = ()) -> None:
        self.answer = answer
        self.asked: list[ModelDiscoveryRequest] = []

    async def __call__(self, request: ModelDiscoveryRequest) -> Iterable[DiscoveredModel]:
        self.asked.append(request)
        await trio.lowlevel.checkpoint()
        if isinstance(self.answer, Exception):
            raise self.answer
        return self.answer


async def test_T05_one_discovery_for_each_namespace() -> None:
    runtime = LlmRuntime()
    endpoint = Endpoint([DiscoveredModel("a")])
    handle = runtime.register_model_discovery("ns", endpoint)
    with raises_code(codes.DUPLICATE_DISCOVERY):
        runtime.register_model_discovery("ns", Endpoint())
    assert await runtime.discover_models("ns", ENDPOINT) == (DiscoveredModel("a"),)
    handle.close()
    with raises_code(codes.NO_DISCOVERY):
        await runtime.discover_models("ns", ENDPOINT)
    with runtime.register_model_discovery("ns", endpoint):
        assert await runtime.discover_models("ns", ENDPOINT) == (DiscoveredModel("a"),)


@pytest.mark.parametrize("namespace", ["", None])
def test_T05_an_empty_namespace_is_INVALID_DISCOVERY(namespace: str) -> None:
    with raises_code(codes.INVALID_DISCOVERY):
        LlmRuntime().register_model_discovery(namespace, Endpoint())


async def test_T05_neither_provider_nor_base_url_is_INVALID_DISCOVERY() -> None:
    runtime = LlmRuntime()
    runtime.register_model_discovery("ns", Endpoint())
    with raises_code(codes.INVALID_DISCOVERY):
        await runtime.discover_models("ns", ModelDiscoveryRequest(api_key="k"))


async def test_T05_empty_and_duplicate_ids_are_dropped_in_endpoint_order() -> None:
    runtime = LlmRuntime()
    listed = [
        DiscoveredModel("b", "first"),
        DiscoveredModel(""),
        DiscoveredModel("a", context_window=5),
        DiscoveredModel("b", "second", 9, 9),
    ]
    runtime.register_model_discovery("ns", Endpoint(listed))
    found = await runtime.discover_models("ns", ENDPOINT)
    assert found == (DiscoveredModel("b", "first"), DiscoveredModel("a", context_window=5))


async def test_T05_a_route_whose_adapter_knows_its_models_answers_without_network() -> None:
    runtime = LlmRuntime()
    models = [
        ModelInfo("one", "plain", "Plain"),
        ResolvedModelInfo("one", "full", "Full", context=ModelContext(100), default_max_tokens=10),
        ResolvedModelInfo("one", "most", "Most", None, ["text"], default_max_tokens=10, max_output_tokens=20),
    ]
    runtime.register_adapter(["one"], answering(models=models))
    runtime.register_adapter(["two"], answering())
    endpoint = Endpoint([DiscoveredModel("asked")])
    runtime.register_model_discovery("ns", endpoint)
    known = await runtime.discover_models("ns", ModelDiscoveryRequest(provider="one"))
    assert known == (
        DiscoveredModel("plain", "Plain"),
        DiscoveredModel("full", "Full", 100, 10),
        DiscoveredModel("most", "Most", None, 20, ["text"]),
    )
    assert endpoint.asked == []
    for asked in (
        ModelDiscoveryRequest(provider="two"),
        ModelDiscoveryRequest(provider="nobody"),
        ModelDiscoveryRequest(provider="one", base_url="http://127.0.0.1"),
    ):
        assert await runtime.discover_models("ns", asked) == (DiscoveredModel("asked"),)


async def test_T05_the_key_is_handed_on_and_not_stored() -> None:
    runtime, endpoint = LlmRuntime(), Endpoint()
    runtime.register_model_discovery("ns", endpoint)
    asked = ModelDiscoveryRequest(base_url="http://127.0.0.1", api_key="secret-key")
    await runtime.discover_models("ns", asked)
    assert endpoint.asked[0] is asked
    assert "secret-key" not in repr(asked)
    assert "secret-key" not in repr(vars(runtime)) + repr(vars(runtime._discovery))


async def test_T05_the_signal_is_honoured_and_its_reason_kept(autojump_clock: trio.testing.MockClock) -> None:
    runtime, signal = LlmRuntime(), AbortSignal()

    async def hang(request: ModelDiscoveryRequest) -> Iterable[DiscoveredModel]:
        await trio.sleep(math.inf)
        return ()

    runtime.register_model_discovery("ns", hang)
    asked = ModelDiscoveryRequest(base_url="http://127.0.0.1", signal=signal)
    async with trio.open_nursery() as nursery:

        async def discover() -> None:
            with pytest.raises(LlmError) as caught:
                await runtime.discover_models("ns", asked)
            assert (caught.value.code, caught.value.failure.message) == (codes.ABORTED, "changed my mind")

        nursery.start_soon(discover)
        await trio.testing.wait_all_tasks_blocked()
        signal.abort("changed my mind")
    with raises_code(codes.ABORTED):
        await runtime.discover_models("ns", asked)


async def test_T05_failures_after_an_abort_are_the_abort() -> None:
    runtime, signal = LlmRuntime(), AbortSignal()

    async def abort_and_fail(request: ModelDiscoveryRequest) -> Iterable[DiscoveredModel]:
        signal.abort("enough")
        raise ValueError("broke on the way")

    runtime.register_model_discovery("ns", abort_and_fail)
    with pytest.raises(LlmError) as caught:
        await runtime.discover_models("ns", ModelDiscoveryRequest(base_url="http://x", signal=signal))
    assert caught.value.code == codes.ABORTED
    assert "broke on the way" in str(caught.value.__cause__)


async def test_T05_an_answer_after_an_abort_counts_no_more() -> None:
    runtime, signal = LlmRuntime(), AbortSignal()

    async def abort_and_answer(request: ModelDiscoveryRequest) -> Iterable[DiscoveredModel]:
        signal.abort("enough")
        return [DiscoveredModel("late")]

    runtime.register_model_discovery("ns", abort_and_answer)
    with raises_code(codes.ABORTED):
        await runtime.discover_models("ns", ModelDiscoveryRequest(base_url="http://x", signal=signal))


@pytest.mark.parametrize(
    ("raised", "code"),
    [
        (ValueError("no rows"), codes.DISCOVERY_FAILED),
        (LlmError("not this wire", codes.DISCOVERY_UNSUPPORTED), codes.DISCOVERY_UNSUPPORTED),
        (LlmError("bad key", codes.AUTH, status=401), codes.AUTH),
    ],
)
async def test_P10_discovery_failures_keep_their_code(raised: Exception, code: str) -> None:
    runtime = LlmRuntime()
    runtime.register_model_discovery("ns", Endpoint(raised))
    with raises_code(code):
        await runtime.discover_models("ns", ModelDiscoveryRequest(base_url="http://x", signal=AbortSignal()))
