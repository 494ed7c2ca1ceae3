"""Kinds: loaded on first use, from this library or another."""

import subprocess
import sys
from pathlib import Path
from typing import Any

import attrs
import pytest

from trio_llm.config import Kind, find_kind, known_kinds, read_config, register_kind
from trio_llm.config.kinds import _kinds
from trio_llm.model import codes
from trio_llm.model.failures import LlmError
from trio_llm.providers.openai_chat.profiles import OPENAI
from trio_llm.streaming.contract import LlmAdapter
from trio_llm.testing.scripted import ScriptedAdapter

from ..runtime.support import raises_code


@attrs.frozen
class OwnConfig:
    """What a third party's adapter needs; one field is not for a file to say."""

    url: str
    log: type | None = None

    def __attrs_post_init__(self) -> None:
        if self.url == "nowhere":
            raise LlmError("there is no such place", codes.INVALID_CONFIG)


def make_adapter(config: object) -> LlmAdapter:
    return ScriptedAdapter([])


OWN = Kind(f"{__name__}:make_adapter", f"{__name__}:OwnConfig")


@pytest.fixture
def own_kind(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(_kinds, "own", OWN)


def test_configuration_loads_only_what_it_names() -> None:
    program = """
import sys
from trio_llm.config import read_config
def loaded(): return sorted(name for name in sys.modules if name.startswith("trio_llm.providers."))
print(loaded())
read_config({"providers": {"x": {"kind": "anthropic"}}})
print("trio_llm.providers.anthropic" in loaded(), "trio_llm.providers.openai_chat" in loaded())
"""
    done = subprocess.run([sys.executable, "-c", program], check=True, capture_output=True, text=True)
    assert done.stdout.splitlines() == ["[]", "True False"]


@pytest.mark.parametrize("name", known_kinds())
def test_every_kind_loads(name: str) -> None:
    kind = find_kind(name)
    assert attrs.has(kind.config_class())
    assert set(kind.named) <= set(attrs.fields_dict(kind.config_class()))


def test_a_third_party_registers_a_kind(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("trio_llm.config.kinds._kinds", {})
    register_kind("own", OWN)
    register_kind("own", OWN)  # the same again is no conflict
    assert known_kinds() == {"own": OWN}
    (provider,) = read_config({"providers": {"x": {"kind": "own", "url": "u"}}}).providers
    assert provider.settings == OwnConfig("u")
    for name, kind in (("own", attrs.evolve(OWN, display_name="Other")), ("", OWN)):
        with raises_code(codes.INVALID_CONFIG):
            register_kind(name, kind)


def test_what_a_file_cannot_say_is_no_key(own_kind: None) -> None:
    with pytest.raises(LlmError, match=r"providers\.x\.log: is not a known key; known: 'url'"):
        read_config({"providers": {"x": {"kind": "own", "url": "u", "log": "x"}}})


def test_a_kind_refuses_settings_in_its_own_words(own_kind: None) -> None:
    with pytest.raises(LlmError, match=r"providers\.x: there is no such place"):
        read_config({"providers": {"x": {"kind": "own", "url": "nowhere"}}})


@pytest.fixture
def installed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A distribution that offers kinds."""
    about = tmp_path / "offering-1.0.dist-info"
    about.mkdir()
    (about / "METADATA").write_text("Metadata-Version: 2.1\nName: offering\nVersion: 1.0\n")
    (about / "entry_points.txt").write_text(
        f"[trio_llm.kinds]\noffered = {__name__}:OWN\n"
        f"broken = offering_nowhere:KIND\nodd = {__name__}:pytest\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    return tmp_path


def test_an_installed_package_offers_kinds(installed: Path) -> None:
    assert find_kind("offered") is OWN
    (provider,) = read_config({"providers": {"x": {"kind": "offered", "url": "u"}}}).providers
    assert provider.settings == OwnConfig("u")


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("broken", "offering_nowhere:KIND does not load: No module named 'offering_nowhere'"),
        ("odd", f"{__name__}:pytest is no Kind"),
        ("offred", "is no kind of provider; did you mean 'offered'?"),
    ],
)
def test_a_kind_that_is_none_is_a_fault(installed: Path, name: str, said: str) -> None:
    with pytest.raises(LlmError) as caught:
        read_config({"providers": {"x": {"kind": name}}})
    assert caught.value.failure.message == f"the configuration: providers.x.kind: {said}"
    assert caught.value.code == codes.INVALID_CONFIG


@pytest.mark.parametrize("path", ["json:nothing", "json", "", "no_such_module:x", "json:"])
def test_a_kind_whose_classes_are_not_there(path: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(_kinds, "own", Kind(path, path))
    with pytest.raises(LlmError, match=r"providers\.x\.kind: .*does not load"):
        read_config({"providers": {"x": {"kind": "own"}}})


@pytest.mark.parametrize(
    "kind", ["anthropic", "deepseek", "gemini", "ollama", "openai", "openai-chat", "pydantic-ai"]
)
def test_the_repr_of_settings_holds_no_secret(kind: str) -> None:
    required: dict[str, Any] = {}
    if kind == "openai-chat":
        required = {"profile": OPENAI}
    elif kind == "pydantic-ai":
        required = {"provider": "openai"}
    url = "https://me:secret-word@gateway.example/v1?key=secret-word"
    make = known_kinds()[kind].config_class()
    settings = make(base_url=url, api_key="secret-word", headers={"x-key": "secret-word"}, **required)
    assert settings.base_url == url
    assert "secret-word" not in repr(settings)
    assert "base_url='https://gateway.example/v1?key=***'" in repr(settings)
