"""Overflow and quota, told from their look-alikes."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.shared_data import RECORDINGS, requires_recordings
from trio_llm.model.classify import (
    is_context_window_exceeded,
    is_quota_exceeded,
    is_rate_limit_code,
    normalize_code,
)


def wordings() -> list[dict[str, object]]:
    source = RECORDINGS / "errors" / "wordings.jsonl"
    return [json.loads(line) for line in source.read_text().splitlines()] if source.is_file() else []


@requires_recordings
@pytest.mark.parametrize("row", wordings(), ids=lambda row: f"{row['provider']}-{row['message']}"[:60])
def test_L25_wordings_of_providers(row: dict[str, str]) -> None:
    said = bool(row["message"])  # who says nothing cannot be read: Cerebras' bare 400, Ollama's silence
    expected = row["class"] == "CONTEXT_WINDOW_EXCEEDED" and said
    assert is_context_window_exceeded(row["message"]) is expected
    assert not is_quota_exceeded(row["message"])


@pytest.mark.parametrize(
    "text",
    [
        "context_length_exceeded",
        "context-window-exceeded",
        "context window overflowed",
        "CONTEXT WINDOW EXCEEDED",
        "the maximum context length is 4096 tokens",
        "The prompt is too long for this model",
        "The request is too large for the model context",
        "Your input exceeds the context window of this model.",
        "the request exceeds the available context size. try increasing the context size",
        "input length and `max_tokens` exceed context limit: 190000 + 20000 > 200000",
        "This model's maximum prompt length is 131072 but the request contains 537812 tokens.",
        "prompt token count of 140000 exceeds the limit of 128000",
        "The decoder prompt (length 5000) is longer than the maximum model length of 4096.",
        "Prompt contains 140000 tokens, too large for model with 131072 maximum context length",
        "`inputs` tokens + `max_new_tokens` must be <= 4097. Given: 4000 `inputs` tokens",
        "Range of input length should be [1, 30720]",
        "The input length exceeds the model's context length",
        "too many tokens: size limit exceeded by 25836 tokens.",
        "Request too large for gpt-4o on tokens per min (TPM): Limit 30,000, Requested 31,538.",
        "Rate limit on tokens per minute (TPM): Limit 6000, Requested 14810",
    ],
)
def test_L25_overflow_wording(text: str) -> None:
    assert is_context_window_exceeded(text)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "invalid input: temperature exceeds maximum allowed value",
        "context window size must be positive",
        "Token limit reached",
        "max_tokens: 100000 > 8192, which is the maximum allowed number of output tokens",
        "max_tokens is too large: 100000. This model supports at most 4096 completion tokens.",
        "Invalid 'tools[0].function.name': string too long. Expected a string with maximum length 64.",
        "Rate limit reached on tokens per min (TPM): Limit 30000, Used 28039, Requested 3906.",
        "Rate limit reached on requests per min (RPM): Limit 3, Used 3, Requested 4.",
        "Too many tokens, please wait before trying again.",
        "Tokens per minute limit exceeded - too many tokens processed.",
        "unknown field context",
        "tool description is too long",
    ],
)
def test_L25_no_overflow(text: str) -> None:
    assert not is_context_window_exceeded(text)


@pytest.mark.parametrize(
    "code",
    [
        "context_length_exceeded",
        "CONTEXT_LENGTH_EXCEEDED",
        "ContextWindowExceededError",
        "model_context_window_exceeded",
        "context-window-overflow",
        "exceed_context_size_error",
        "too_many_prompt_tokens",
        "TOO_MANY_TOKENS",
        "prompt_too_long",
    ],
)
def test_L25_overflow_by_field_alone(code: str) -> None:
    assert is_context_window_exceeded(None, [400, None, code])
    assert not is_quota_exceeded(None, [code])


def test_L25_a_rate_limit_by_field_is_no_overflow() -> None:
    assert is_context_window_exceeded("Too many tokens")
    assert not is_context_window_exceeded("Too many tokens", ["ThrottlingException"])
    assert not is_context_window_exceeded("limit hit", ["too_many_tokens_error"])


@pytest.mark.parametrize(
    "text",
    [
        "Insufficient quota",
        "insufficient_quota",
        "Insufficient Balance",
        "Insufficient account balance",
        "insufficient credits. Add more using the settings page",
        "Your balance is exhausted",
        "All credits exhausted",
        "You have exhausted your available credits",
        "Usage limit exceeded",
        "You have reached your specified API usage limits.",
        "out of credits",
        "Your credit balance is too low to access the API.",
        "This request requires more credits, or fewer max_tokens.",
        "Your newly created team doesn't have any credits yet.",
        "Your team has either used all available credits or reached its monthly spending limit.",
        "Your prepayment credits are depleted.",
        "You exceeded your current quota, please check your plan and billing details.",
        "You exceeded your current quota. See https://help.example/docs/rate-limits",
        "Billing hard limit has been reached",
        "Key limit exceeded (total limit).",
        "Your account is not active, please check your billing details on our website.",
    ],
)
def test_L25_quota_wording(text: str) -> None:
    assert is_quota_exceeded(text)
    assert not is_context_window_exceeded(text)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "Rate limit reached for requests",
        "Too many requests",
        "Your quota resets in 20 minutes",
        "Quota exceeded; it resets at midnight",
        "Quota exceeded for requests per minute. Retry in 20s.",
        "You exceeded your current quota. Please retry in 48.9s.",
        "Rate limit exceeded: free-models-per-day. Add 10 credits to unlock 1000 requests per day",
        "Requests have exceeded the call rate limit. See https://aka.ms/oai/quota-exceeded to increase it.",
        "quota must be positive",
        "Not allowed; see https://help.example/quota/exceeded",
    ],
)
def test_L25_no_quota(text: str) -> None:
    assert not is_quota_exceeded(text)


@pytest.mark.parametrize(
    "code",
    [
        "insufficient_quota",
        "insufficient_user_quota",
        "InsufficientBalance",
        "exceeded_current_quota_error",
        "billing_hard_limit_reached",
        "billing_error",
        "Arrearage",
        "usage_limit_reached",
        "AccountOverdueError",
        "quota_exceeded",
    ],
)
def test_L25_quota_by_field_alone(code: str) -> None:
    assert is_quota_exceeded(None, [code])


def test_L25_structured_fields_tell_one_sentence_apart() -> None:
    sentence = "You exceeded your current quota, please check your plan and billing details."
    assert is_quota_exceeded(sentence)
    assert is_quota_exceeded(sentence, ["insufficient_quota"])
    assert not is_quota_exceeded(sentence, ["RESOURCE_EXHAUSTED"])
    assert not is_quota_exceeded(None, ["quota_exceeded", "rate_limit_error"])
    assert not is_quota_exceeded(None, ["token_quota_exceeded"])
    assert is_quota_exceeded("Your prepayment credits are depleted.", ["RESOURCE_EXHAUSTED"])


@pytest.mark.parametrize(
    ("spelled", "normal"),
    [
        ("RateLimitReached", "rate_limit_reached"),
        ("ResponsibleAIPolicyViolation", "responsible_ai_policy_violation"),
        ("CONTEXT_LENGTH_EXCEEDED", "context_length_exceeded"),
        ("com.amazon.coral#ThrottlingException", "throttling_exception"),
        ("ValidationException:http://internal/coral/", "validation_exception"),
        ("invalid-argument", "invalid_argument"),
        ("Client specified an invalid argument", ""),
        ("x" * 65, ""),
        (429, ""),
        (None, ""),
    ],
)
def test_codes_have_one_spelling(spelled: object, normal: str) -> None:
    assert normalize_code(spelled) == normal


def test_rate_limit_codes() -> None:
    assert is_rate_limit_code([None, "RateLimitReached"])
    assert not is_rate_limit_code(["insufficient_quota", 429])


@given(st.text(max_size=300), st.lists(st.one_of(st.none(), st.integers(), st.text(max_size=80)), max_size=4))
def test_L25_never_raises(message: str, words: list[object]) -> None:
    assert is_context_window_exceeded(message, words) in (True, False)
    assert is_quota_exceeded(message, words) in (True, False)


def test_L25_an_endless_message_is_read_in_bounded_time() -> None:
    for piece in ("exceeded ", "context ", "tokens limit: 1 ", "quota ", "too long for this "):
        assert not is_context_window_exceeded(piece * 100_000)
        assert not is_quota_exceeded(piece.replace("exceeded", "x") * 100_000)
