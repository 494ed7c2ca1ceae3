"""An agent: a model that may look around in one directory, and a history that outlives the program.

    DEEPSEEK_API_KEY=... python examples/agent.py --history talk.jsonl "Which files are here?"
    DEEPSEEK_API_KEY=... python examples/agent.py --history talk.jsonl "What does the longest one say?"

Text streams to standard output, all else goes to standard error. Ctrl-C stops the answer and keeps
what was said; a second Ctrl-C ends the program.
"""

import argparse
import json
import signal
import sys
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any, Self

import trio

from trio_llm import (
    Aborted,
    AbortSignal,
    AttemptRecord,
    BlockEnd,
    Error,
    Finish,
    FinishReason,
    GenerateOptions,
    LlmRuntime,
    Message,
    ModelSource,
    Pause,
    StreamChunk,
    TextBlock,
    TextDelta,
    ToolCallBlock,
    ToolCalls,
    ToolSchema,
    create_assistant_message,
    create_tool_result_message,
    create_user_message,
    decode,
    encode,
)
from trio_llm.providers.deepseek import DeepSeekAdapter, DeepSeekConfig

SYSTEM = "You answer questions about the files of one directory. Use the tools; do not guess."
MOST_ROUNDS = 20
TOOLS = [
    ToolSchema("list_files", "Lists the files of the directory.", {"type": "object", "properties": {}}),
    ToolSchema(
        "read_file",
        "Reads a text file of the directory.",
        {"type": "object", "properties": {"path": {"type": "string"}}, "required": ["path"]},
    ),
]


def say(text: str) -> None:
    print(text, file=sys.stderr)


class Directory:
    """The tools: what the model may see. What they raise, the model is told."""

    def __init__(self, root: Path) -> None:
        self.root = root.resolve()

    async def call(self, name: str, arguments: dict[str, Any]) -> str:
        if name == "list_files":
            return await trio.to_thread.run_sync(self.list_files)
        if name == "read_file":
            return await trio.to_thread.run_sync(self.read_file, arguments["path"])
        raise ValueError(f"there is no tool {name!r}")

    def list_files(self) -> str:
        return "\n".join(sorted(path.name for path in self.root.iterdir() if path.is_file()))

    def read_file(self, name: str) -> str:
        path = (self.root / name).resolve()
        if not path.is_relative_to(self.root):
            raise PermissionError(f"{name} is outside of the directory")
        return path.read_text(errors="replace")[:20_000]


class History:
    """The conversation, in memory and as JSON lines. A message that is in it is in the file."""

    def __init__(self, path: Path | None) -> None:
        self.messages: list[Message] = []
        self._path = path

    @classmethod
    def load(cls, path: Path | None) -> Self:
        history = cls(path)
        if path is not None and path.exists():
            history.messages = [decode(Message, line) for line in path.read_bytes().splitlines()]
        return history

    def append(self, *messages: Message) -> None:
        """Add messages that belong together, such as a call's results: all of them or none."""
        if self._path is not None:
            with self._path.open("ab") as file:
                file.write(b"".join(encode(message) + b"\n" for message in messages))
        self.messages += messages


class Agent:
    """Asks the model, runs the tools it calls, and asks again, until it has answered."""

    def __init__(self, runtime: LlmRuntime, model: str, history: History, directory: Directory) -> None:
        self.runtime = runtime
        self.model = model
        self.history = history
        self.directory = directory
        self.stop = AbortSignal()  # of the present turn

    async def ask(self, prompt: str) -> FinishReason:
        """One turn. A turn that fails leaves in the history what was complete before it failed."""
        self.stop = AbortSignal()
        pending = [create_user_message(prompt)]
        rounds = 0
        while True:
            answer, finish = await self.answer([*self.history.messages, *pending])
            if answer is None:
                return finish
            # The calls go into the history together with their results; one without the other is no history.
            calls = [block for block in answer.content if isinstance(block, ToolCallBlock)]
            self.history.append(*pending, answer, *await self.run_tools(calls))
            pending, rounds = [], rounds + 1
            if rounds == MOST_ROUNDS or not isinstance(finish, ToolCalls | Pause):
                return finish

    async def answer(self, messages: list[Message]) -> tuple[Message | None, FinishReason]:
        """The model's next message, with retries; None if there is none to keep."""
        options = GenerateOptions(
            provider="deepseek",
            model=self.model,
            messages=messages,
            system=SYSTEM,
            tools=TOOLS,
            signal=self.stop,
        )
        async for attempt in self.runtime.attempts(options, record=tell_of_retry):
            async with attempt as stream:
                async for chunk in stream:
                    show(chunk)
        assert stream.finish is not None  # there was at least one attempt, and the last one is over
        if isinstance(stream.finish, Aborted) and stream.partial:
            # The user saw it, so the model should know that it said it.
            source = ModelSource(options.provider, options.model)
            return create_assistant_message(stream.partial, source), stream.finish
        return stream.message, stream.finish

    async def run_tools(self, calls: list[ToolCallBlock]) -> list[Message]:
        """The results of some calls, in their order; they run at the same time."""
        results = [
            create_tool_result_message(call.id, "stopped by the user", is_error=True) for call in calls
        ]

        async def run(place: int, call: ToolCallBlock) -> None:
            try:
                text, failed = await self.directory.call(call.name, json.loads(call.arguments or "{}")), False
            except Exception as error:  # the model asked for it; it is told, and may ask for something else
                text, failed = f"{type(error).__name__}: {error}", True
            results[place] = create_tool_result_message(call.id, text, is_error=failed)

        async with trio.open_nursery() as nursery:
            unsubscribe = self.stop.subscribe(lambda reason: nursery.cancel_scope.cancel())
            for place, call in enumerate(calls):
                nursery.start_soon(run, place, call)
        unsubscribe()
        return results


def show(chunk: StreamChunk) -> None:
    match chunk:
        case TextDelta(text=text):
            print(text, end="", flush=True)
        case BlockEnd(block=TextBlock()) | Finish(reason=Aborted() | Error()):
            print()
        case BlockEnd(block=ToolCallBlock(name=name, arguments=arguments)):
            say(f"[{name} {arguments}]")


def tell_of_retry(record: AttemptRecord) -> None:
    if record.event == "scheduled":
        say(f"[{record.failure.code}: {record.failure.message}; again in {record.delay_ms / 1000:.1f} s]")


async def stop_on_interrupt(interrupts: AsyncIterator[int], agent: Agent, program: trio.CancelScope) -> None:
    async for _ in interrupts:
        if agent.stop.aborted:
            program.cancel()
        agent.stop.abort("stopped by Ctrl-C")


async def converse(agent: Agent, prompts: list[str]) -> int:
    """Ask one prompt after the other; gives the exit status."""
    for prompt in prompts:
        match await agent.ask(prompt):
            case Error(failure=failure):
                say(f"{failure.code}: {failure.message}")
                return 1
            case Aborted(failure=failure):
                say(failure.message)
                return 130
    return 0


async def main(arguments: argparse.Namespace) -> int:
    history = History.load(arguments.history)
    status = 130  # where a second Ctrl-C ends the program
    with trio.open_signal_receiver(signal.SIGINT) as interrupts:
        async with LlmRuntime() as runtime, trio.open_nursery() as nursery:
            config = DeepSeekConfig(base_url=arguments.base_url)
            runtime.register_adapter(["deepseek"], DeepSeekAdapter(config))
            agent = Agent(runtime, arguments.model, history, Directory(arguments.directory))
            nursery.start_soon(stop_on_interrupt, interrupts, agent, nursery.cancel_scope)
            status = await converse(agent, arguments.prompts)
            nursery.cancel_scope.cancel()
    return status


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description="An agent that may look around in one directory.")
    parser.add_argument("prompts", nargs="+", metavar="PROMPT", help="what to ask, one after the other")
    parser.add_argument("--history", type=Path, help="a file that the conversation is kept in")
    parser.add_argument("--directory", type=Path, default=Path(), help="what the model may see")
    parser.add_argument("--model", default="deepseek-v4-flash")
    parser.add_argument("--base-url", help="another endpoint that speaks DeepSeek's wire")
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(trio.run(main, parse()))
