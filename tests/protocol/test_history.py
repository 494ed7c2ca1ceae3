"""History repair: what every provider refuses, and what only some do."""

from __future__ import annotations

import json
import re
from typing import Any

import attrs
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.shared_data import CASES, requires_cases
from tests.strategies import CALL_IDS, MESSAGES, REASONING_BLOCKS, TEXT_BLOCKS
from trio_llm.model.content import ContentBlock, ReasoningBlock, TextBlock, ToolCallBlock, ToolResultBlock
from trio_llm.model.identifiers import CallId, MessageId
from trio_llm.model.messages import (
    Message,
    ModelSource,
    ReplayEnvelope,
    ToolSource,
    UserSource,
    create_assistant_message,
    create_tool_result_message,
    create_user_message,
)
from trio_llm.protocol.history import HistoryRules, repair

MODEL = ModelSource("p", "m")
PLAIN = HistoryRules()
OPENAI = HistoryRules(call_ids=re.compile(".{1,64}", re.DOTALL))
ANTHROPIC = HistoryRules(
    call_ids=re.compile("[a-zA-Z0-9_-]{1,64}"), foreign_reasoning="drop", blank_text="drop", merge_roles=True
)
MISTRAL = HistoryRules(
    call_ids=re.compile("[a-zA-Z0-9]{9}"),
    call_id_length=9,
    after_results="Understood.",
    foreign_reasoning="text",
)
LIBRARY = HistoryRules(broken_calls="keep", orphan_results="keep", missing_result=None)
ALL_RULES = [PLAIN, OPENAI, ANTHROPIC, MISTRAL, LIBRARY]


def call(id: str, arguments: str = "{}") -> ToolCallBlock:
    return ToolCallBlock(CallId(id), "tool", arguments)


def assistant(*content: ContentBlock, state: ReplayEnvelope | None = None) -> Message:
    return create_assistant_message(content, attrs.evolve(MODEL, replay_state=state))


def result(id: str, text: str = "ok") -> Message:
    return create_tool_result_message(CallId(id), text)


def user(text: str = "go") -> Message:
    return create_user_message(text)


def shape(messages: list[Message]) -> list[str]:
    """A history in short: roles, calls and results."""
    words = []
    for message in messages:
        inside = []
        for block in message.content:
            if isinstance(block, ToolCallBlock):
                inside.append(f"call {block.id}")
            elif isinstance(block, ToolResultBlock):
                inside.append(f"{'error' if block.is_error else 'result'} {block.tool_call_id}")
            elif isinstance(block, (TextBlock, ReasoningBlock)):
                inside.append(block.text)
        words.append(f"{message.role}: {', '.join(inside)}")
    return words


def test_a_sound_history_passes_as_the_same_objects() -> None:
    history = [
        user(),
        assistant(TextBlock("one"), call("a"), call("b")),
        result("a"),
        create_user_message([ToolResultBlock(CallId("b"), "ok"), TextBlock("and")]),
        assistant(TextBlock("done")),
        user(),
    ]
    for rules in (PLAIN, OPENAI, LIBRARY):
        assert all(map(lambda one, other: one is other, repair(history, rules), history))
        assert len(repair(history, rules)) == len(history)


def test_a_message_that_stands_twice_stays_two_messages() -> None:
    again = user()
    assert repair([again, again], PLAIN) == [again, again]


def test_messages_without_content_are_left_out() -> None:
    assert shape(repair([user(), assistant(), create_user_message([]), user("on")], PLAIN)) == [
        "user: go",
        "user: on",
    ]


def test_a_missing_result_is_made_up_as_an_error() -> None:
    history = [user(), assistant(call("c1"), call("c2")), result("c1"), user("never mind b")]
    repaired = repair(history, PLAIN)
    assert shape(repaired) == [
        "user: go",
        "assistant: call c1, call c2",
        "user: result c1",
        "user: error c2",
        "user: never mind b",
    ]
    assert repaired[3].source == ToolSource(CallId("c2"))
    assert repair(history, PLAIN) == repaired, "the same on every request"
    assert [message for message in repaired if message in history] == history


def test_a_call_without_result_can_be_taken_out_instead() -> None:
    rules = HistoryRules(missing_result=None)
    history = [user(), assistant(TextBlock("t"), call("c1"), call("c2")), result("c2"), assistant(call("c3"))]
    assert shape(repair(history, rules)) == ["user: go", "assistant: t, call c2", "user: result c2"]


def test_results_move_up_to_their_calls_in_the_calls_order() -> None:
    history = [
        assistant(call("a"), call("b")),
        user("meanwhile"),
        result("b"),
        assistant(TextBlock("thinking aloud")),
        create_user_message([TextBlock("here"), ToolResultBlock(CallId("a"), "ok")]),
    ]
    assert shape(repair(history, PLAIN)) == [
        "assistant: call a, call b",
        "user: result a",
        "user: result b",
        "user: meanwhile",
        "assistant: thinking aloud",
        "user: here",
    ]


def test_results_come_first_in_their_message() -> None:
    mixed = create_user_message([TextBlock("see"), ToolResultBlock(CallId("a"), "ok")])
    repaired = repair([assistant(call("a")), mixed], PLAIN)
    assert shape(repaired) == ["assistant: call a", "user: result a, see"]
    assert repaired[1].id == mixed.id


def test_a_result_pairs_with_the_nearest_call_before_it() -> None:
    history = [
        assistant(call("call-0")),
        result("call-0", "first"),
        assistant(call("call-0")),
        result("call-0", "second"),
        result("call-0", "once more"),
    ]
    repaired = repair(history, PLAIN)
    assert repaired == history[:4], "a second result for one call is refused everywhere"
    unique = repair(history, OPENAI)
    first, second = (unique[place].content[0] for place in (0, 2))
    assert isinstance(first, ToolCallBlock)
    assert isinstance(second, ToolCallBlock)
    assert first.id == "call-0" != second.id
    assert shape(unique)[3] == f"user: result {second.id}"
    assert unique[3].source == ToolSource(second.id)


def test_two_calls_with_one_id_in_one_message_take_their_results_in_order() -> None:
    history = [assistant(call("x"), call("x")), result("x", "1"), result("x", "2")]
    assert repair(history, PLAIN) == history
    repaired = repair(history, OPENAI)
    ids = [block.id for block in repaired[0].content if isinstance(block, ToolCallBlock)]
    assert len(set(ids)) == 2
    assert shape(repaired)[1:] == [f"user: result {id}" for id in ids]
    assert [message.content[0].content[0] for message in repaired[1:]] == [  # type: ignore[attr-defined]  # results
        TextBlock("1"),
        TextBlock("2"),
    ]


def test_an_orphan_result_is_dropped_or_stays() -> None:
    history = [user(), result("gone"), user("on")]
    assert shape(repair(history, PLAIN)) == ["user: go", "user: on"]
    assert repair(history, LIBRARY) == history
    kept = repair(
        [assistant(call("a b")), result("a b"), result("x y")], attrs.evolve(OPENAI, orphan_results="keep")
    )
    assert shape(kept) == ["assistant: call a b", "user: result a b", "user: result x y"]


def test_a_broken_call_leaves_with_its_result() -> None:
    history = [user(), assistant(call("a", '{"cmd":"sl')), result("a"), user("continue")]
    assert shape(repair(history, PLAIN)) == ["user: go", "user: continue"]
    assert repair(history, LIBRARY) == history
    orphans_stay = HistoryRules(orphan_results="keep")
    assert shape(repair(history, orphans_stay)) == ["user: go", "user: continue"]
    again = [*history, assistant(call("a")), result("a")]
    assert shape(repair(again, PLAIN))[2:] == ["assistant: call a", "user: result a"]
    nearer = [assistant(call("a")), assistant(call("a", "{")), result("a")]
    assert shape(repair(nearer, PLAIN)) == ["assistant: call a", "user: error a"]


@pytest.mark.parametrize("arguments", ["", "  ", "{}", "[]", '"\ud83c"'])
def test_empty_arguments_are_not_broken(arguments: str) -> None:
    history = [assistant(call("a", arguments)), result("a")]
    assert repair(history, PLAIN) == history


def test_calls_of_a_user_and_results_of_an_assistant_are_left_alone() -> None:
    odd = [create_user_message([call("a")]), assistant(ToolResultBlock(CallId("a"), "ok"))]
    assert repair(odd, ANTHROPIC) == odd


@pytest.mark.parametrize(("rule", "left"), [("keep", ["r", "t"]), ("drop", ["t"]), ("text", ["r", "t"])])
def test_foreign_reasoning(rule: Any, left: list[str]) -> None:
    rules = HistoryRules(foreign_reasoning=rule)
    foreign = assistant(
        ReasoningBlock("r"), TextBlock("t"), ReasoningBlock(" ") if rule == "text" else TextBlock("")
    )
    native = assistant(ReasoningBlock("r"), TextBlock("t"), state=ReplayEnvelope({}))
    repaired = repair([foreign, native], rules)
    assert [block.text for block in repaired[0].content[: len(left)] if hasattr(block, "text")] == left
    assert any(isinstance(block, ReasoningBlock) for block in repaired[0].content) is (rule == "keep")
    assert repaired[1] is native


def test_thinking_alone_that_is_dropped_leaves_no_empty_message() -> None:
    assert repair([user(), assistant(ReasoningBlock("half a thou")), user()], ANTHROPIC)[0].content == (
        TextBlock("go"),
        TextBlock("go"),
    )


def test_blank_text_can_be_taken_out() -> None:
    history = [assistant(TextBlock(" "), call("a"), TextBlock("")), result("a"), user(" \n")]
    assert shape(repair(history, HistoryRules(blank_text="drop"))) == ["assistant: call a", "user: result a"]
    assert len(repair(history, PLAIN)[0].content) == 3


def test_neighbours_of_one_role_are_merged() -> None:
    native = assistant(TextBlock("n"), state=ReplayEnvelope({}))
    history = [
        user("a"),
        user("b"),
        assistant(TextBlock("c")),
        assistant(call("d")),
        user("e"),
        native,
        native,
    ]
    merged = repair(history, HistoryRules(merge_roles=True))
    assert shape(merged) == [
        "user: a, b",
        "assistant: c, call d",
        "user: error d, e",
        "assistant: n",
        "assistant: n",
    ]
    assert merged[0].id == history[0].id
    assert merged[3] is native


def test_a_turn_can_be_put_between_results_and_a_user() -> None:
    mixed = create_user_message([ToolResultBlock(CallId("b"), "ok"), TextBlock("and")])
    history = [
        user(),
        assistant(call("a")),
        result("a"),
        user("next"),
        assistant(call("b")),
        mixed,
        user("more"),
    ]
    rules = HistoryRules(after_results="Understood.")
    assert shape(repair(history, rules)) == [
        "user: go",
        "assistant: call a",
        "user: result a",
        "assistant: Understood.",
        "user: next",
        "assistant: call b",
        "user: result b",
        "assistant: Understood.",
        "user: and",
        "user: more",
    ]
    assert repair(history, rules) == repair(history, rules)
    sound = [assistant(call("a")), result("a"), assistant(TextBlock("done"))]
    assert repair(sound, rules) == sound


def test_replay_entries_leave_with_their_blocks() -> None:
    state = ReplayEnvelope({"v": 1}, ["t", "a", "b"])
    message = assistant(TextBlock("t"), call("a", "{"), call("b"), state=state)
    (kept, _) = repair([message], PLAIN)
    assert kept.source == ModelSource("p", "m", ReplayEnvelope({"v": 1}, ["t", "b"]))
    misaligned = assistant(TextBlock("t"), call("a", "{"), state=ReplayEnvelope({}, ["only one"]))
    assert repair([misaligned], PLAIN)[0].source == MODEL
    whole = assistant(TextBlock("t"), call("a", "{"), state=ReplayEnvelope({"v": 1}))
    assert repair([whole], PLAIN)[0].source == whole.source


@pytest.mark.parametrize("entries", [None, ["r", "t", "c"]])
def test_a_renamed_call_keeps_the_replay_state_and_with_it_the_thinking(entries: list[str] | None) -> None:
    state = ReplayEnvelope({"v": 1}, entries)
    first = assistant(call("toolu_1"))
    for id in ("not:allowed", "toolu_1"):  # one that the provider refuses, and one that came before
        native = assistant(ReasoningBlock("r"), TextBlock("t"), call(id), state=state)
        (_, _, renamed, answer) = repair([first, native], ANTHROPIC)
        assert renamed.source == native.source
        assert renamed.content[:2] == native.content[:2]
        (block,) = renamed.content[2:]
        assert isinstance(block, ToolCallBlock)
        assert block.id not in ("not:allowed", "toolu_1")
        assert [each.tool_call_id for each in answer.content if isinstance(each, ToolResultBlock)] == [
            block.id
        ]


def test_entries_stay_with_their_blocks_where_one_is_taken_out_and_the_next_renamed() -> None:
    state = ReplayEnvelope({}, ["cut", "whole", "text"])
    native = assistant(call("a:b", "{"), call("a:b"), TextBlock("t"), state=state)
    (kept, _) = repair([native], ANTHROPIC)
    assert kept.source == ModelSource("p", "m", ReplayEnvelope({}, ["whole", "text"]))


@pytest.mark.parametrize(
    ("pattern", "length"),
    [("[a-zA-Z0-9]{9}", 24), ("[a-z]{24}", 24), (".*", 7), (".*", 65)],
)
def test_rules_that_cannot_be_kept_are_refused(pattern: str, length: int) -> None:
    with pytest.raises(ValueError, match="call_id"):
        HistoryRules(call_ids=re.compile(pattern), call_id_length=length)


def test_replaced_ids_never_meet_another() -> None:
    (message, _) = repair([assistant(call("a:b"))], MISTRAL)
    (block,) = message.content
    assert isinstance(block, ToolCallBlock)
    taken = assistant(call(block.id), call("a:b"), call("a:b"))
    ids = [block.id for block in repair([taken], MISTRAL)[0].content if isinstance(block, ToolCallBlock)]
    assert ids[0] == block.id
    assert len(set(ids)) == 3


# Properties

ARGUMENTS = st.sampled_from(["", "{}", '{"a":1}', '{"cut'])
CALLS = st.builds(ToolCallBlock, CALL_IDS, st.just("tool"), ARGUMENTS)
RESULTS = st.builds(ToolResultBlock, CALL_IDS, TEXT_BLOCKS.map(lambda block: (block,)))
TURNS: st.SearchStrategy[Message] = st.one_of(
    st.builds(
        Message,
        st.just(MessageId("u")),
        st.just("user"),
        st.lists(TEXT_BLOCKS | RESULTS | RESULTS, max_size=4),
        st.just(UserSource()),
    ),
    st.builds(
        Message,
        st.just(MessageId("a")),
        st.just("assistant"),
        st.lists(TEXT_BLOCKS | REASONING_BLOCKS | CALLS | CALLS, max_size=4),
        st.sampled_from([MODEL, attrs.evolve(MODEL, replay_state=ReplayEnvelope({}))]),
    ),
)


def assert_paired(messages: list[Message]) -> None:
    """Every call has its result directly behind it, and every result its call."""
    waiting: list[CallId] = []
    for message in messages:
        for block in message.content:
            if message.role == "user" and isinstance(block, ToolResultBlock):
                assert waiting.pop(0) == block.tool_call_id
            else:
                assert not waiting or message.role == "assistant", "something stands between call and result"
                if message.role == "assistant" and isinstance(block, ToolCallBlock):
                    waiting.append(block.id)
        if message.role == "assistant":
            assert message.content
    assert not waiting


@given(history=st.lists(TURNS, max_size=8), rules=st.sampled_from([PLAIN, OPENAI, ANTHROPIC, MISTRAL]))
def test_whatever_the_history_calls_and_results_pair(history: list[Message], rules: HistoryRules) -> None:
    before = list(history)
    repaired = repair(history, rules)
    assert history == before
    assert_paired(repaired)
    assert repaired == repair(history, rules)
    assert all(message.content for message in repaired)
    if rules.call_ids is not None:
        ids = [
            block.id for message in repaired for block in message.content if isinstance(block, ToolCallBlock)
        ]
        assert len(set(ids)) == len(ids)
        assert all(rules.call_ids.fullmatch(id) for id in ids)


@given(history=st.lists(TURNS, max_size=8), rules=st.sampled_from([PLAIN, OPENAI, MISTRAL]))
def test_a_repaired_history_needs_no_repair(history: list[Message], rules: HistoryRules) -> None:
    repaired = repair(history, rules)
    again = repair(repaired, rules)
    assert len(again) == len(repaired)
    assert all(one is other for one, other in zip(again, repaired, strict=True))


@given(history=st.lists(TURNS, max_size=6), more=st.lists(TURNS, max_size=3))
def test_a_longer_history_renames_no_earlier_call(history: list[Message], more: list[Message]) -> None:
    def calls(messages: list[Message]) -> list[CallId]:
        return [
            block.id for message in messages for block in message.content if isinstance(block, ToolCallBlock)
        ]

    short, long = calls(repair(history, MISTRAL)), calls(repair([*history, *more], MISTRAL))
    assert long[: len(short)] == short


@given(history=st.lists(MESSAGES, max_size=6), rules=st.sampled_from(ALL_RULES))
def test_any_history_is_survived(history: list[Message], rules: HistoryRules) -> None:
    repair(history, rules)


# Cases


def from_case(history: list[dict[str, Any]]) -> list[Message]:
    messages = []
    for turn in history:
        if turn["role"] == "tool":
            messages.append(result(turn["tool_call_id"], turn["content"]))
            continue
        content: list[ContentBlock] = []
        for block in turn["content"]:
            if block["type"] == "tool_call":
                arguments = json.dumps(block["arguments"]) if block["complete"] else block["raw"]
                content.append(ToolCallBlock(CallId(block["id"]), block["name"], arguments))
            else:
                content.append(TextBlock(block["text"]))
        messages.append(assistant(*content) if turn["role"] == "assistant" else create_user_message(content))
    return messages


def case(name: str) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((CASES / name / "case.json").read_text())
    return found


@requires_cases
@pytest.mark.parametrize("rules", [OPENAI, ANTHROPIC])
def test_case_58_call_and_result_leave_together(rules: HistoryRules) -> None:
    aborted, missing = case("58-orphan-tool-messages-after-an-abort")["variants"]
    repaired = repair(from_case(aborted["input"]["history"]), rules)
    kinds = {type(block) for message in repaired for block in message.content}
    assert kinds == {TextBlock}, "no tool message, no tool call"
    assert repaired[-1].role == "user"
    assert repaired[-1].content[-1] == TextBlock("continue")

    # The aborted turn as this library keeps it: without the cut call, so without any content.
    history = from_case(aborted["input"]["history"])
    history[1] = assistant()
    assert shape(repair(history, rules)) == shape(repaired)

    repaired = repair(from_case(missing["input"]["history"]), rules)
    assert_paired(repaired)
    behind = [block for message in repaired[2:] for block in message.content][:2]
    assert [
        (block.tool_call_id, block.is_error) for block in behind if isinstance(block, ToolResultBlock)
    ] == [
        ("c1", False),
        ("c2", True),
    ]


@requires_cases
@pytest.mark.parametrize("rules", [OPENAI, ANTHROPIC, MISTRAL])
def test_case_61_ids_from_another_provider(rules: HistoryRules) -> None:
    history = from_case(case("61-tool-call-ids-from-another-provider")["input"]["history"])
    before = list(history)
    repaired = repair(history, rules)
    ids = [block.id for block in repaired[1].content if isinstance(block, ToolCallBlock)]
    assert rules.call_ids is not None
    assert all(rules.call_ids.fullmatch(id) for id in ids)
    assert len(set(ids)) == 3
    results = [
        block for message in repaired[2:] for block in message.content if isinstance(block, ToolResultBlock)
    ]
    assert [(block.tool_call_id, block.content) for block in results] == [
        (id, (TextBlock(f"r{number}"),)) for number, id in enumerate(ids)
    ]
    assert repair(history, rules) == repaired
    assert history == before
    assert all(one is other for one, other in zip(history, before, strict=True))
