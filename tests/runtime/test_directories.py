"""Directories of configurable providers."""

from __future__ import annotations

from typing import Any

import pytest

from trio_llm.model import codes
from trio_llm.model.catalogue import ConfigurableProvider
from trio_llm.runtime.runtime import LlmRuntime

from .support import raises_code


def entry(provider: Any, **fields: Any) -> ConfigurableProvider:
    values = {"display_name": "Name", "settings_ns": "ns", "settings_path": ["providers"], **fields}
    return ConfigurableProvider(provider, **values)


def test_T04_order_is_kept_and_lists_are_detached() -> None:
    runtime = LlmRuntime()
    entries = [entry("b"), entry("a", declared=True)]
    first = runtime.register_configurable_providers(entries)
    entries.clear()
    before = runtime.list_configurable_providers()
    runtime.register_configurable_providers([entry("c")])
    first.replace([entry("z"), entry("b")])
    assert [one.provider for one in before] == ["b", "a"]
    assert [one.provider for one in runtime.list_configurable_providers()] == ["z", "b", "c"]


@pytest.mark.parametrize(
    "bad",
    [
        [],
        ["a"],
        [entry("")],
        [entry("fine"), entry(3)],
        [entry("a", display_name="")],
        [entry("a", settings_ns="")],
    ],
)
def test_T04_bad_entries_are_INVALID_DIRECTORY(bad: list[ConfigurableProvider]) -> None:
    runtime = LlmRuntime()
    with raises_code(codes.INVALID_DIRECTORY):
        runtime.register_configurable_providers(bad)
    assert runtime.list_configurable_providers() == ()


@pytest.mark.parametrize("providers", [["new", "taken"], ["new", "new"]])
def test_T04_duplicates_are_DUPLICATE_DIRECTORY_all_or_nothing(providers: list[str]) -> None:
    runtime = LlmRuntime()
    runtime.register_configurable_providers([entry("taken")])
    mine = runtime.register_configurable_providers([entry("mine")])
    with raises_code(codes.DUPLICATE_DIRECTORY):
        runtime.register_configurable_providers([entry(name) for name in providers])
    with raises_code(codes.DUPLICATE_DIRECTORY):
        mine.replace([entry(name) for name in providers])
    with raises_code(codes.INVALID_DIRECTORY):
        mine.replace([entry("")])
    assert [one.provider for one in runtime.list_configurable_providers()] == ["taken", "mine"]


def test_T04_replace_by_nothing_is_legal_and_after_close_an_error() -> None:
    runtime = LlmRuntime()
    with runtime.register_configurable_providers([entry("a")]) as directory:
        directory.replace([])
        assert runtime.list_configurable_providers() == ()
        directory.replace([entry("a")])
    assert runtime.list_configurable_providers() == ()
    with raises_code(codes.REGISTRATION_DISPOSED):
        directory.replace([entry("a")])
