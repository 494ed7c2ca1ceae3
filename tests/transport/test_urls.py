"""Base URLs are prefixes; what is wrong with one is said without repeating its secrets."""

import json
from typing import Any
from urllib.parse import urlsplit

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.shared_data import CASES, requires_cases
from trio_llm.model.failures import LlmError
from trio_llm.transport.urls import join_url, redact_url


def case_rows() -> list[dict[str, Any]]:
    source = CASES / "65-base-url-joining" / "case.json"
    return list(json.loads(source.read_text())["input"]["rows"]) if source.is_file() else []


@requires_cases
@pytest.mark.parametrize("row", case_rows(), ids=lambda row: row["base_url"].strip())
def test_case_65_base_url_joining(row: dict[str, str]) -> None:
    base, expected = row["base_url"], row["expect_url"]
    if "scheme is missing" in expected:
        with pytest.raises(LlmError, match="has no scheme") as caught:
            join_url(base, "chat/completions")
        assert caught.value.code == "INVALID_BASE_URL"
        return
    if expected == "same as without slash":
        expected = join_url(base.rstrip("/"), "chat/completions")
    assert join_url(base, "chat/completions") == expected.split(" OR ")[0]
    assert join_url(base, "/chat/completions") == expected.split(" OR ")[0]


@pytest.mark.parametrize(
    ("base", "path", "url"),
    [
        ("https://h", "", "https://h/"),
        ("https://h/", "/", "https://h/"),
        ("https://h/a", "", "https://h/a"),
        ("https://h/v1", "v1/messages", "https://h/v1/messages"),
        ("https://h/v1/", "/v1/messages", "https://h/v1/messages"),
        ("https://h", "v1/messages", "https://h/v1/messages"),
        ("https://h/proxy", "v1/messages", "https://h/proxy/v1/messages"),
        (
            "https://h/v1",
            "v1beta/models/m:streamGenerateContent?alt=sse",
            "https://h/v1/models/m:streamGenerateContent?alt=sse",
        ),
        ("https://h/v1?a=1", "x?b=2", "https://h/v1/x?a=1&b=2"),
        ("https://h?a=1", "x", "https://h/x?a=1"),
        ("https://h/v1/messages", "v1/messages", "https://h/v1/messages"),
        ("https://h/models", "models", "https://h/models/models"),
        ("https://h/a//b", "c/", "https://h/a/b/c/"),
        ("HTTPS://H.example:8443/V1", "x", "https://H.example:8443/V1/x"),
        ("https://bücher.example/v1", "x", "https://bücher.example/v1/x"),
        ("http://[::1]:8080", "x", "http://[::1]:8080/x"),
    ],
)
def test_join_keeps_prefixes(base: str, path: str, url: str) -> None:
    assert join_url(base, path) == url


@pytest.mark.parametrize(
    ("base", "says"),
    [
        ("", "is empty"),
        (" \n", "is empty"),
        ("h.example/v1", "no scheme"),
        ("sk-secret-key", "no scheme"),
        ("https:/h.example", "no scheme"),
        ("localhost:8080/v1", "no scheme"),
        ("ftp://h.example/secret", "ftp://"),
        ("file:///secret", "file://"),
        ("https://", "no host"),
        ("https:///v1", "no host"),
        ("https://:443/v1", "no host"),
        ("https://h:99999/v1", "port"),
        ("https://h:eighty/v1", "port"),
        ("https://h:0/v1", "port 0"),
        ("https://[::1/v1", "not valid"),
        ("https://[zz]/v1", "not valid"),
        ("https://h.example/v1 /secret", "U+0020 at character 21"),
        ("https://h.ex\nample/v1", "U+000A"),
        ("https://h.example\\secret", "U+005C"),
        ("https://h.example\u00a0/v1", "U+00A0"),
        ("https://user:secret@h.example/v1", "user name or password"),
        ("https://secret@h.example/v1", "user name or password"),
        ("https://h.example/v1#secret", "fragment"),
        ("https://h.example/v1#", "fragment"),
        ("https://h!st/v1", "host that is not valid"),
        ("https://\u2024\u2024/v1", "not valid"),
        (f"https://{'ü' * 80}.example/v1", "host that is not valid"),
    ],
)
def test_INVALID_BASE_URL_says_why_and_no_secret(base: str, says: str) -> None:
    with pytest.raises(LlmError) as caught:
        join_url(base, "chat/completions")
    assert caught.value.code == "INVALID_BASE_URL"
    assert says in str(caught.value)
    assert "secret" not in str(caught.value)


@pytest.mark.parametrize(
    ("url", "shown"),
    [
        (
            "https://u:p@h.example/v1?key=SECRET&alt=sse&api-version=1#frag",
            "https://h.example/v1?key=***&alt=sse&api-version=1",
        ),
        ("https://h/v1?token", "https://h/v1?token=***"),
        ("wss://h/v1", "wss://h/v1"),
        ("https://h", "https://h"),
        ("sk-secret", "an invalid URL"),
        ("https://[oops", "an invalid URL"),
        ("", "an invalid URL"),
    ],
)
def test_redacted_urls_hold_no_secret(url: str, shown: str) -> None:
    assert redact_url(url) == shown


@given(st.text(max_size=60))
def test_redact_never_raises(text: str) -> None:
    assert redact_url(text)
    assert redact_url(f"https://u:p@{text}")


SEGMENTS = st.lists(st.sampled_from(["v1", "api", "", "chat", "v1beta"]), max_size=4).map("/".join)


PATHS = st.sampled_from(
    ["", "/", "chat", "//chat//x/", "v1/chat", "/v1/messages", "v1beta//models/m:go", "v1"]
)


@given(SEGMENTS, PATHS, st.sampled_from(["", "?q=1"]))
def test_join_never_doubles_a_slash_or_a_version(prefix: str, path: str, query: str) -> None:
    joined = urlsplit(join_url(f"https://h/{prefix}{query}", path))
    assert joined.query == query[1:]
    assert "//" not in joined.path
    before = [segment for segment in prefix.split("/") if segment]
    if "/v1/v1" in joined.path:  # only where the base itself says so
        assert "v1/v1" in "/".join(before)
    assert joined.path.startswith("/" + "/".join(before))


@given(st.text(max_size=40))
def test_join_gives_a_url_or_INVALID_BASE_URL(text: str) -> None:
    for base in (text, f"https://{text}", f"https://h/{text}"):
        try:
            url = join_url(base, "chat/completions")
        except LlmError as error:
            assert error.code == "INVALID_BASE_URL"  # noqa: PT017  # most texts are refused, some are URLs
        else:
            assert "//" not in urlsplit(url).path
