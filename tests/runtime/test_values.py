"""Facts the runtime relies on in the values it hands around."""

from __future__ import annotations

import importlib.metadata
import math
from typing import Any

import attrs
import pytest

from trio_llm.model import codes
from trio_llm.model.classify import is_context_window_exceeded, is_quota_exceeded
from trio_llm.model.content import ToolResultBlock
from trio_llm.model.error_chain import error_chain
from trio_llm.model.failures import LlmError, LlmFailure
from trio_llm.model.identifiers import CallId
from trio_llm.model.identity import APP_IDENTITY, AppIdentity, attribution_headers
from trio_llm.model.messages import (
    ModelSource,
    PluginSource,
    ToolSource,
    UserSource,
    create_assistant_message,
    create_message,
    create_tool_result_message,
    create_user_message,
)
from trio_llm.model.policy import AlwaysRetry, NormalRetry, retry_policy
from trio_llm.model.requests import (
    CONFIG_FIELDS,
    LlmCallConfig,
    NamedTool,
    ResponseFormat,
    call_config,
    call_config_equals,
)
from trio_llm.transport.credentials import resolve_credential

from .support import raises_code, request


@pytest.mark.parametrize(
    "facts",
    [
        {"message": ""},
        {"code": ""},
        {"status": 99},
        {"status": 600},
        {"status": True},
        {"status": 200.0},
        {"provider_retry_after_ms": 0},
        {"provider_retry_after_ms": -1},
        {"provider_retry_after_ms": math.inf},
        {"provider_retry_after_ms": math.nan},
        {"request_id": ""},
    ],
)
def test_L23_an_error_validates_its_facts(facts: dict[str, Any]) -> None:
    valid: dict[str, Any] = {"message": "m", "code": "C"}
    with pytest.raises(ValueError, match=r".+"):
        LlmError(**(valid | facts))
    with pytest.raises(ValueError, match=r".+"):
        LlmFailure(**(valid | facts))
    error = LlmError("m", "C", status=100, provider_retry_after_ms=0.5)
    assert error.failure == LlmFailure("m", "C", 100, 0.5)


@pytest.mark.parametrize(
    "text",
    [
        "context_length_exceeded",
        "context_window_exceeded",
        "This model's maximum context length is 8192 tokens",
        "the input is too long for this model",
        "the request is too large for the model context",
        "your prompt exceeds the context window",
    ],
)
def test_L25_overflow_wordings_are_recognised(text: str) -> None:
    assert is_context_window_exceeded(text)


@pytest.mark.parametrize("text", ["temperature must be at most 2", "messages: field required"])
def test_L25_unrelated_validation_text_is_no_overflow(text: str) -> None:
    assert not is_context_window_exceeded(text)


@pytest.mark.parametrize(
    "text",
    [
        "insufficient quota",
        "your balance is exhausted",
        "your credits are exhausted",
        "usage limit exceeded",
        "you are out of credits",
    ],
)
def test_L25_quota_wordings_are_recognised(text: str) -> None:
    assert is_quota_exceeded(text)


@pytest.mark.parametrize("text", ["rate limit reached, try again in 20 s", "quota resets in 5 minutes"])
def test_L25_rate_limits_are_no_quota(text: str) -> None:
    assert not is_quota_exceeded(text)


def test_L26_chains_show_outermost_first_and_each_text_once() -> None:
    inner = ValueError("inner")
    middle = KeyError("middle")
    middle.__cause__ = inner
    outer = RuntimeError("outer")
    outer.__cause__ = middle
    text = error_chain(outer)
    assert text.index("outer") < text.index("middle") < text.index("inner")
    repeating = RuntimeError("same")
    repeating.__cause__ = ValueError("same")
    assert error_chain(repeating).count("same") == 1
    group = ExceptionGroup("several", [ValueError("one"), ValueError("two")])
    bracketed = error_chain(group)
    assert "[" in bracketed
    assert bracketed.index("one") < bracketed.index("two") < bracketed.index("]")


def test_L26_cycles_and_hostile_texts_are_survived() -> None:
    class Hostile(Exception):
        def __str__(self) -> str:
            raise RuntimeError("no text for you")

    one, two = ValueError("one"), Hostile()
    one.__cause__, two.__cause__ = two, one
    assert "one" in error_chain(one)
    assert error_chain(two)


def test_others_retry_policy_values() -> None:
    assert retry_policy({}) == NormalRetry()
    assert retry_policy({"mode": "always", "jitter_ratio": 0}) == AlwaysRetry(jitter_ratio=0)
    assert NormalRetry().max_retries == 5
    assert set(NormalRetry().retryable_codes) == {
        codes.EMPTY_RESPONSE,
        codes.RATE_LIMIT,
        codes.SERVER,
        codes.TIMEOUT,
        codes.TRANSPORT,
        codes.STREAM_CLOSED,
    }
    with pytest.raises(attrs.exceptions.FrozenInstanceError):
        NormalRetry().max_retries = 1  # type: ignore[misc]  # the point of it
    for bad in (
        {"unknown": 1},
        {"mode": "often"},
        {"mode": "always", "max_retries": 1},
        {"retryable_codes": ["A", "A"]},
        {"retryable_codes": [""]},
        {"initial_delay_ms": 0},
        {"initial_delay_ms": 2, "max_delay_ms": 1},
        {"max_delay_ms": math.inf},
        {"jitter_ratio": 1.1},
        {"max_retries": -1},
    ):
        with pytest.raises(ValueError, match=r".+"):
            retry_policy(bad)


def test_others_message_constructors() -> None:
    one, two = create_user_message("a"), create_user_message("a")
    assert one.id != two.id
    assert (one.role, one.source) == ("user", UserSource())
    source = ModelSource("p", "m")
    assert create_assistant_message("a", source).role == "assistant"
    assert create_message("system", "a", PluginSource("x")).role == "system"
    result = create_tool_result_message(CallId("c"), "done", is_error=True)
    assert (result.role, result.source) == ("user", ToolSource(CallId("c")))
    assert result.content == (ToolResultBlock(CallId("c"), "done", True),)


def test_others_attribution_has_the_version_from_metadata(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(importlib.metadata, "version", {"trio-llm": "9.8.7"}.__getitem__)
    assert attribution_headers(AppIdentity()) == {"user-agent": "trio-llm/9.8.7"}
    assert attribution_headers() == attribution_headers(APP_IDENTITY)
    own = AppIdentity("tool", "2", "https://example.org")
    assert attribution_headers(own) == {"user-agent": "tool/2 (+https://example.org)"}


async def test_others_api_keys_are_trimmed_checked_and_never_echoed() -> None:
    assert await resolve_credential("  sk-!~ \n", "p") == "sk-!~"
    for bad in ("sk secret", "sk-s\u00e9cret", "sk-secret\x7f"):
        with raises_code(codes.INVALID_CREDENTIAL) as caught:
            await resolve_credential(bad, "p")
        assert bad not in str(caught.value)
        assert "secret" not in str(caught.value)
    for missing in ("", " \t", None):
        with raises_code(codes.MISSING_CREDENTIAL):
            await resolve_credential(missing, "p")


def test_others_call_config_equality_compares_every_field() -> None:
    options = request()
    assert call_config_equals(options, call_config(options))
    changed: dict[str, Any] = {
        "provider": "other",
        "model": "other",
        "reasoning_effort": "low",
        "temperature": 0.0,
        "max_tokens": 1,
        "stop": ("x",),
        "top_p": 0.5,
        "tool_choice": NamedTool("t"),
        "response_format": ResponseFormat({}),
        "provider_options": {"a": 1},
    }
    assert set(changed) == set(CONFIG_FIELDS)
    base = LlmCallConfig(provider="p", model="m")
    for name, value in changed.items():
        assert not call_config_equals(base, attrs.evolve(base, **{name: value}))
    assert call_config_equals(options, request(system="not configuration", messages=[]))
