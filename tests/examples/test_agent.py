"""The example agent: in this process over the demo provider, and as a program of its own."""

import importlib.util
import json
import signal
import subprocess
import sys
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
import trio

from trio_llm.model import codes
from trio_llm.model.chunks import Aborted, Stop, ToolCalls
from trio_llm.model.content import ToolCallBlock, ToolResultBlock, text_of
from trio_llm.model.failures import LlmError
from trio_llm.model.identifiers import CallId
from trio_llm.model.messages import Message
from trio_llm.model.policy import NormalRetry
from trio_llm.providers.deepseek import DeepSeekAdapter, DeepSeekConfig
from trio_llm.runtime.runtime import LlmRuntime
from trio_llm.testing.demo_provider import demo_provider
from trio_llm.testing.scripted import ScriptedAdapter, text_script
from trio_llm.testing.wire_script import Hold

from ..cli.process import environment

PATH = Path(__file__).resolve().parents[2] / "examples" / "agent.py"
PATIENCE = 60
"""Seconds of real time after which a test gives up."""


def load() -> Any:
    spec = importlib.util.spec_from_file_location("example_agent", PATH)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


agent = load()


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """A directory with two files, and a secret beside it."""
    root = tmp_path / "root"
    root.mkdir()
    (root / "a.txt").write_text("alpha")
    (root / "b.txt").write_text("beta")
    (tmp_path / "secret.txt").write_text("secret")
    return root


@asynccontextmanager
async def open_agent(adapter: Any, root: Path, history: Path | None = None) -> AsyncIterator[Any]:
    async with LlmRuntime() as runtime:
        runtime.register_adapter(["deepseek"], adapter)
        yield agent.Agent(runtime, "m", agent.History.load(history), agent.Directory(root))


def results(messages: Sequence[Message]) -> list[tuple[str, bool]]:
    """Text and failure of every tool result."""
    return [
        (text_of(block.content), block.is_error)
        for message in messages
        for block in message.content
        if isinstance(block, ToolResultBlock)
    ]


BOTH = 'list_files {} and read_file {"path": "b.txt"}'


async def test_two_tools_in_one_turn(root: Path, capsys: pytest.CaptureFixture[str]) -> None:
    async with demo_provider(pause=0) as server:
        adapter = DeepSeekAdapter(DeepSeekConfig(base_url=server.base_url, api_key="any"))
        async with open_agent(adapter, root) as asked:
            assert isinstance(await asked.ask(BOTH), Stop)
    messages = asked.history.messages
    assert [message.role for message in messages] == ["user", "assistant", "user", "user", "assistant"]
    assert results(messages) == [("a.txt\nb.txt", False), ("beta", False)]
    assert text_of(messages[-1].content) == "The tool answered: a.txt\nb.txt\nbeta"
    shown = capsys.readouterr()
    assert shown.out == "The tool answered: a.txt\nb.txt\nbeta\n"
    assert shown.err == '[list_files {}]\n[read_file {"path": "b.txt"}]\n'
    again = server.requests[1].json()["messages"]
    assert [message["role"] for message in again] == ["system", "user", "assistant", "tool", "tool"]


async def test_history_is_resumed(root: Path, tmp_path: Path) -> None:
    path = tmp_path / "talk.jsonl"
    async with demo_provider(pause=0) as server:
        config = DeepSeekConfig(base_url=server.base_url, api_key="any")
        async with open_agent(DeepSeekAdapter(config), root, path) as first:
            await first.ask(BOTH)
        async with open_agent(DeepSeekAdapter(config), root, path) as second:
            assert second.history.messages == first.history.messages
            await second.ask("count to 2")
        async with open_agent(DeepSeekAdapter(config), root, path) as third:
            assert third.history.messages == second.history.messages
    assert len(path.read_text().splitlines()) == 7
    sent = server.requests[-1].json()["messages"]
    assert [message["role"] for message in sent] == [
        *("system", "user", "assistant", "tool", "tool", "assistant", "user"),
    ]


def call(name: str, arguments: str, id: str = "c") -> ToolCallBlock:
    return ToolCallBlock(CallId(id), name, arguments)


@pytest.mark.parametrize(
    ("name", "arguments", "said"),
    [
        ("read_file", '{"path": "../secret.txt"}', "PermissionError: ../secret.txt is outside"),
        ("read_file", '{"path": "none"}', "FileNotFoundError: "),
        ("read_file", "{", "JSONDecodeError: "),
        ("read_file", "[]", "TypeError: "),
        ("read_file", "", "KeyError: 'path'"),
        ("launch", "{}", "ValueError: there is no tool 'launch'"),
    ],
)
async def test_a_tool_that_fails_is_told(root: Path, name: str, arguments: str, said: str) -> None:
    adapter = ScriptedAdapter([text_script(tool_calls=[call(name, arguments)]), text_script("oh")])
    async with open_agent(adapter, root) as asked:
        assert isinstance(await asked.ask("x"), Stop)
    ((text, failed),) = results(adapter.calls[1].options.messages)
    assert failed
    assert text.startswith(said)


async def test_retries_send_the_same_and_say_so(
    root: Path, capsys: pytest.CaptureFixture[str], autojump_clock: trio.testing.MockClock
) -> None:
    adapter = ScriptedAdapter(
        [[*text_script("Hal")[:2], LlmError("busy", codes.SERVER)], text_script("Hello")]
    )
    async with open_agent(adapter, root) as asked:
        assert isinstance(await asked.ask("x"), Stop)
    assert [text_of(message.content) for message in asked.history.messages] == ["x", "Hello"]
    assert adapter.calls[0].options == adapter.calls[1].options
    assert "[SERVER: busy; again in 0." in capsys.readouterr().err


async def test_a_failure_leaves_the_history_as_it_was(root: Path, capsys: pytest.CaptureFixture[str]) -> None:
    adapter = ScriptedAdapter([[LlmError("no", codes.AUTH)]], retry_policy=NormalRetry())
    async with open_agent(adapter, root) as asked:
        assert await agent.converse(asked, ["x", "never asked"]) == 1
    assert asked.history.messages == []
    assert capsys.readouterr().err == "AUTH: no\n"


async def test_a_stop_keeps_what_was_said(root: Path) -> None:
    adapter = ScriptedAdapter([[*text_script("One", "two")[:2], Hold()], text_script("Three")])
    async with open_agent(adapter, root) as asked, trio.open_nursery() as nursery:
        nursery.start_soon(agent.converse, asked, ["x"])
        await trio.testing.wait_all_tasks_blocked()
        asked.stop.abort("enough")
        await adapter.calls[0].ended.wait()
        await trio.testing.wait_all_tasks_blocked()
        assert [text_of(message.content) for message in asked.history.messages] == ["x", "One"]
        assert isinstance(await asked.ask("go on"), Stop)


async def test_a_stop_ends_the_tools_and_answers_their_calls(root: Path) -> None:
    class Slow(agent.Directory):  # type: ignore[misc,name-defined]  # a module loaded from a path is Any
        async def call(self, name: str, arguments: dict[str, Any]) -> str:
            if name == "list_files":
                return "quick"
            asked.stop.abort("enough")
            await trio.sleep_forever()
            raise AssertionError

    calls = [call("list_files", "{}", "1"), call("read_file", "{}", "2")]
    adapter = ScriptedAdapter([text_script(tool_calls=calls)])
    async with LlmRuntime() as runtime:
        runtime.register_adapter("deepseek", adapter)
        asked = agent.Agent(runtime, "m", agent.History(None), Slow(root))
        with trio.fail_after(PATIENCE):
            assert isinstance(await asked.ask("x"), Aborted)
    assert ("stopped by the user", True) in results(asked.history.messages)
    assert [message.role for message in asked.history.messages] == ["user", "assistant", "user", "user"]
    assert len(adapter.calls) == 1


async def test_a_model_that_calls_for_ever_is_stopped(root: Path) -> None:
    adapter = ScriptedAdapter(lambda options: text_script(tool_calls=[call("list_files", "{}")]))
    async with open_agent(adapter, root) as asked:
        assert isinstance(await asked.ask("x"), ToolCalls)
    assert len(adapter.calls) == agent.MOST_ROUNDS


# As a program


def command(base_url: str, root: Path, history: Path, *prompts: str) -> list[str]:
    options = ["--base-url", base_url, "--directory", str(root), "--history", str(history)]
    return [sys.executable, str(PATH), *options, *prompts]


ENVIRONMENT = environment(DEEPSEEK_API_KEY="any")


async def test_program_with_two_turns_is_resumed(root: Path, tmp_path: Path) -> None:
    history = tmp_path / "talk.jsonl"
    async with demo_provider(pause=0) as server:

        async def run(*prompts: str) -> tuple[str, str]:
            with trio.fail_after(PATIENCE):
                done = await trio.run_process(
                    command(server.base_url, root, history, *prompts),
                    capture_stdout=True,
                    capture_stderr=True,
                    env=ENVIRONMENT,
                )
            return done.stdout.decode(), done.stderr.decode()

        out, err = await run(BOTH, "count to 3")
        assert out == "The tool answered: a.txt\nb.txt\nbeta\n1 2 3\n"
        assert err == '[list_files {}]\n[read_file {"path": "b.txt"}]\n'
        assert await run("count to 2") == ("1 2\n", "")
    assert len(server.requests[-1].json()["messages"]) == 9
    assert [json.loads(line)["role"] for line in history.read_text().splitlines()].count("assistant") == 4


async def test_program_is_stopped_by_an_interrupt_and_keeps_what_was_said(root: Path, tmp_path: Path) -> None:
    history = tmp_path / "talk.jsonl"
    async with demo_provider(pause=0.01) as server:
        process = await trio.lowlevel.open_process(
            command(server.base_url, root, history, "count to 9999", "never asked"),
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            env=ENVIRONMENT,
        )
        assert process.stdout is not None
        assert process.stderr is not None
        with trio.fail_after(PATIENCE):
            async with process.stdout, process.stderr:
                out = await process.stdout.receive_some()
                process.send_signal(signal.SIGINT)
                out += b"".join([bytes(data) async for data in process.stdout])
                err = b"".join([bytes(data) async for data in process.stderr])
                assert await process.wait() == 130
    assert err == b"stopped by Ctrl-C\n"
    assert out.startswith(b"1 ")
    question, answer = (json.loads(line) for line in history.read_text().splitlines())
    assert question["content"] == [{"type": "text", "text": "count to 9999"}]
    assert out.decode().strip() == answer["content"][-1]["text"].strip()
    assert len(server.requests) == 1
