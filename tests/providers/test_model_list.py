"""Lists of models that come in pages, and the bounds of a list as a whole."""

from __future__ import annotations

from typing import Any
from urllib.parse import parse_qs, urlsplit

import attrs
import pytest
import trio
from trio.testing import MockClock

from trio_llm.model.catalogue import DiscoveredModel, ModelDiscoveryRequest
from trio_llm.model.failures import LlmError
from trio_llm.providers.anthropic import AnthropicAdapter, AnthropicConfig
from trio_llm.providers.gemini import GeminiAdapter, GeminiConfig
from trio_llm.providers.model_list import LIST_LIMIT, LIST_SECONDS
from trio_llm.testing.wire_script import Hold, Pause, Response, json_response
from trio_llm.testing.wire_server import WireServer

GEMINI = "gemini"
ANTHROPIC = "anthropic"


def page(wire: str, ids: list[str], following: str | None) -> dict[str, Any]:
    """One page as the wire writes it; Google leaves out what is empty."""
    if wire == ANTHROPIC:
        last = following or (ids[-1] if ids else None)
        return {"data": [{"id": id} for id in ids], "has_more": following is not None, "last_id": last}
    answer: dict[str, Any] = {}
    if ids:
        answer["models"] = [{"name": f"models/{id}"} for id in ids]
    if following is not None:
        answer["nextPageToken"] = following
    return answer


async def ask(wire: str, *answers: Response) -> tuple[list[DiscoveredModel], list[str]]:
    """What is found, and the targets that were asked for."""
    async with WireServer(answers) as server:
        adapter: GeminiAdapter | AnthropicAdapter = (
            GeminiAdapter(GeminiConfig(api_key="k", base_url=server.base_url))
            if wire == GEMINI
            else AnthropicAdapter(AnthropicConfig(api_key="k", base_url=server.base_url))
        )
        async with adapter:
            found = await adapter.discover(ModelDiscoveryRequest(provider="p"))
    return found, [request.target for request in server.requests]


def cursor(target: str) -> str | None:
    """The value by which a target names its page."""
    query = parse_qs(urlsplit(target).query)
    return next((query[name][0] for name in ("pageToken", "after_id") if name in query), None)


@pytest.mark.parametrize("wire", [GEMINI, ANTHROPIC])
async def test_P10_a_list_is_followed_to_its_last_page(wire: str) -> None:
    found, targets = await ask(
        wire,
        json_response(page(wire, ["a", "b"], "b&=/ü")),
        json_response(page(wire, [], "c")),
        json_response(page(wire, ["d"], None)),
    )
    assert [model.id for model in found] == ["a", "b", "d"]
    assert [cursor(target) for target in targets] == [None, "b&=/ü", "c"]
    assert all("1000" in target for target in targets)


async def test_P10_a_page_with_more_but_no_cursor_is_the_last() -> None:
    for last in ({"has_more": True}, {"has_more": True, "last_id": ""}, {"has_more": 1, "last_id": "a"}):
        found, targets = await ask(ANTHROPIC, json_response({"data": [{"id": "a"}], **last}))
        assert (len(found), len(targets)) == (1, 1)


async def test_P10_an_empty_first_answer_is_still_no_list() -> None:
    with pytest.raises(LlmError, match="no list of models"):
        await ask(GEMINI, json_response({}))


@pytest.mark.parametrize("wire", [GEMINI, ANTHROPIC])
async def test_P10_pages_that_lead_in_a_circle_end(wire: str) -> None:
    answers = [json_response(page(wire, [name], following)) for name, following in ("ax", "by", "cx")]
    with pytest.raises(LlmError, match="circle") as caught:
        await ask(wire, *answers)
    assert caught.value.code == "DISCOVERY_FAILED"


@pytest.mark.parametrize(("spare", "code"), [(0, None), (-1, "DISCOVERY_FAILED")])
async def test_P10_the_limit_is_that_of_all_pages_together(spare: int, code: str | None) -> None:
    first = b'{"models":[{"name":"models/a"}],"nextPageToken":"x"}'
    last = b'{"models":[{"name":"models/b"}]}'
    padding = b" " * (LIST_LIMIT - len(first) - len(last) - spare)
    answers = Response(200, {}, [first + padding]), Response(200, {}, [last])
    if code is None:
        assert len((await ask(GEMINI, *answers))[0]) == 2
    else:
        with pytest.raises(LlmError, match="longer than") as caught:
            await ask(GEMINI, *answers)
        assert caught.value.code == code


async def test_P10_a_failure_on_a_later_page_fails_the_list() -> None:
    with pytest.raises(LlmError, match="cannot be had") as caught:
        await ask(
            GEMINI,
            json_response(page(GEMINI, ["a"], "x")),
            json_response({"error": {"message": "busy"}}, 503),
        )
    assert caught.value.code == "DISCOVERY_FAILED"
    assert caught.value.failure.status == 503


async def test_P10_one_deadline_holds_for_all_pages(autojump_clock: MockClock) -> None:
    pages = [page(GEMINI, [name], name) for name in "abcdefg"]
    slow = [attrs.evolve(json_response(answer), before=[Pause(LIST_SECONDS / 4)]) for answer in pages]
    before = trio.current_time()
    with pytest.raises(LlmError, match="took longer than 30 seconds") as caught:
        await ask(GEMINI, *slow)
    assert trio.current_time() - before == pytest.approx(LIST_SECONDS)
    assert caught.value.code == "DISCOVERY_FAILED"


async def test_P10_a_list_that_never_comes_ends_too(autojump_clock: MockClock) -> None:
    with pytest.raises(LlmError, match="took longer"):
        await ask(GEMINI, Response(200, {}, [b"{", Hold()]))
