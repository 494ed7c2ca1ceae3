"""DeepSeek: its headers, its thinking, its models, its configuration; its streams over the wire."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import attrs
import pytest
import trio

from trio_llm.model.catalogue import ModelContext
from trio_llm.model.chunks import Error, Stop
from trio_llm.model.content import Attachment, ImageBlock
from trio_llm.model.identifiers import ReasoningEffortId
from trio_llm.model.identity import AppIdentity
from trio_llm.model.messages import create_user_message
from trio_llm.model.policy import NormalRetry, Timeouts
from trio_llm.model.requests import ResponseFormat
from trio_llm.providers.deepseek import DeepSeekAdapter, DeepSeekConfig
from trio_llm.providers.openai_chat import ChatModel
from trio_llm.testing.wire_script import Gate, Response, event_stream
from trio_llm.testing.wire_server import WireServer
from trio_llm.transport.client import HttpClient
from trio_llm.transport.credentials import EnvironmentVariable

from ..shared_data import RECORDINGS, requires_recordings
from . import streams
from .bench import Bench
from .test_chat_recordings import check
from .wire import RecordingSink, ask, open_stream, run

HI = b'data: {"choices": [{"delta": {"content": "hi"}}]}\n\n'
DONE = b"data: [DONE]\n\n"


def config(server: WireServer, **changes: Any) -> DeepSeekConfig:
    return DeepSeekConfig(**{"api_key": "sk-test-123", "base_url": server.base_url} | changes)


async def body_for(changes: dict[str, Any] | None = None, **fields: Any) -> dict[str, Any]:
    """What is sent for a request."""
    async with (
        WireServer(event_stream(HI, DONE)) as server,
        DeepSeekAdapter(config(server, **changes or {})) as adapter,
    ):
        await adapter.produce(ask(**fields), RecordingSink())
    body = server.requests[0].json()
    assert isinstance(body, dict)
    return body


refusal_of = Bench(
    lambda server, **changes: DeepSeekAdapter(config(server, **changes)),
    event_stream(HI, DONE),
    Stop(raw="stop"),
).refusal_of


class TestRequest:
    async def test_D01_the_request_line_and_its_headers(self) -> None:
        async with WireServer(event_stream(HI, DONE)) as server, DeepSeekAdapter(config(server)) as adapter:
            await run(adapter)
        [request] = server.requests
        assert (request.method, request.target) == ("POST", "/chat/completions")
        assert request.header("authorization") == "Bearer sk-test-123"
        assert request.header("accept") == "text/event-stream"
        assert request.header("content-type") == "application/json"
        assert (request.header("user-agent") or "").startswith("trio-llm/")
        assert (request.header("x-session-id"), request.header("x-compaction")) == (None, None)

    async def test_D01_session_and_compaction_headers(self) -> None:
        async with WireServer(event_stream(HI, DONE)) as server, DeepSeekAdapter(config(server)) as adapter:
            await run(adapter, ask(session_id="s-1", purpose="compaction"))
            await run(adapter, ask(session_id="s-1", purpose="session-title"))
        assert [request.header("x-session-id") for request in server.requests] == ["s-1", "s-1"]
        assert [request.header("x-compaction") for request in server.requests] == ["true", None]

    async def test_configured_headers_and_another_identity(self) -> None:
        async with WireServer(event_stream(HI, DONE)) as server:
            settings = config(server, headers={"x-team": "a", "user-agent": "me"})
            async with DeepSeekAdapter(settings, identity=AppIdentity("other", "2")) as adapter:
                await run(adapter)
        assert server.requests[0].header("x-team") == "a"
        assert server.requests[0].header("user-agent") == "other/2"

    @pytest.mark.parametrize("name", ["Authorization", "content-type", "Host"])
    async def test_headers_that_are_not_for_configuration(self, name: str) -> None:
        error = await refusal_of({"headers": [(name, "x")]})
        assert error.code == "INVALID_CONFIG"
        assert name in error.failure.message


class TestThinking:
    @pytest.mark.parametrize("effort", ["low", "high", "max"])
    async def test_D02_an_effort_enables_thinking(self, effort: str) -> None:
        body = await body_for(reasoning_effort=ReasoningEffortId(effort))
        assert (body["thinking"], body["reasoning_effort"]) == ({"type": "enabled"}, effort)

    async def test_D02_off_disables_it(self) -> None:
        body = await body_for(reasoning_effort=ReasoningEffortId("off"))
        assert body["thinking"] == {"type": "disabled"}
        assert "reasoning_effort" not in body

    async def test_D02_unset_sends_nothing(self) -> None:
        body = await body_for()
        assert "thinking" not in body
        assert "reasoning_effort" not in body

    async def test_D02_a_session_title_is_not_thought_about(self) -> None:
        body = await body_for(purpose="session-title", reasoning_effort=ReasoningEffortId("max"))
        assert body["thinking"] == {"type": "disabled"}
        assert "reasoning_effort" not in body

    @pytest.mark.parametrize("effort", [None, "off"])
    async def test_D02_a_deployment_without_thinking_never_thinks(self, effort: Any) -> None:
        assert (await body_for({"thinking": False}, reasoning_effort=effort))["thinking"] == {
            "type": "disabled"
        }

    async def test_D02_a_deployment_without_thinking_refuses_the_rest(self) -> None:
        error = await refusal_of({"thinking": False}, reasoning_effort=ReasoningEffortId("high"))
        assert error.code == "UNSUPPORTED_REASONING_EFFORT"

    async def test_D02_an_unknown_effort_is_refused_not_clamped(self) -> None:
        error = await refusal_of(reasoning_effort=ReasoningEffortId("medium"))
        assert error.code == "UNSUPPORTED_REASONING_EFFORT"


class TestModels:
    async def test_the_catalogue(self) -> None:
        async with DeepSeekAdapter(DeepSeekConfig()) as adapter:
            assert adapter.provider_info("deepseek").name == "DeepSeek"
            assert adapter.provider_info("mine").name == "mine"
            listed = adapter.list_models("mine")
            assert [(model.provider, model.id) for model in listed] == [
                ("mine", "deepseek-v4-pro"),
                ("mine", "deepseek-v4-flash"),
            ]
            assert adapter.provider_retry_policy("mine") is None

    async def test_D02_the_efforts_and_their_default(self) -> None:
        async with DeepSeekAdapter(DeepSeekConfig(default_max_tokens=9)) as adapter:
            info = await adapter.resolve_model("mine", "deepseek-v4-pro")
        assert info is not None
        assert info.context == ModelContext(1_048_565)
        assert info.default_max_tokens == 9
        assert info.reasoning is not None
        assert [effort.id for effort in info.reasoning.efforts] == ["low", "high", "max", "off"]
        assert info.reasoning.default_effort == "high"

    async def test_D02_a_deployment_without_thinking_offers_only_off(self) -> None:
        async with DeepSeekAdapter(DeepSeekConfig(thinking=False)) as adapter:
            info = await adapter.resolve_model("mine", "deepseek-v4-pro")
        assert info is not None
        assert info.reasoning is not None
        assert [effort.id for effort in info.reasoning.efforts] == ["off"]
        assert info.reasoning.default_effort == "off"

    async def test_an_unlisted_model_has_the_efforts_and_nothing_invented(self) -> None:
        async with DeepSeekAdapter(DeepSeekConfig()) as adapter:
            info = await adapter.resolve_model("mine", "deepseek-v9")
        assert info is not None
        assert (info.name, info.context, info.input_modalities) == ("deepseek-v9", None, None)
        assert info.reasoning is not None

    async def test_configured_models(self) -> None:
        models: list[ChatModel | str] = [
            "plain",
            ChatModel("thinker", context_window=5, efforts=("low",), default_effort="low"),
            ChatModel("mute", efforts=()),
        ]
        async with DeepSeekAdapter(DeepSeekConfig(models=models)) as adapter:
            assert [model.id for model in adapter.list_models("p")] == ["plain", "thinker", "mute"]
            thinker, mute = (
                await adapter.resolve_model("p", "thinker"),
                await adapter.resolve_model("p", "mute"),
            )
        assert thinker is not None
        assert thinker.reasoning is not None
        assert thinker.reasoning.default_effort == "low"
        assert mute is not None
        assert mute.reasoning is None

    async def test_timeouts_and_policy_come_from_the_configuration(self) -> None:
        policy = NormalRetry(max_retries=1)
        async with DeepSeekAdapter(DeepSeekConfig(timeouts=Timeouts(idle=7), retry_policy=policy)) as adapter:
            assert adapter.provider_timeouts("p").idle == 7
            assert adapter.provider_timeouts("p").connect == 30
            assert adapter.provider_retry_policy("p") is policy

    def test_a_limit_is_positive(self) -> None:
        with pytest.raises(ValueError, match="default_max_tokens"):
            DeepSeekConfig(default_max_tokens=0)


class TestOptions:
    async def test_documented_provider_options(self) -> None:
        assert (await body_for(provider_options={"frequency_penalty": 0.5}))["frequency_penalty"] == 0.5

    @pytest.mark.parametrize("key", ["thinking", "model", "stream", "no_such"])
    async def test_others_are_refused(self, key: str) -> None:
        assert (await refusal_of(provider_options={key: 1})).code == "UNSUPPORTED_OPTION"

    async def test_what_is_refused_is_refused_before_the_key_is_asked_for(self) -> None:
        def key() -> str:
            raise AssertionError("the key is of no use here")

        refused = {"provider_options": {"no_such": 1}}, {"reasoning_effort": ReasoningEffortId("medium")}
        for fields in refused:
            assert (await refusal_of({"api_key": key}, **fields)).code.startswith("UNSUPPORTED_")

    async def test_a_schema_is_refused(self) -> None:
        assert (await refusal_of(response_format=ResponseFormat({}))).code == "UNSUPPORTED_OPTION"

    async def test_an_unreadable_image_is_refused(self, tmp_path: Path) -> None:
        image = ImageBlock(Attachment("x", "image/png", path=str(tmp_path / "none.png")))
        error = await refusal_of(messages=[create_user_message([image])])
        assert error.code == "UNSUPPORTED_CONTENT"
        assert "none.png' cannot be read: No such file" in error.failure.message


class TestConfiguration:
    async def test_D10_a_missing_key_fails_at_request_time(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.delenv("DEEPSEEK_API_KEY", raising=False)
        error = await refusal_of({"api_key": None})
        assert error.code == "MISSING_CREDENTIAL"
        assert "DEEPSEEK_API_KEY" in error.failure.message

    async def test_D10_a_key_from_the_environment(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv("MY_KEY", " sk-env \n")
        async with (
            WireServer(event_stream(HI, DONE)) as server,
            DeepSeekAdapter(config(server, api_key=EnvironmentVariable("MY_KEY"))) as adapter,
        ):
            await run(adapter)
        assert server.requests[0].header("authorization") == "Bearer sk-env"

    async def test_D10_an_invalid_key_is_never_echoed(self) -> None:
        error = await refusal_of({"api_key": "sk\u2014secret"})
        assert error.code == "INVALID_CREDENTIAL"
        assert "secret" not in str(error)
        assert "secret" not in repr(DeepSeekConfig(api_key="sk-secret", headers={"x-key": "secret"}))

    async def test_D10_one_snapshot_for_each_call(self) -> None:
        """The URL and the key are those of one moment, and a change reaches the next call alone."""
        gate = Gate()
        async with WireServer(event_stream(HI, gate, DONE)) as old, WireServer(event_stream(HI, DONE)) as new:
            present = config(old, api_key="sk-old")
            async with DeepSeekAdapter(lambda: present) as adapter:
                prepared = adapter.prepare_call("p")
                async with open_stream(adapter, ask()) as stream:
                    await stream.receive()
                    present = config(new, api_key="sk-new")
                    await run(adapter)
                    gate.open()
                    assert [chunk async for chunk in stream][-1].type == "finish"
                await prepared(ask(), RecordingSink())
        assert [request.header("authorization") for request in old.requests] == ["Bearer sk-old"] * 2
        assert [request.header("authorization") for request in new.requests] == ["Bearer sk-new"]

    async def test_D10_an_async_key_is_asked_once_for_each_call(self) -> None:
        asked = []

        async def key() -> str:
            await trio.lowlevel.checkpoint()
            asked.append(1)
            return f"sk-{len(asked)}"

        async with (
            WireServer(event_stream(HI, DONE)) as server,
            DeepSeekAdapter(config(server, api_key=key)) as adapter,
        ):
            await run(adapter)
            await run(adapter)
        assert [request.header("authorization") for request in server.requests] == [
            "Bearer sk-1",
            "Bearer sk-2",
        ]

    async def test_a_base_url_is_a_prefix(self) -> None:
        async with (
            WireServer(event_stream(HI, DONE)) as server,
            DeepSeekAdapter(config(server, base_url=f"{server.base_url}/beta/?v=1")) as adapter,
        ):
            await run(adapter)
        assert server.requests[0].target == "/beta/chat/completions?v=1"

    async def test_a_bad_base_url(self) -> None:
        assert (await refusal_of({"base_url": "h.example"})).code == "INVALID_BASE_URL"

    async def test_a_profile_without_a_base_url_wants_one(self) -> None:
        profile = attrs.evolve(DeepSeekConfig().profile, base_url=None)
        assert (await refusal_of({"base_url": None, "profile": profile})).code == "INVALID_BASE_URL"

    async def test_a_client_of_the_callers_is_not_closed(self) -> None:
        async with WireServer(event_stream(HI, DONE)) as server, HttpClient() as http:
            for _ in range(2):
                async with DeepSeekAdapter(config(server), http=http) as adapter:
                    _, stream = await run(adapter)
                assert stream.finish == Stop()
            assert len(server.connections) == 1

    async def test_its_own_client_is_closed(self) -> None:
        async with WireServer(event_stream(HI, DONE)) as server:
            async with DeepSeekAdapter(config(server)) as adapter:
                await run(adapter)
            await (await server.wait_connection()).gone.wait()

    async def test_either_a_client_or_what_makes_one(self) -> None:
        async with HttpClient() as http:
            with pytest.raises(ValueError, match="http"):
                DeepSeekAdapter(DeepSeekConfig(), http=http, max_connections=3)


def recorded_errors() -> list[Path]:
    wires = ("deepseek-chat", "openai-chat", "mistral")
    folders = sorted(path.parent for path in RECORDINGS.glob("errors/*/meta.json"))
    return [folder for folder in folders if streams.load(folder, "meta.json")["wire"] in wires]


@requires_recordings
class TestRecordings:
    @pytest.mark.parametrize(
        "folder",
        [pytest.param(f, id=f.name) for f in streams.recordings("deepseek-chat", "openai-chat", "mistral")],
    )
    async def test_every_recorded_stream_over_the_wire(self, folder: Path) -> None:
        reads = streams.recorded_reads(folder)
        async with (
            WireServer(
                Response(200, {"content-type": "text/event-stream"}, reads, settle=len(reads) < 50)
            ) as server,
            DeepSeekAdapter(config(server)) as adapter,
        ):
            chunks, stream = await run(adapter)
        check(chunks, streams.load(folder, "expected.json"))
        assert stream.settlement is not None
        assert stream.settlement.bytes_received <= sum(map(len, reads))

    @pytest.mark.parametrize("folder", [pytest.param(folder, id=folder.name) for folder in recorded_errors()])
    async def test_D08_every_recorded_error(self, folder: Path) -> None:
        meta = streams.load(folder, "meta.json")
        body = folder.joinpath(meta["bodyFile"]).read_bytes()
        async with (
            WireServer(Response(meta["status"], meta["headers"], body)) as server,
            DeepSeekAdapter(config(server)) as adapter,
        ):
            _, stream = await run(adapter)
        assert isinstance(stream.finish, Error)
        failure = stream.finish.failure
        wanted = {meta["class"], *meta.get("alsoAcceptable", ())}
        wanted = {"INVALID_REQUEST" if code == "BAD_REQUEST" else code for code in wanted}
        if "too-large" in folder.name or "too-large" in meta.get("subclass", ""):
            wanted = {"CONTEXT_WINDOW_EXCEEDED"}  # one request above the limit: only shrinking helps
        assert failure.code in wanted
        assert meta["message"][:40] in failure.message


async def test_D08_a_request_id_of_a_success() -> None:
    headers = (("x-deepseek-request-id", "r-1"),)
    async with (
        WireServer(event_stream(HI, DONE, headers=headers)) as server,
        DeepSeekAdapter(config(server)) as adapter,
    ):
        _, stream = await run(adapter)
    assert stream.finish == Stop()
    assert stream.settlement is not None
    assert stream.settlement.request_id == "r-1"
