"""What adapters say of models, and the defaults that follow from it."""

from __future__ import annotations

import math
from typing import Any

import pytest
import trio
import trio.testing

from trio_llm.model import codes
from trio_llm.model.catalogue import ModelContext, ModelReasoning, ReasoningEffort, ResolvedModelInfo
from trio_llm.model.failures import LlmError
from trio_llm.model.identifiers import ReasoningEffortId
from trio_llm.model.requests import LlmCallConfig
from trio_llm.model.signal import AbortSignal
from trio_llm.runtime.runtime import LlmRuntime
from trio_llm.testing.scripted import ScriptedAdapter

from .support import Resolving, answering, model_info, raises_code, request


def reasoning(*ids: str, default: str | None = None) -> ModelReasoning:
    efforts = [ReasoningEffort(ReasoningEffortId(id), id.title()) for id in ids]
    return ModelReasoning(efforts, None if default is None else ReasoningEffortId(default))


async def resolve(info: object) -> ResolvedModelInfo:
    async with LlmRuntime() as runtime:
        runtime.register_adapter(["one"], Resolving(info))
        return await runtime.resolve_model_info("one", "m")


@pytest.mark.parametrize(
    "info",
    [
        "m",
        ResolvedModelInfo("other", "m", "M"),
        ResolvedModelInfo(None, "m", "M"),  # type: ignore[arg-type]
        ResolvedModelInfo("one", "other", "M"),
        ResolvedModelInfo("one", "", "M"),
        ResolvedModelInfo("one", "m", ""),
        ResolvedModelInfo("one", "m", None),  # type: ignore[arg-type]
        ResolvedModelInfo("one", "m", "M", description=b"text"),  # type: ignore[arg-type]
        ResolvedModelInfo("one", "m", "M", input_modalities=("text", "")),
    ],
)
async def test_L11_INVALID_MODEL_INFO(info: object) -> None:
    with raises_code(codes.INVALID_MODEL_INFO):
        await resolve(info)


@pytest.mark.parametrize("window", [0, -1, 1.5, math.nan, True, 2**53])
async def test_L11_INVALID_MODEL_CONTEXT(window: Any) -> None:
    with raises_code(codes.INVALID_MODEL_CONTEXT):
        await resolve(model_info(context=ModelContext(window)))


async def test_L11_a_context_that_is_none_is_INVALID_MODEL_CONTEXT() -> None:
    with raises_code(codes.INVALID_MODEL_CONTEXT):
        await resolve(model_info(context=100))


@pytest.mark.parametrize("limit", [0, 1.5, -3, 2**53])
async def test_L11_INVALID_MODEL_MAX_TOKENS(limit: Any) -> None:
    with raises_code(codes.INVALID_MODEL_MAX_TOKENS):
        await resolve(model_info(default_max_tokens=limit))
    with raises_code(codes.INVALID_MODEL_MAX_TOKENS):
        await resolve(model_info(max_output_tokens=limit))


@pytest.mark.parametrize(
    "bad",
    [
        "high",
        reasoning(),
        reasoning(""),
        reasoning("low", "low"),
        reasoning("low", default="high"),
        ModelReasoning([ReasoningEffort(ReasoningEffortId("low"), "")]),
        ModelReasoning([ReasoningEffort(ReasoningEffortId("low"), "Low", description=3)]),  # type: ignore[arg-type]
        ModelReasoning(["low"]),  # type: ignore[list-item]
    ],
)
async def test_L11_INVALID_MODEL_REASONING(bad: object) -> None:
    with raises_code(codes.INVALID_MODEL_REASONING):
        await resolve(model_info(reasoning=bad))


async def test_L11_the_largest_counts_are_valid() -> None:
    info = model_info(
        context=ModelContext(2**53 - 1),
        default_max_tokens=2**53 - 1,
        reasoning=reasoning("low", "high", default="low"),
    )
    assert await resolve(info) is info


async def test_L12_modalities_survive_verbatim_and_absent_means_unknown() -> None:
    assert (await resolve(model_info(input_modalities=["smell", "text"]))).input_modalities == (
        "smell",
        "text",
    )
    assert (await resolve(model_info(input_modalities=()))).input_modalities == ()
    assert (await resolve(model_info())).input_modalities is None


async def test_L10_a_model_nobody_knows_is_named_by_its_id() -> None:
    assert await resolve(None) == ResolvedModelInfo("one", "m", "m")


async def test_L13_the_same_object_where_nothing_materialises() -> None:
    async with LlmRuntime() as runtime:
        adapter = Resolving(None)
        runtime.register_adapter(["one"], adapter)
        for config in (LlmCallConfig(provider="one", model="m"), request()):
            assert await runtime.resolve_call_config(config) is config
        adapter.info = model_info(default_max_tokens=9, reasoning=reasoning("low", "high", default="low"))
        explicit = request(max_tokens=5, reasoning_effort="high")
        assert await runtime.resolve_call_config(explicit) is explicit


async def test_L13_defaults_fill_what_is_absent_and_explicit_values_win() -> None:
    async with LlmRuntime() as runtime:
        info = model_info(default_max_tokens=9, reasoning=reasoning("low", "high", default="low"))
        runtime.register_adapter(["one"], Resolving(info))
        filled = await runtime.resolve_call_config(LlmCallConfig(provider="one", model="m"))
        assert (filled.max_tokens, filled.reasoning_effort) == (9, "low")
        mixed = await runtime.resolve_call_config(request(max_tokens=3))
        assert (mixed.max_tokens, mixed.reasoning_effort) == (3, "low")


@pytest.mark.parametrize("info", [None, model_info(), model_info(reasoning=reasoning("low", "high"))])
async def test_L13_an_unsupported_effort_is_refused_and_never_clamped(
    info: ResolvedModelInfo | None,
) -> None:
    async with LlmRuntime() as runtime:
        adapter = Resolving(info)
        runtime.register_adapter(["one"], adapter)
        with raises_code(codes.UNSUPPORTED_REASONING_EFFORT):
            await runtime.resolve_call_config(request(reasoning_effort="max"))
        async with runtime.stream(request(reasoning_effort="max")) as stream:
            chunks = [chunk async for chunk in stream]
        assert len(chunks) == 1
        assert adapter.calls == []
        assert stream.finish is not None
        assert stream.finish.failure.code == codes.UNSUPPORTED_REASONING_EFFORT  # type: ignore[union-attr]


async def test_L13_an_absent_default_keeps_the_providers_own() -> None:
    async with LlmRuntime() as runtime:
        runtime.register_adapter(["one"], Resolving(model_info(reasoning=reasoning("low"))))
        config = request()
        assert await runtime.resolve_call_config(config) is config


async def test_L02_look_ups_of_unknown_providers_are_NO_ADAPTER() -> None:
    async with LlmRuntime() as runtime:
        with raises_code(codes.NO_ADAPTER):
            await runtime.resolve_model_info("nobody", "m")
        with raises_code(codes.NO_ADAPTER):
            await runtime.resolve_call_config(request("nobody"))


class Stuck(ScriptedAdapter):
    """Never answers a look-up, and does not look at the signal either."""

    def __init__(self) -> None:
        super().__init__([])
        self.signals: list[AbortSignal | None] = []

    async def resolve_model(
        self, provider: str, model: str, signal: AbortSignal | None = None
    ) -> ResolvedModelInfo | None:
        self.signals.append(signal)
        await trio.sleep(math.inf)
        return None


async def test_L19_an_abort_reaches_the_look_up_and_keeps_its_reason() -> None:
    async with LlmRuntime() as runtime, trio.open_nursery() as nursery:
        adapter, signal = Stuck(), AbortSignal()
        runtime.register_adapter(["one"], adapter)
        failures: list[LlmError] = []

        async def look_up() -> None:
            with pytest.raises(LlmError) as caught:
                await runtime.resolve_model_info("one", "m", signal)
            failures.append(caught.value)

        async def prepare() -> None:
            with pytest.raises(LlmError) as caught:
                await runtime.prepare_call(LlmCallConfig(provider="one", model="m"), signal=signal)
            failures.append(caught.value)

        async def call() -> None:
            async with runtime.stream(request(signal=signal)) as stream:
                async for _ in stream:
                    pass
            assert stream.finish is not None
            failures.append(LlmError.of(stream.finish.failure))  # type: ignore[union-attr]

        nursery.start_soon(look_up)
        nursery.start_soon(prepare)
        nursery.start_soon(call)
        await trio.testing.wait_all_tasks_blocked()
        signal.abort("not needed any more")
    assert [(error.code, error.failure.message) for error in failures] == [
        (codes.ABORTED, "not needed any more")
    ] * 3
    assert adapter.signals == [signal] * 3


async def test_L19_ambient_cancellation_of_a_look_up_is_trios_own() -> None:
    async with LlmRuntime() as runtime:
        runtime.register_adapter(["one"], Stuck())
        with trio.CancelScope() as scope:
            scope.cancel()
            await runtime.resolve_model_info("one", "m", AbortSignal())
        assert scope.cancelled_caught


async def test_look_ups_need_an_open_runtime() -> None:
    runtime = LlmRuntime()
    runtime.register_adapter(["one"], answering())
    with pytest.raises(RuntimeError, match="open runtime"):
        await runtime.resolve_model_info("one", "m")
    with pytest.raises(RuntimeError, match="open runtime"):
        await runtime.prepare_call(request())
    with pytest.raises(RuntimeError, match="open runtime"):
        runtime.stream(request())
