"""The grammar as a layer: proper streams pass untouched, a violation is an exception of receive()."""

from collections.abc import AsyncGenerator, Sequence

import pytest
import trio
from hypothesis import given
from hypothesis import strategies as st

from trio_llm.middleware.grammar import check_grammar
from trio_llm.model import codes
from trio_llm.model.chunks import (
    Aborted,
    BlockEnd,
    BlockStart,
    Error,
    Finish,
    MaxTokens,
    Stop,
    StreamChunk,
    TextDelta,
    ToolCallDelta,
    Usage,
)
from trio_llm.model.content import TextBlock, ToolCallBlock
from trio_llm.model.failures import LlmError, LlmFailure
from trio_llm.model.identifiers import CallId
from trio_llm.model.requests import GenerateOptions
from trio_llm.protocol.grammar import Grammar
from trio_llm.runtime.runtime import LlmRuntime
from trio_llm.streaming.lanes import Next
from trio_llm.testing.scripted import DEFAULT_USAGE, Script, ScriptedAdapter, text_script
from trio_llm.testing.wire_script import Hold

from ..runtime.support import request
from ..strategies import CHUNKS, responses


async def play(script: Script) -> tuple[list[StreamChunk], LlmError | None]:
    """What a checked stream gives, and what it raises."""
    seen: list[StreamChunk] = []
    async with LlmRuntime() as runtime:
        adapter = ScriptedAdapter([script])
        runtime.register_adapter("one", adapter)
        runtime.use(check_grammar)
        async with runtime.stream(request()) as stream:
            try:
                while True:
                    seen.append(await stream.receive())
            except trio.EndOfChannel:
                return seen, None
            except LlmError as error:
                await adapter.calls[0].ended.wait()  # the attempt is dropped
                return seen, error


CALL = ToolCallBlock(CallId("c"), "f", "{}")
PROPER = {
    "text": text_script("Hel", "lo"),
    "reasoning and calls": text_script("x", reasoning=["hm"], tool_calls=[CALL]),
    "an error with an open block": [BlockStart(0, "text"), Finish(Error(LlmFailure("no", codes.SERVER)))],
    "an abort with an open block": [BlockStart(0, "text"), Finish(Aborted(LlmFailure("x", codes.ABORTED)))],
    "a cut call": [BlockStart(0, "tool-call"), ToolCallDelta(0, CallId("c"), "f", "{"), Finish(MaxTokens())],
}


@pytest.mark.parametrize("script", PROPER.values(), ids=PROPER)
async def test_G01_proper_streams_pass_as_they_are(script: Sequence[StreamChunk]) -> None:
    seen, error = await play(script)
    assert error is None
    assert all(one is other for one, other in zip(seen[:-1], script[:-1], strict=True))
    assert seen[-1] == script[-1]


IMPROPER: dict[str, tuple[list[StreamChunk], StreamChunk, str]] = {
    "a delta of nothing": ([BlockStart(0, "text")], TextDelta(1, "x"), "block 1, which is not open"),
    "two usages": ([Usage(DEFAULT_USAGE)], Usage(DEFAULT_USAGE), "a second usage"),
    "an open block at the end": ([BlockStart(0, "text")], Finish(Stop()), "while block 0"),
    "the wrong end": ([BlockStart(0, "reasoning")], BlockEnd(0, TextBlock("x")), "which is 'reasoning'"),
}


@pytest.mark.parametrize(("proper", "improper", "said"), IMPROPER.values(), ids=IMPROPER)
async def test_G01_a_violation_is_raised_by_receive(
    proper: list[StreamChunk], improper: StreamChunk, said: str
) -> None:
    seen, error = await play([*proper, improper, Hold()])
    assert seen == proper  # what came before is shown, the chunk itself is not
    assert error is not None
    assert error.code == codes.INVALID_CHUNK_SEQUENCE
    assert said in error.failure.message
    assert error.__notes__ == ["in the stream of model 'm' from provider 'one'"]


async def test_G01_generate_raises_it_too() -> None:
    async with LlmRuntime() as runtime:
        runtime.register_adapter("one", ScriptedAdapter([[TextDelta(0, "x")]]))
        runtime.use(check_grammar)
        with pytest.raises(LlmError, match="not open"):
            await runtime.generate(request())


@pytest.mark.parametrize("script", [[TextDelta(0, "x")], [BlockStart(0, "text"), Finish(Stop())]])
async def test_G01_without_the_layer_nobody_minds(script: Sequence[StreamChunk]) -> None:
    async with LlmRuntime() as runtime:
        runtime.register_adapter("one", ScriptedAdapter([script]))
        async with runtime.stream(request()) as stream:
            assert await stream.receive() == script[0]


async def test_G01_a_layer_below_that_forgets_the_finish() -> None:
    async def forgetful(options: GenerateOptions, next: Next) -> AsyncGenerator[StreamChunk, None]:
        async for chunk in next(options):
            if not isinstance(chunk, Finish):
                yield chunk

    async with LlmRuntime() as runtime:
        runtime.register_adapter("one", ScriptedAdapter([text_script("x")]))
        runtime.use(check_grammar)
        runtime.use(forgetful)
        with pytest.raises(LlmError, match="without a finish") as caught:
            await runtime.generate(request())
    assert caught.value.__notes__ == ["in the stream of model 'm' from provider 'one'"]


OPEN: Script = [BlockStart(0, "text"), TextDelta(0, "x"), Hold()]


async def test_G01_an_abandoned_stream_has_nothing_to_answer_for() -> None:
    async with LlmRuntime() as runtime:
        adapter = ScriptedAdapter([OPEN])
        runtime.register_adapter("one", adapter)
        runtime.use(check_grammar)
        async with runtime.stream(request()) as stream:
            async for chunk in stream:
                if isinstance(chunk, TextDelta):
                    break
        assert isinstance(stream.finish, Aborted)
        assert adapter.calls[0].outcome == "cancelled"


async def test_G01_an_aborted_stream_ends_with_its_finish() -> None:
    async with LlmRuntime() as runtime:
        runtime.register_adapter("one", ScriptedAdapter([OPEN]))
        runtime.use(check_grammar)
        async with runtime.stream(request()) as stream:
            kinds = []
            async for chunk in stream:
                kinds.append(type(chunk))
                if isinstance(chunk, TextDelta):
                    stream.abort("enough")
    assert kinds == [BlockStart, TextDelta, Finish]
    assert isinstance(stream.finish, Aborted)


async def test_G01_a_cancelled_stream_is_just_cancelled() -> None:
    async with LlmRuntime() as runtime:
        runtime.register_adapter("one", ScriptedAdapter([OPEN]))
        runtime.use(check_grammar)
        with trio.CancelScope() as scope:
            async with runtime.stream(request()) as stream:
                async for chunk in stream:
                    if isinstance(chunk, TextDelta):
                        scope.cancel()
    assert scope.cancelled_caught


async def test_G01_an_error_that_is_raised_becomes_a_proper_finish() -> None:
    seen, error = await play([BlockStart(0, "text"), LlmError("busy", codes.SERVER)])
    assert error is None
    assert isinstance(seen[-1], Finish)
    assert isinstance(seen[-1].reason, Error)


FAILURE = LlmFailure("no", codes.SERVER)


def verdict(chunks: Sequence[StreamChunk]) -> tuple[list[StreamChunk], str | None]:
    """What the grammar itself says of a sequence."""
    grammar = Grammar()
    seen: list[StreamChunk] = []
    try:
        for chunk in chunks:
            grammar.check(chunk)
            seen.append(chunk)
            if isinstance(chunk, Finish):
                break
    except LlmError as error:
        return seen, error.failure.message
    return seen, None


@given(chunks=st.lists(CHUNKS, max_size=8) | responses())
def test_G01_the_layer_says_what_the_grammar_says(chunks: list[StreamChunk]) -> None:
    ends = [place for place, chunk in enumerate(chunks) if isinstance(chunk, Finish)]
    chunks = [*chunks[: ends[0]], chunks[ends[0]]] if ends else [*chunks, Finish(Error(FAILURE))]
    seen, error = trio.run(play, chunks)
    expected, said = verdict(chunks)
    assert [c for c in seen if not isinstance(c, Finish)] == [
        c for c in expected if not isinstance(c, Finish)
    ]
    assert (error and error.failure.message) == said
