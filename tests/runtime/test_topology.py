"""The event that tells of changes, as a callback and as a channel."""

from __future__ import annotations

import logging

import pytest
import trio
import trio.testing

from trio_llm.model.catalogue import ConfigurableProvider
from trio_llm.runtime.runtime import LlmRuntime
from trio_llm.runtime.topology import AdaptersUpdated

from .support import Idle

ENTRY = ConfigurableProvider("p", "P", "ns", ["providers", "p"])


def told(update: AdaptersUpdated) -> tuple[list[str], list[str]]:
    return [info.id for info in update.providers], [entry.provider for entry in update.configurable_providers]


def test_T01_the_event_follows_each_commit_and_the_registry_is_readable_inside() -> None:
    runtime, seen = LlmRuntime(), []

    def listener(update: AdaptersUpdated) -> None:
        assert update.providers == runtime.list_providers()
        assert update.configurable_providers == runtime.list_configurable_providers()
        seen.append(told(update))

    handle = runtime.on_adapters_updated(listener)
    registration = runtime.register_adapter(["one"], Idle())
    registration.replace(["two"])
    directory = runtime.register_configurable_providers([ENTRY])
    directory.replace([])
    directory.close()
    registration.close()
    assert seen == [
        (["one"], []),
        (["two"], []),
        (["two"], ["p"]),
        (["two"], []),
        (["two"], []),
        ([], []),
    ]
    registration.close()
    handle.close()
    runtime.register_adapter(["one"], Idle())
    assert len(seen) == 6


def test_T01_a_change_that_fails_tells_nothing() -> None:
    runtime = LlmRuntime()
    runtime.register_adapter(["one"], Idle())
    seen: list[AdaptersUpdated] = []
    runtime.on_adapters_updated(seen.append)
    with pytest.raises(Exception, match="already registered"):
        runtime.register_adapter(["two", "one"], Idle())
    assert seen == []


def test_T02_replace_tells_once_and_leaves_no_gap() -> None:
    runtime = LlmRuntime()
    registration = runtime.register_adapter(["one", "two"], Idle())
    seen: list[list[str]] = []
    runtime.on_adapters_updated(lambda update: seen.append(told(update)[0]))
    registration.replace(["one", "three"], Idle())
    assert seen == [["one", "three"]]


def test_T03_a_listener_that_raises_is_logged_and_others_still_run(caplog: pytest.LogCaptureFixture) -> None:
    runtime, seen = LlmRuntime(), []

    def broken(update: AdaptersUpdated) -> None:
        raise RuntimeError("no")

    runtime.on_adapters_updated(broken)
    runtime.on_adapters_updated(lambda update: seen.append(told(update)[0]))
    with caplog.at_level(logging.ERROR, logger="trio_llm.runtime"):
        runtime.register_adapter(["one"], Idle())
    assert seen == [["one"]]
    assert "listener" in caplog.text
    assert [info.id for info in runtime.list_providers()] == ["one"]


def test_T01_changes_made_by_a_listener_are_told_in_order() -> None:
    runtime, seen = LlmRuntime(), []

    def chain(update: AdaptersUpdated) -> None:
        if told(update)[0] == ["one"]:
            runtime.register_adapter(["two"], Idle())

    runtime.on_adapters_updated(chain)
    runtime.on_adapters_updated(lambda update: seen.append(told(update)[0]))
    runtime.register_adapter(["one"], Idle())
    assert seen == [["one"], ["one", "two"]]


def test_T01_a_listener_closed_by_an_earlier_one_hears_nothing_more() -> None:
    runtime = LlmRuntime()
    seen: list[AdaptersUpdated] = []
    runtime.on_adapters_updated(lambda update: second.close())
    second = runtime.on_adapters_updated(seen.append)
    runtime.register_adapter(["one"], Idle())
    assert seen == []


async def test_T01_a_slow_reader_sees_the_latest_and_blocks_nothing() -> None:
    async with LlmRuntime() as runtime:
        with runtime.adapter_updates() as updates:
            registration = runtime.register_adapter(["one"], Idle())
            registration.replace(["two"])
            registration.replace(["three"])
            assert told(await updates.receive()) == (["three"], [])
            with pytest.raises(trio.WouldBlock):
                updates.receive_nowait()
            registration.close()
            assert told(await updates.receive()) == ([], [])


async def test_T01_readers_end_when_the_runtime_is_left() -> None:
    runtime = LlmRuntime()
    with runtime.adapter_updates() as updates:
        async with runtime:
            registration = runtime.register_adapter(["one"], Idle())
        seen = [told(update)[0] async for update in updates]
        registration.close()  # nobody is there to be told
    assert seen == [["one"]]
    with runtime.adapter_updates() as late, pytest.raises(trio.EndOfChannel):
        await late.receive()


async def test_T01_a_reader_that_closed_its_channel_disturbs_nobody() -> None:
    async with LlmRuntime() as runtime:
        with runtime.adapter_updates() as updates:
            await updates.aclose()
            runtime.register_adapter(["one"], Idle())
            runtime.register_adapter(["two"], Idle())
        runtime.register_adapter(["three"], Idle())
    assert len(runtime.list_providers()) == 3
