"""Attribution: who sends the requests."""

from __future__ import annotations

from importlib import metadata

import pytest

from trio_llm.model.identity import APP_IDENTITY, AppIdentity, attribution_headers


def test_attribution_is_one_header() -> None:
    assert attribution_headers(AppIdentity("agent", "1.2")) == {"user-agent": "agent/1.2"}
    assert attribution_headers(AppIdentity("agent", "1.2", "https://example.org")) == {
        "user-agent": "agent/1.2 (+https://example.org)"
    }
    assert attribution_headers() == attribution_headers(APP_IDENTITY)


def test_attribution_has_its_version_from_the_metadata(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(metadata, "version", lambda name: {"trio-llm": "9.8.7"}[name])
    assert AppIdentity() == AppIdentity("trio-llm", "9.8.7")


def test_attribution_of_a_source_tree_has_a_version_too(monkeypatch: pytest.MonkeyPatch) -> None:
    def missing(name: str) -> str:
        raise metadata.PackageNotFoundError(name)

    monkeypatch.setattr(metadata, "version", missing)
    assert attribution_headers(AppIdentity()) == {"user-agent": "trio-llm/0"}


@pytest.mark.parametrize("part", ["", "a b", "a\nb", "ä", "a\r\nx-evil: 1", "\x7f"])
@pytest.mark.parametrize("field", ["product", "version", "url"])
def test_attribution_cannot_smuggle_or_vanish(field: str, part: str) -> None:
    with pytest.raises(ValueError, match=field):
        AppIdentity(**{field: part})
