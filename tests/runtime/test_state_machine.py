"""Registrations, preparations and calls in any order, against a simple model."""

from __future__ import annotations

import queue
import threading
from collections.abc import Awaitable, Callable
from typing import Any, TypeVar

import attrs
import trio
import trio.testing
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import Bundle, RuleBasedStateMachine, invariant, multiple, rule

from trio_llm.model import codes
from trio_llm.model.chunks import Error
from trio_llm.model.failures import LlmError
from trio_llm.model.requests import LlmCallConfig
from trio_llm.runtime.prepared import PreparedLlmCall
from trio_llm.runtime.registry import AdapterRegistration
from trio_llm.runtime.runtime import LlmRuntime
from trio_llm.runtime.stream import RuntimeStream
from trio_llm.runtime.topology import AdaptersUpdated
from trio_llm.testing.scripted import ScriptedAdapter, text_script

from .support import request

T = TypeVar("T")
NAMES = st.lists(st.sampled_from("abcd"), max_size=3)
ADAPTERS = st.integers(0, 2)


@attrs.define(eq=False)
class Registered:
    """The model of one registration."""

    handle: AdapterRegistration
    adapter: int
    names: list[str]
    open: bool = True


@attrs.define(eq=False)
class Prepared:
    """The model of one prepared call."""

    call: PreparedLlmCall
    adapter: int
    name: str
    spent: bool = False


class RuntimeMachine(RuleBasedStateMachine):
    """A runtime in a thread of its own; each rule is one step of it, until every task is blocked."""

    registrations: Bundle[Registered] = Bundle("registrations")
    prepared: Bundle[Prepared] = Bundle("prepared")

    def __init__(self) -> None:
        super().__init__()
        self.model: list[Registered] = []
        self.calls: list[Prepared] = []
        self.told: list[AdaptersUpdated] = []
        self.changes = 0
        self.adapters = [
            ScriptedAdapter(lambda options, number=number: text_script(str(number)))  # type: ignore[misc]  # the default binds
            for number in range(3)
        ]
        started: queue.Queue[tuple[LlmRuntime, trio.lowlevel.TrioToken, trio.Event]] = queue.Queue()

        async def main() -> None:
            async with LlmRuntime() as runtime:
                runtime.on_adapters_updated(self.told.append)
                stop = trio.Event()
                started.put((runtime, trio.lowlevel.current_trio_token(), stop))
                await stop.wait()

        self.thread = threading.Thread(target=trio.run, args=[main])
        self.thread.start()
        self.runtime, self.token, self.stop = started.get()

    def teardown(self) -> None:
        trio.from_thread.run_sync(self.stop.set, trio_token=self.token)
        self.thread.join()
        # whatever was held, leaving the runtime closes what it has opened
        assert [adapter.entered for adapter in self.adapters] == [a.exited for a in self.adapters]

    def run(self, work: Callable[[], Awaitable[T]]) -> T:
        async def step() -> T:
            try:
                return await work()
            finally:
                await trio.testing.wait_all_tasks_blocked()

        return trio.from_thread.run(step, trio_token=self.token)

    def attempt(self, work: Callable[[], Awaitable[T]]) -> tuple[T | None, str | None]:
        """What ``work`` returned, and the code of the LlmError it raised instead."""
        try:
            return self.run(work), None
        except LlmError as error:
            return None, error.code

    def attempt_sync(self, work: Callable[[], T]) -> tuple[T | None, str | None]:
        async def step() -> T:
            await trio.lowlevel.checkpoint()
            return work()

        return self.attempt(step)

    # ---- the model

    def owners(self) -> dict[str, int]:
        return {name: one.adapter for one in self.model if one.open for name in one.names}

    def free(self, names: list[str], mine: list[str]) -> bool:
        taken = set(self.owners()) - set(mine)
        return len(set(names)) == len(names) and not taken & set(names)

    # ---- rules

    @rule(target=registrations, names=NAMES, adapter=ADAPTERS)
    def register(self, names: list[str], adapter: int) -> Any:
        handle, code = self.attempt_sync(lambda: self.runtime.register_adapter(names, self.adapters[adapter]))
        if not names:
            assert code == codes.INVALID_ADAPTER
        elif not self.free(names, []):
            assert code == codes.DUPLICATE_ADAPTER
        else:
            assert handle is not None
            self.changes += 1
            self.model.append(Registered(handle, adapter, names))
            return self.model[-1]
        return multiple()

    @rule(one=registrations, names=NAMES, adapter=st.none() | ADAPTERS)
    def replace(self, one: Registered, names: list[str], adapter: int | None) -> None:
        given = None if adapter is None else self.adapters[adapter]
        _, code = self.attempt_sync(lambda: one.handle.replace(names, given))
        if not one.open:
            assert code == codes.REGISTRATION_DISPOSED
        elif not self.free(names, one.names):
            assert code == codes.DUPLICATE_ADAPTER
        else:
            assert code is None
            self.changes += 1
            one.names = names
            one.adapter = one.adapter if adapter is None else adapter

    @rule(one=registrations)
    def close(self, one: Registered) -> None:
        self.attempt_sync(one.handle.close)
        self.changes += one.open
        one.open = False

    @rule(target=prepared, name=st.sampled_from("abcd"))
    def prepare(self, name: str) -> Any:
        owner = self.owners().get(name)
        config = LlmCallConfig(provider=name, model="m")
        call, code = self.attempt(lambda: self.runtime.prepare_call(config))
        if owner is None:
            assert code == codes.NO_ADAPTER
            return multiple()
        assert call is not None
        self.calls.append(Prepared(call, owner, name))
        return self.calls[-1]

    @rule(one=prepared)
    def dispatch(self, one: Prepared) -> None:
        stream, code = self.attempt_sync(lambda: one.call.stream(request(one.name)))
        if one.spent:
            assert code == codes.INVALID_PREPARED_CALL
        else:
            assert stream is not None
            assert self.text(stream) == str(one.adapter)
            one.spent = True

    @rule(one=prepared)
    def give_up(self, one: Prepared) -> None:
        self.attempt_sync(one.call.close)
        one.spent = True

    @rule(name=st.sampled_from("abcd"))
    def call(self, name: str) -> None:
        owner = self.owners().get(name)
        stream, _ = self.attempt_sync(lambda: self.runtime.stream(request(name)))
        assert stream is not None
        assert self.text(stream) == ("" if owner is None else str(owner))
        if owner is None:
            assert isinstance(stream.finish, Error)
            assert stream.finish.failure.code == codes.NO_ADAPTER

    def text(self, stream: RuntimeStream) -> str:
        async def read() -> str:
            async with stream:
                return "".join([part async for part in stream.text()])

        return self.run(read)

    # ---- what always holds

    @invariant()
    def routes_are_those_of_the_model(self) -> None:
        listed = [info.id for info in self.runtime.list_providers()]
        assert listed == [name for one in self.model if one.open for name in one.names]

    @invariant()
    def every_change_was_told_once(self) -> None:
        assert len(self.told) == self.changes
        if self.told:
            assert self.told[-1].providers == self.runtime.list_providers()

    @invariant()
    def adapters_are_open_while_something_holds_them_and_no_longer(self) -> None:
        held = {one.adapter for one in self.model if one.open}
        held |= {one.adapter for one in self.calls if not one.spent}
        for number, adapter in enumerate(self.adapters):
            assert adapter.entered - adapter.exited == (number in held)


TestRuntimeMachine = RuntimeMachine.TestCase
TestRuntimeMachine.settings = settings(max_examples=40, stateful_step_count=30, deadline=None)
