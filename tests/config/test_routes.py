"""A configuration in force: what a change replaces, and what it leaves alone."""

from collections.abc import Callable
from typing import Any

import attrs
import pytest
import trio

from trio_llm.config import Kind, LlmConfig, ProviderConfig, apply_config, known_kinds, read_config
from trio_llm.config.kinds import _kinds
from trio_llm.model import codes
from trio_llm.model.catalogue import ConfigurableProvider, ModelInfo
from trio_llm.model.chunks import Error
from trio_llm.model.failures import LlmError
from trio_llm.model.policy import NormalRetry, Timeouts
from trio_llm.model.requests import call_config
from trio_llm.providers.deepseek import DeepSeekAdapter, DeepSeekConfig
from trio_llm.runtime.runtime import LlmRuntime
from trio_llm.runtime.topology import AdaptersUpdated
from trio_llm.streaming.contract import LlmAdapter
from trio_llm.testing.scripted import ScriptedAdapter
from trio_llm.testing.wire_script import Gate, Hold, Response, event_stream
from trio_llm.testing.wire_server import WireRequest, WireServer

from ..runtime.support import Idle, raises_code, request, text_of_call

END = b'data: {"choices":[{"index":0,"delta":{},"finish_reason":"stop"}]}\n\ndata: [DONE]\n\n'


def says(text: str) -> bytes:
    return b'data: {"choices":[{"index":0,"delta":{"content":"%s"}}]}\n\n' % text.encode()


def answer(text: str) -> Response:
    return event_stream(says(text), END)


def deepseek(name: str = "one", **fields: Any) -> ProviderConfig:
    return ProviderConfig(name, "deepseek", DeepSeekConfig(**{"api_key": "sk-1", **fields}))


def adapter_of(runtime: LlmRuntime, provider: str) -> LlmAdapter:
    return runtime._registry.route(provider).adapter


class Watched:
    """A runtime, and the topology events it told."""

    def __init__(self) -> None:
        self.runtime = LlmRuntime()
        self.events: list[AdaptersUpdated] = []
        self.runtime.on_adapters_updated(self.events.append)

    def routes(self) -> list[list[str]]:
        """The routes of each event since the last time."""
        found = [[info.id for info in event.providers] for event in self.events]
        self.events.clear()
        return found


async def test_D10_a_changed_configuration_reaches_the_next_call_and_none_in_flight(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("OLD_KEY", "sk-old")
    monkeypatch.setenv("NEW_KEY", "sk-new")
    gate = Gate()
    slow = event_stream(says("a"), gate, says("b"), END)
    async with (
        WireServer([slow]) as old,
        WireServer([answer("c")]) as new,
        LlmRuntime() as runtime,
    ):

        def config(server: WireServer, key: str, team: str) -> LlmConfig:
            table = {
                "kind": "deepseek",
                "base_url": server.base_url,
                "api_key_env": key,
                "headers": {"x-team": team},
            }
            return read_config({"providers": {"one": table}})

        with apply_config(runtime, config(old, "OLD_KEY", "red")) as providers:
            adapter = adapter_of(runtime, "one")
            async with runtime.stream(request()) as stream:
                texts = aiter(stream.text())
                assert await anext(texts) == "a"
                providers.replace(config(new, "NEW_KEY", "blue"))
                assert adapter_of(runtime, "one") is adapter
                gate.open()
                assert [text async for text in texts] == ["b"]
            assert await text_of_call(runtime, request()) == "c"
    assert [seen(server.requests) for server in (old, new)] == [
        [("Bearer sk-old", "red")],
        [("Bearer sk-new", "blue")],
    ]


def seen(requests: list[WireRequest]) -> list[tuple[str | None, str | None]]:
    return [(each.header("authorization"), each.header("x-team")) for each in requests]


async def test_D10_a_prepared_call_keeps_the_adapter_and_policy_it_was_prepared_on() -> None:
    async with WireServer([answer("x")]) as server, LlmRuntime() as runtime:
        policy = NormalRetry(max_retries=1)
        with apply_config(
            runtime, LlmConfig([deepseek(base_url=server.base_url, retry_policy=policy)])
        ) as providers:
            prepared = await runtime.prepare_call(call_config(request()))
            providers.replace(LlmConfig())
            assert runtime.list_providers() == ()
            assert prepared.retry_policy == policy
            options = attrs.evolve(request(), reasoning_effort=prepared.config.reasoning_effort)
            async with prepared.stream(options) as stream:
                assert [text async for text in stream.text()] == ["x"]


async def test_D10_changed_timeouts_reach_the_next_call(autojump_clock: trio.testing.MockClock) -> None:
    async with WireServer(event_stream(Hold())) as server, LlmRuntime() as runtime:
        before = deepseek(base_url=server.base_url, timeouts=Timeouts(idle=100))
        with apply_config(runtime, LlmConfig([before])) as providers:
            took = []
            async with trio.open_nursery() as nursery:

                async def call() -> None:
                    started = trio.current_time()
                    async with runtime.stream(request()) as stream:
                        async for _ in stream:
                            pass
                    assert isinstance(stream.finish, Error)
                    took.append(round(trio.current_time() - started))

                nursery.start_soon(call)
                await server.wait_request()
                providers.replace(LlmConfig([deepseek(base_url=server.base_url, timeouts=Timeouts(idle=10))]))
                nursery.start_soon(call)
            assert took == [10, 100]


def test_D10_a_policy_change_replaces_the_route_in_one_event() -> None:
    watched = Watched()
    runtime = watched.runtime
    with apply_config(runtime, LlmConfig([deepseek(), deepseek("two")])) as providers:
        watched.routes()
        adapter, route = adapter_of(runtime, "one"), runtime._registry.route("one")
        policy = NormalRetry(max_retries=9)
        providers.replace(LlmConfig([deepseek(retry_policy=policy), deepseek("two")]))
        assert watched.routes() == [["one", "two"]]
        assert runtime.provider_retry_policy("one") == policy
        assert adapter_of(runtime, "one") is adapter
        assert runtime._registry.route("one") is not route


def test_D10_a_change_that_nobody_is_shown_makes_no_event() -> None:
    watched = Watched()
    with apply_config(watched.runtime, LlmConfig([deepseek()])) as providers:
        watched.routes()
        route = watched.runtime._registry.route("one")
        providers.replace(LlmConfig([deepseek(base_url="https://elsewhere.example")]))
        assert watched.runtime._registry.route("one") is route
        assert watched.routes() == []
        adapter = adapter_of(watched.runtime, "one")
        assert isinstance(adapter, DeepSeekAdapter)
        assert adapter.config.base_url == "https://elsewhere.example"


def test_D10_other_models_are_one_event() -> None:
    watched = Watched()
    with apply_config(watched.runtime, LlmConfig([deepseek()])) as providers:
        watched.routes()
        providers.replace(LlmConfig([deepseek(models=["m"])]))
        assert watched.routes() == [["one"]]
        assert [model.id for model in watched.runtime.list_models("one")] == ["m"]


def test_configuration_leaves_alone_what_did_not_change() -> None:
    watched = Watched()
    runtime = watched.runtime
    with apply_config(runtime, LlmConfig([deepseek(), deepseek("two")])) as providers:
        routes = [runtime._registry.route(name) for name in ("one", "two")]
        watched.routes()
        providers.replace(LlmConfig([deepseek("two"), deepseek()]))
        assert watched.routes() == []
        providers.replace(LlmConfig([deepseek(), deepseek("two"), deepseek("three")]))
        assert [runtime._registry.route(name) for name in ("one", "two")] == routes
        assert watched.routes()[0] == ["one", "two", "three"]


async def test_configuration_withdraws_what_is_gone_and_lets_its_calls_end() -> None:
    gate = Gate()
    async with (
        WireServer([event_stream(says("a"), gate, says("b"), END)]) as server,
        LlmRuntime() as runtime,
    ):
        with apply_config(runtime, LlmConfig([deepseek(base_url=server.base_url)])) as providers:
            async with runtime.stream(request()) as stream:
                texts = aiter(stream.text())
                assert await anext(texts) == "a"
                providers.replace(LlmConfig())
                assert runtime.list_providers() == ()
                gate.open()
                assert [text async for text in texts] == ["b"]
            async with runtime.stream(request()) as stream:
                async for _ in stream:
                    pass
            assert isinstance(stream.finish, Error)
            assert stream.finish.failure.code == codes.NO_ADAPTER


async def test_configuration_keeps_replay_ownership() -> None:
    """The adapter stays, so what it left in the history is still its own."""
    config = {"kind": "anthropic", "base_url": "http://127.0.0.1:1"}
    async with LlmRuntime() as runtime:
        with apply_config(runtime, read_config({"providers": {"one": config}})) as providers:
            adapter = adapter_of(runtime, "one")
            changed = {**config, "headers": {"x": "y"}, "retry": {"max_retries": 1}}
            providers.replace(read_config({"providers": {"one": changed, "two": config}}))
            assert adapter_of(runtime, "one") is adapter
            assert adapter_of(runtime, "two") is not adapter


async def test_configuration_of_another_kind_is_another_adapter_in_one_event() -> None:
    watched = Watched()
    async with watched.runtime as runtime:
        with apply_config(runtime, LlmConfig([deepseek()])) as providers:
            before = adapter_of(runtime, "one")
            watched.routes()
            providers.replace(read_config({"providers": {"one": {"kind": "anthropic"}}}))
            assert watched.routes() == [["one"]]
            assert type(adapter_of(runtime, "one")) is not type(before)


@attrs.frozen
class FragileConfig:
    """Settings of an adapter that may break when it is asked."""

    broken: str = ""


class Fragile(ScriptedAdapter):
    def __init__(self, config: Callable[[], FragileConfig]) -> None:
        super().__init__([])
        self.config = config
        if config().broken == "making":
            raise LlmError("cannot be made", codes.INVALID_CONFIG)

    def provider_retry_policy(self, provider: str) -> None:
        if self.config().broken == "policy":
            raise ValueError("no policy")

    def list_models(self, provider: str) -> list[ModelInfo]:
        return [ModelInfo("", "", "")] if self.config().broken == "models" else []


@pytest.fixture
def fragile(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(_kinds, "fragile", Kind(f"{__name__}:Fragile", f"{__name__}:FragileConfig"))


@pytest.mark.parametrize(
    ("present", "broken", "expected"),
    [
        (False, "making", LlmError),
        (False, "policy", ValueError),
        (False, "models", LlmError),
        (True, "policy", ValueError),
        (True, "models", LlmError),
    ],
)
def test_configuration_that_is_bad_changes_nothing(
    fragile: None, present: bool, broken: str, expected: type[Exception]
) -> None:
    watched = Watched()
    runtime = watched.runtime
    fine = ProviderConfig("fragile", "fragile", FragileConfig())
    before = LlmConfig([deepseek(), *([fine] if present else [])])
    with apply_config(runtime, before) as providers:
        watched.routes()
        adapter = adapter_of(runtime, "one")
        assert isinstance(adapter, DeepSeekAdapter)
        bad = ProviderConfig("fragile", "fragile", FragileConfig(broken))
        after = LlmConfig(
            [deepseek(base_url="https://x.example", retry_policy=NormalRetry(1)), deepseek("new"), bad]
        )
        with pytest.raises(expected):
            providers.replace(after)
        assert watched.routes() == []
        assert providers.config == before
        assert adapter.config.base_url is None
        assert [info.id for info in runtime.list_providers()] == [each.name for each in before.providers]
        assert runtime.provider_retry_policy("one") == NormalRetry()
        providers.replace(LlmConfig([fine]))  # and it can go on
        assert [info.id for info in runtime.list_providers()] == ["fragile"]


@pytest.mark.parametrize(
    ("provider", "code", "said"),
    [
        (deepseek("taken"), codes.DUPLICATE_ADAPTER, "'taken' is already registered"),
        (
            ProviderConfig("x", "anthropic", DeepSeekConfig()),
            codes.INVALID_CONFIG,
            "provider 'x' of kind 'anthropic' is configured by a AnthropicConfig, not a DeepSeekConfig",
        ),
        (
            ProviderConfig("x", "deepseak", DeepSeekConfig()),
            codes.INVALID_CONFIG,
            "the kind 'deepseak' of provider 'x': is no kind of provider; did you mean 'deepseek'?",
        ),
        (deepseek("x", models=["m", "m"]), codes.INVALID_CATALOG, "listed twice"),
    ],
)
def test_configuration_that_does_not_fit_changes_nothing(
    provider: ProviderConfig, code: str, said: str
) -> None:
    watched = Watched()
    runtime = watched.runtime
    runtime.register_adapter("taken", Idle())
    with apply_config(runtime, LlmConfig([deepseek()])) as providers:
        watched.routes()
        with pytest.raises(LlmError) as caught:
            providers.replace(LlmConfig([deepseek("new"), provider]))
        assert caught.value.code == code
        assert said in caught.value.failure.message
        assert watched.routes() == []
        assert [info.id for info in runtime.list_providers()] == ["taken", "one"]
    with raises_code(code):
        apply_config(runtime, LlmConfig([provider]))


@pytest.mark.parametrize("kind", known_kinds())
def test_configuration_of_every_kind_can_be_applied(kind: str) -> None:
    whom = {"openai-chat": {"profile": "groq"}, "pydantic-ai": {"provider": "groq"}}
    if kind == "pydantic-ai":
        pytest.importorskip("pydantic_ai", reason="the extra pydantic-ai is not installed")
    table = {"kind": kind, **whom.get(kind, {})}
    runtime = LlmRuntime()
    with apply_config(runtime, read_config({"providers": {"x": table}})) as providers:
        adapter = adapter_of(runtime, "x")
        changed = {**table, "base_url": "http://127.0.0.1:9", "models": ["m"]}
        providers.replace(read_config({"providers": {"x": changed}}))
        assert adapter_of(runtime, "x") is adapter
        assert [model.id for model in runtime.list_models("x")] == ["m"]


def test_configuration_leaves_with_its_context() -> None:
    runtime = LlmRuntime()
    providers = apply_config(runtime, LlmConfig([deepseek()]))
    with providers:
        assert runtime.list_configurable_providers()
    assert runtime.list_providers() == ()
    assert runtime.list_configurable_providers() == ()
    providers.close()
    with raises_code(codes.REGISTRATION_DISPOSED):
        providers.replace(LlmConfig())


def test_configuration_fills_the_directory() -> None:
    runtime = LlmRuntime()

    def listed() -> list[tuple[str, str, bool | None]]:
        return [
            (entry.provider, entry.display_name, entry.declared)
            for entry in runtime.list_configurable_providers()
        ]

    with apply_config(runtime, LlmConfig([deepseek("fast")])) as providers:
        assert listed() == [
            ("fast", "fast", True),
            ("deepseek", "DeepSeek", False),
            ("anthropic", "Anthropic", False),
            ("gemini", "Gemini", False),
            ("ollama", "Ollama", False),
            ("openai", "OpenAI", False),
        ]
        assert runtime.list_configurable_providers()[0] == ConfigurableProvider(
            "fast", "fast", "trio_llm", ("providers", "fast"), declared=True
        )
        providers.replace(LlmConfig([deepseek("deepseek")]))
        assert [entry[0] for entry in listed()] == ["deepseek", "anthropic", "gemini", "ollama", "openai"]


def test_configuration_leaves_the_directory_of_others_alone() -> None:
    runtime = LlmRuntime()
    own = [ConfigurableProvider(name, name, "mine", ()) for name in known_kinds()]
    with runtime.register_configurable_providers(own), apply_config(runtime, LlmConfig()) as providers:
        assert runtime.list_configurable_providers() == tuple(own)
        with apply_config(runtime, LlmConfig([deepseek("two")])):
            providers.replace(LlmConfig([deepseek("one")]))
            names = [entry.provider for entry in runtime.list_configurable_providers()]
            assert names == [*known_kinds(), "two", "one"]
