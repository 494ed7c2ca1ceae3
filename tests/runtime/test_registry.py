"""The registry: atomic registrations, captured policies, adapter lives."""

from __future__ import annotations

import pytest

from trio_llm.model import codes
from trio_llm.model.catalogue import ModelInfo, ProviderInfo
from trio_llm.model.policy import AlwaysRetry, NormalRetry, RetryPolicy
from trio_llm.runtime.runtime import LlmRuntime

from .support import Idle, answering, raises_code


def names(runtime: LlmRuntime) -> list[str]:
    return [info.id for info in runtime.list_providers()]


class Described(Idle):
    def __init__(self, info: object = None, policy: object = None) -> None:
        super().__init__()
        self.info, self.policy = info, policy

    def provider_info(self, provider: str) -> ProviderInfo:
        return self.info or ProviderInfo(provider, provider)  # type: ignore[return-value]  # or nonsense

    def provider_retry_policy(self, provider: str) -> RetryPolicy | None:
        return self.policy  # type: ignore[return-value]  # or nonsense


def test_L02_policy_is_captured_once_at_registration() -> None:
    runtime, adapter = LlmRuntime(), Described(policy=AlwaysRetry(initial_delay_ms=7))
    captured = adapter.policy
    registration = runtime.register_adapter(["one"], adapter)
    adapter.policy = NormalRetry(max_retries=1)
    assert runtime.provider_retry_policy("one") is captured
    registration.replace(["one"])
    assert runtime.provider_retry_policy("one") is adapter.policy


def test_L02_an_adapter_without_policy_gets_the_normal_defaults() -> None:
    runtime = LlmRuntime()
    runtime.register_adapter(["one"], Idle())
    assert runtime.provider_retry_policy("one") == NormalRetry()


def test_L02_unknown_provider_is_NO_ADAPTER() -> None:
    runtime = LlmRuntime()
    with raises_code(codes.NO_ADAPTER):
        runtime.provider_retry_policy("nobody")
    with raises_code(codes.NO_ADAPTER):
        runtime.list_models("nobody")


def test_L09_leaving_a_registration_removes_its_routes() -> None:
    runtime = LlmRuntime()
    with runtime.register_adapter(["one", "two"], Idle()):
        assert names(runtime) == ["one", "two"]
    assert names(runtime) == []


def test_L10_provider_names_default_to_the_id_and_lists_are_detached() -> None:
    runtime = LlmRuntime()
    runtime.register_adapter("one", Idle())
    before = runtime.list_providers()
    assert before == (ProviderInfo("one", "one"),)
    assert runtime.list_models("one") == ()
    runtime.register_adapter(["two"], Idle())
    assert [info.id for info in before] == ["one"]


@pytest.mark.parametrize(
    "info",
    [ProviderInfo("other", "name"), ProviderInfo("one", ""), ProviderInfo("one", 3), "one"],  # type: ignore[arg-type]
)
def test_L20_bad_provider_info_is_INVALID_ADAPTER(info: object) -> None:
    runtime = LlmRuntime()
    with raises_code(codes.INVALID_ADAPTER):
        runtime.register_adapter(["one"], Described(info))
    assert names(runtime) == []


@pytest.mark.parametrize("providers", [[], [""], ["one", ""], [3]])
def test_L20_bad_names_are_INVALID_ADAPTER(providers: list[str]) -> None:
    runtime = LlmRuntime()
    with raises_code(codes.INVALID_ADAPTER):
        runtime.register_adapter(providers, Idle())
    assert names(runtime) == []


def test_L20_no_adapter_or_no_policy_is_INVALID_ADAPTER() -> None:
    runtime = LlmRuntime()
    with raises_code(codes.INVALID_ADAPTER):
        runtime.register_adapter(["one"], object())  # type: ignore[arg-type]
    with raises_code(codes.INVALID_ADAPTER):
        runtime.register_adapter(["one"], Described(policy="often"))


@pytest.mark.parametrize("providers", [["new", "taken"], ["new", "new"]])
def test_L20_duplicates_change_nothing(providers: list[str]) -> None:
    runtime = LlmRuntime()
    runtime.register_adapter(["taken"], Idle())
    mine = runtime.register_adapter(["mine"], Idle())
    with raises_code(codes.DUPLICATE_ADAPTER):
        runtime.register_adapter(providers, Idle())
    with raises_code(codes.DUPLICATE_ADAPTER):
        mine.replace(providers)
    assert names(runtime) == ["taken", "mine"]


@pytest.mark.parametrize(
    "models",
    [
        [ModelInfo("one", "m", "M"), ModelInfo("one", "m", "again")],
        [ModelInfo("other", "m", "M")],
        [ModelInfo("one", "", "M")],
        [ModelInfo("one", "m", "")],
        [ModelInfo("one", "m", "M", description=3)],  # type: ignore[arg-type]
        [ModelInfo("one", "m", "M", input_modalities=("",))],
        ["m"],
    ],
)
def test_L20_bad_or_duplicate_models_are_INVALID_CATALOG(models: list[ModelInfo]) -> None:
    runtime = LlmRuntime()
    runtime.register_adapter(["one"], answering(models=models))
    with raises_code(codes.INVALID_CATALOG):
        runtime.list_models("one")


def test_L24_replace_after_close_is_REGISTRATION_DISPOSED() -> None:
    runtime = LlmRuntime()
    registration = runtime.register_adapter(["one"], Idle())
    registration.close()
    registration.close()
    with raises_code(codes.REGISTRATION_DISPOSED):
        registration.replace(["one"])
    assert names(runtime) == []


def test_L24_replace_by_nothing_and_registering_again_are_legal() -> None:
    runtime, adapter = LlmRuntime(), Idle()
    registration = runtime.register_adapter(["one"], adapter)
    registration.replace([])
    assert names(runtime) == []
    registration.replace(["one", "two"])
    assert names(runtime) == ["one", "two"]
    registration.close()
    runtime.register_adapter(["one"], adapter)
    assert names(runtime) == ["one"]


def test_replace_keeps_the_place_and_may_change_the_adapter() -> None:
    runtime = LlmRuntime()
    first = runtime.register_adapter(["a"], Idle())
    runtime.register_adapter(["b"], Idle())
    first.replace(["x", "a"], Described(policy=AlwaysRetry()))
    assert names(runtime) == ["x", "a", "b"]
    assert runtime.provider_retry_policy("a") == AlwaysRetry()
