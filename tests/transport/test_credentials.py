"""Keys come from where the caller says, fit for a header, and never show."""

import copy
import json
from typing import Any

import attrs
import pytest
import trio
from hypothesis import given
from hypothesis import strategies as st

from tests.shared_data import CASES, requires_cases
from trio_llm.model.failures import LlmError
from trio_llm.transport.credentials import (
    Credential,
    EnvironmentVariable,
    Secret,
    protect,
    resolve_credential,
)

KEY = "sk-test-123"


async def refused(credential: Any) -> LlmError:
    with pytest.raises(LlmError) as caught:
        await resolve_credential(credential, "acme")
    assert "'acme'" in str(caught.value)
    return caught.value


def case_rows() -> list[dict[str, Any]]:
    source = CASES / "64-credentials-that-cannot-be-a-header" / "case.json"
    rows = json.loads(source.read_text())["input"]["rows"] if source.is_file() else []
    return [row for row in rows if "key" in row]


@requires_cases
@pytest.mark.parametrize("row", case_rows(), ids=lambda row: row["name"])
async def test_case_64_keys_that_cannot_be_a_header(row: dict[str, Any]) -> None:
    expect = row["expect"]
    if "outcome" in expect:
        assert await resolve_credential(row["key"], "acme") == KEY
        return
    error = await refused(row["key"])
    assert error.code in expect.get("code_any_of", [expect.get("code")])
    assert "test" not in str(error)
    assert "sk" not in str(error)
    if "message_contains" in expect:
        assert "U+2014 at character 3" in str(error)


async def test_D10_every_source_gives_the_key(monkeypatch: pytest.MonkeyPatch) -> None:
    async def later() -> str:
        await trio.lowlevel.checkpoint()
        return f" {KEY}\n"

    async def later_secret() -> Secret:
        return Secret(KEY)

    monkeypatch.setenv("ACME_KEY", f"{KEY}\n")
    sources: list[Credential] = [
        KEY,
        Secret(KEY),
        EnvironmentVariable("ACME_KEY"),
        lambda: KEY,
        lambda: Secret(KEY),
        later,
        later_secret,
    ]
    for source in sources:
        assert await resolve_credential(source, "acme") == KEY
        assert await resolve_credential(protect(source), "acme") == KEY


async def test_D10_a_source_is_asked_at_each_call(monkeypatch: pytest.MonkeyPatch) -> None:
    source = EnvironmentVariable("ACME_KEY")
    for key in ("first", "second"):
        monkeypatch.setenv("ACME_KEY", key)
        assert await resolve_credential(source, "acme") == key


async def test_D10_MISSING_CREDENTIAL_at_request_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("ACME_KEY", raising=False)
    error = await refused(EnvironmentVariable("ACME_KEY"))
    assert error.code == "MISSING_CREDENTIAL"
    assert "environment variable ACME_KEY is not set" in str(error)
    monkeypatch.setenv("ACME_KEY", "  ")
    error = await refused(EnvironmentVariable("ACME_KEY"))
    assert error.code == "MISSING_CREDENTIAL"
    assert "ACME_KEY is empty" in str(error)
    for nothing in (None, "", " \n", Secret(""), lambda: None, lambda: ""):
        assert (await refused(nothing)).code == "MISSING_CREDENTIAL"


async def test_P05_a_named_but_missing_key_falls_back_to_no_other(monkeypatch: pytest.MonkeyPatch) -> None:
    for ambient in ("OPENAI_API_KEY", "DEEPSEEK_API_KEY", "ANTHROPIC_API_KEY", "API_KEY"):
        monkeypatch.setenv(ambient, KEY)
    monkeypatch.delenv("ACME_KEY", raising=False)
    assert (await refused(EnvironmentVariable("ACME_KEY"))).code == "MISSING_CREDENTIAL"
    assert (await refused(None)).code == "MISSING_CREDENTIAL"


async def test_D10_a_callable_that_fails() -> None:
    def broken() -> str:
        raise OSError("cannot read sk-secret")

    error = await refused(broken)
    assert error.code == "MISSING_CREDENTIAL"
    assert "OSError" in str(error)
    assert "secret" not in str(error)
    assert isinstance(error.__cause__, OSError)

    def own() -> str:
        raise LlmError("the vault of 'acme' is locked", "VAULT")

    assert (await refused(own)).code == "VAULT"


async def test_cancellation_passes_an_async_callable() -> None:
    async def never() -> str:
        await trio.sleep_forever()

    with trio.CancelScope() as scope:
        scope.cancel()
        await resolve_credential(never, "acme")
    assert scope.cancelled_caught


@pytest.mark.parametrize("wrong", [b"sk-secret", 7, ["sk-secret"], Secret(b"sk-secret")])  # type: ignore[arg-type]
async def test_D10_INVALID_CREDENTIAL_for_what_is_no_text(wrong: object) -> None:
    error = await refused(wrong)
    assert error.code == "INVALID_CREDENTIAL"
    assert "secret" not in str(error)


@pytest.mark.parametrize("character", ["\x7f", "\x00", "\t", " ", "\u00e9", "\u2026", "\ufeff", "\ud83d"])
async def test_D10_INVALID_CREDENTIAL_never_echoes(character: str) -> None:
    error = await refused(f"hush{character}quiet")
    assert error.code == "INVALID_CREDENTIAL"
    assert f"U+{ord(character):04X} at character 5" in str(error)
    assert "hush" not in str(error)
    assert "quiet" not in str(error)


async def test_the_whole_range_is_allowed() -> None:
    key = "".join(map(chr, range(0x21, 0x7F)))
    assert await resolve_credential(key, "acme") == key


def test_a_secret_shows_itself_only_when_asked() -> None:
    @attrs.frozen
    class Config:
        api_key: Credential | None = attrs.field(converter=protect)

    for shown in (repr(Config(KEY)), repr(Secret(KEY)), str(Secret(KEY)), f"{Secret(KEY)}"):
        assert KEY not in shown
    assert Secret(KEY).value == copy.deepcopy(Secret(KEY)).value == KEY
    assert Config(KEY) == Config(KEY)
    assert protect(None) is None
    assert protect(EnvironmentVariable("A")) == EnvironmentVariable("A")


@pytest.mark.parametrize("name", ["", "A=B", "A\0", None])
def test_names_of_environment_variables_are_checked(name: Any) -> None:
    with pytest.raises(ValueError, match="environment variable"):
        EnvironmentVariable(name)


@given(st.text(max_size=30))
def test_API_keys_are_printable_ascii_or_refused(text: str) -> None:
    async def attempt() -> str:
        return await resolve_credential(text, "acme")

    try:
        key = trio.run(attempt)
    except LlmError as error:
        assert error.code in ("MISSING_CREDENTIAL", "INVALID_CREDENTIAL")  # noqa: PT017  # either end is right
    else:
        assert key == text.strip()
        assert all(0x21 <= ord(character) <= 0x7E for character in key)
