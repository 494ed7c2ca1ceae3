"""Content blocks and attachments."""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import Any, ClassVar

import attrs
import pytest

from trio_llm.model.content import (
    BLOCK_TYPES,
    SENT_AS,
    Attachment,
    ContentBlock,
    ImageBlock,
    ReasoningBlock,
    TextBlock,
    ToolCallBlock,
    ToolResultBlock,
    UnknownBlock,
    block_tag,
    register_block_type,
    text_of,
)
from trio_llm.model.identifiers import CallId
from trio_llm.model.json_value import freeze_object

DIGEST = hashlib.sha256(b"pixels").hexdigest()


def test_the_repr_of_an_attachment_is_short() -> None:
    url = "data:image/png;base64," + "A" * 10_000
    shown = repr(Attachment.from_url(url))
    assert len(shown) < 300
    assert f"url='{url[:99]}\u2026'" in shown
    assert "url='https://x/y'" in repr(Attachment.from_url("https://x/y"))
    assert "url=None" in repr(Attachment.from_bytes(b"", "image/png"))


@pytest.mark.parametrize(
    ("content", "said"),
    [
        ({"sum": 3}, "not a dict of str"),
        (["text"], "not a list of str"),
        ([{"type": "text", "text": "x"}], "not a list of dict"),
        (TextBlock("x"), "not one TextBlock"),
        (None, "not one NoneType"),
    ],
)
def test_content_is_text_or_blocks(content: Any, said: str) -> None:
    with pytest.raises(TypeError, match=said):
        ToolResultBlock(CallId("c"), content)


def test_a_text_block_holds_text() -> None:
    none: Any = None
    with pytest.raises(TypeError, match=r"^text is a str, not a NoneType$"):
        TextBlock(none)


def test_an_attachment_of_bytes() -> None:
    mutable: Any = bytearray(b"pixels")
    attachment = Attachment.from_bytes(mutable, "image/png")
    mutable.clear()
    assert attachment == Attachment(DIGEST, "image/png", 6, data=b"pixels")
    assert type(attachment.data) is bytes
    assert "pixels" not in repr(attachment)


def test_an_attachment_of_a_file_has_the_same_id(tmp_path: Path) -> None:
    path = tmp_path / "a.png"
    path.write_bytes(b"pixels")
    assert Attachment.from_path(path) == Attachment(DIGEST, "image/png", 6, path=str(path))
    assert Attachment.from_path(path, "image/x-own").media_type == "image/x-own"
    with pytest.raises(OSError, match="none"):
        Attachment.from_path(tmp_path / "none.png")
    with pytest.raises(ValueError, match="media type"):
        Attachment.from_path(tmp_path / "no-extension")


def test_an_attachment_behind_a_url_has_a_stable_id() -> None:
    one = Attachment.from_url("https://example.org/ä.png")
    assert one == Attachment.from_url("https://example.org/ä.png")
    assert (one.size, one.media_type) == (None, None)
    assert one.id != Attachment.from_url("https://example.org/b.png").id


@pytest.mark.parametrize("parts", [{}, {"path": "a", "url": "b"}, {"data": b"", "path": "a", "url": "b"}])
def test_an_attachment_is_in_one_place(parts: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match="exactly one"):
        Attachment("id", **parts)


@pytest.mark.parametrize(
    "make",
    [
        lambda: TextBlock(None),  # type: ignore[arg-type]  # the point of the test
        lambda: ReasoningBlock(b"bytes"),  # type: ignore[arg-type]  # the point of the test
        lambda: ImageBlock("a.png"),  # type: ignore[arg-type]  # the point of the test
        lambda: ToolCallBlock(CallId("c"), "n", {"a": 1}),  # type: ignore[arg-type]  # the point of the test
    ],
)
def test_blocks_check_what_they_hold(make: Any) -> None:
    with pytest.raises(TypeError):
        make()


def test_arguments_stay_raw() -> None:
    raw = '{ "a" : 1e2,'
    assert ToolCallBlock(CallId("c"), "n", raw).arguments is raw


def test_a_result_given_as_a_string_is_one_text_block() -> None:
    assert ToolResultBlock(CallId("c"), "ok").content == (TextBlock("ok"),)
    assert ToolResultBlock(CallId("c"), [TextBlock("a")]).content == (TextBlock("a"),)


def test_text_of_is_the_visible_text() -> None:
    content = (TextBlock("a"), ReasoningBlock("hidden"), ToolResultBlock(CallId("c"), "no"), TextBlock("b"))
    assert text_of(content) == "ab"


def test_the_tag_of_an_unknown_block_is_the_one_it_came_with() -> None:
    assert block_tag(TextBlock("a")) == "text"
    assert block_tag(UnknownBlock("video", freeze_object({}))) == "video"


def test_every_block_is_a_content_block() -> None:
    assert all(isinstance(block, type) and block.type == tag for tag, block in BLOCK_TYPES.items())
    assert isinstance(TextBlock("a"), ContentBlock)


@attrs.frozen
class AudioBlock:
    type: ClassVar[str] = "audio"
    seconds: int


def test_a_block_type_of_ones_own_is_registered_once() -> None:
    @attrs.frozen
    class Impostor:
        type: ClassVar[str] = "audio"

    try:
        assert register_block_type(AudioBlock) is AudioBlock
        assert register_block_type(AudioBlock) is AudioBlock
        assert BLOCK_TYPES["audio"] is AudioBlock
        assert AudioBlock not in SENT_AS
        register_block_type(AudioBlock, sent_as=lambda block: [TextBlock(f"{block.seconds} s of audio")])
        assert list(SENT_AS[AudioBlock](AudioBlock(3))) == [TextBlock("3 s of audio")]
        with pytest.raises(ValueError, match="AudioBlock"):
            register_block_type(Impostor)
    finally:
        del BLOCK_TYPES["audio"]
        SENT_AS.pop(AudioBlock, None)
    with pytest.raises(ValueError, match="TextBlock"):
        register_block_type(attrs.make_class("Other", [], class_body={"type": "text"}))


@pytest.mark.parametrize(
    "wrong",
    [
        type("Plain", (), {"type": "plain"}),
        attrs.make_class("Untagged", []),
        attrs.make_class("Numbered", [], class_body={"type": 5}),
        attrs.make_class("Empty", [], class_body={"type": ""}),
    ],
)
def test_what_is_no_block_type_is_refused(wrong: type[Any]) -> None:
    with pytest.raises(TypeError, match="attrs class"):
        register_block_type(wrong)
