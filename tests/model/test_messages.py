"""Messages, their sources and what a plugin's context means."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given

from tests.strategies import MESSAGES
from trio_llm.model.content import TextBlock, ToolResultBlock
from trio_llm.model.identifiers import CallId, MessageId
from trio_llm.model.json_value import FrozenObject
from trio_llm.model.messages import (
    NOTICE_SUMMARY_LENGTH,
    Message,
    ModelSource,
    NoticeForm,
    PluginSource,
    ReplayEnvelope,
    SnapshotForm,
    SnapshotSection,
    ToolSource,
    UserSource,
    create_assistant_message,
    create_message,
    create_tool_result_message,
    create_user_message,
)

MODEL = ModelSource("p", "m")


def test_constructors_give_a_fresh_id_every_time() -> None:
    made = [
        create_message("system", "s", PluginSource("prompt")),
        *(create_user_message("u") for _ in range(50)),
        create_assistant_message("a", MODEL),
        create_tool_result_message(CallId("c"), "r"),
    ]
    assert len({message.id for message in made}) == len(made)
    assert all(message.id for message in made)


def test_constructors_fix_role_and_source() -> None:
    assert (create_user_message("u").role, create_user_message("u").source) == ("user", UserSource())
    plugin = PluginSource("clock")
    assert create_user_message("u", plugin).source is plugin
    assistant = create_assistant_message("a", MODEL)
    assert (assistant.role, assistant.source) == ("assistant", MODEL)


def test_a_tool_result_is_coupled_to_its_call() -> None:
    message = create_tool_result_message(CallId("c1"), "42", is_error=True)
    assert message.role == "user"
    assert message.source == ToolSource(CallId("c1"))
    assert message.content == (ToolResultBlock(CallId("c1"), (TextBlock("42"),), True),)


def test_an_id_can_be_kept_but_not_empty() -> None:
    assert create_message("user", "u", UserSource(), id=MessageId("m1")).id == "m1"
    with pytest.raises(ValueError, match="id"):
        create_message("user", "u", UserSource(), id=MessageId(""))


@pytest.mark.parametrize("role", ["tool", "", "User", None])
def test_only_three_roles_exist(role: Any) -> None:
    with pytest.raises(ValueError, match="role"):
        create_message(role, "u", UserSource())


@given(message=MESSAGES)
def test_messages_are_immutable_and_hashable(message: Message) -> None:
    with pytest.raises(AttributeError):
        message.content = ()  # type: ignore[misc]  # the point of the test
    assert isinstance(message.content, tuple)
    hash(message)


def test_content_is_a_tuple_whatever_it_is_given_as() -> None:
    blocks = [TextBlock("a")]
    message = create_user_message(blocks)
    blocks.append(TextBlock("b"))
    assert message.content == (TextBlock("a"),)
    assert create_user_message("a").content == message.content
    assert create_user_message(block for block in blocks).content == tuple(blocks)


def test_replay_state_is_deeply_frozen() -> None:
    response: dict[str, Any] = {"ids": [1, {"a": 2}]}
    entries: list[Any] = [{"b": [3]}, None]
    envelope = ReplayEnvelope(response, entries)
    response["ids"].append(4)
    entries.append(None)
    assert envelope.response == {"ids": (1, {"a": 2})}
    assert envelope.blocks == ({"b": (3,)}, None)
    assert isinstance(envelope.response, FrozenObject)
    hash(envelope)
    with pytest.raises(TypeError, match=r"\$"):
        ReplayEnvelope({**response, "a": object()})


@pytest.mark.parametrize(
    ("given_text", "summary"),
    [
        ("noon", "noon"),
        ("  noon \n", "noon"),
        ("x" * 120, "x" * 120),
        ("x" * 121, "x" * 119 + "\u2026"),
        ("x" * 118 + "  " + "y" * 9, "x" * 118 + "\u2026"),
    ],
)
def test_a_notice_is_cut_to_120_characters(given_text: str, summary: str) -> None:
    assert NoticeForm(given_text).summary == summary
    assert len(summary) <= NOTICE_SUMMARY_LENGTH


@pytest.mark.parametrize("text", ["", "   "])
def test_a_notice_says_something(text: str) -> None:
    with pytest.raises(ValueError, match="summary"):
        NoticeForm(text)


def test_a_snapshot_has_named_sections() -> None:
    form = SnapshotForm([SnapshotSection("cwd", "/")])
    assert form.sections == (SnapshotSection("cwd", "/"),)
    with pytest.raises(ValueError, match="sections"):
        SnapshotForm([])
    with pytest.raises(ValueError, match="name"):
        SnapshotSection("", "text")


def test_a_plugin_has_a_name() -> None:
    with pytest.raises(ValueError, match="plugin"):
        PluginSource("")


@pytest.mark.parametrize("content", [["text"], {"role": "user"}, None])
def test_a_message_holds_blocks(content: Any) -> None:
    with pytest.raises(TypeError, match="content is a string or "):
        create_user_message(content)
