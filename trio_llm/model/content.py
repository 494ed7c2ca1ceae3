"""Content blocks: what a message is made of.

The set is open: a block type of one's own is a frozen attrs class with a ``type`` class variable,
made known with :func:`register_block_type`. Unknown types survive as :class:`UnknownBlock`.
"""

from __future__ import annotations

import hashlib
import mimetypes
import os
from collections.abc import Callable, Iterable
from typing import Any, ClassVar, Protocol, TypeAlias, runtime_checkable

import attrs

from .identifiers import CallId
from .json_value import FrozenObject, freeze_object


@runtime_checkable
class ContentBlock(Protocol):
    """Any block: an immutable value whose ``type`` is its kebab-case tag."""

    type: ClassVar[str]


def of_class(wanted: type[Any]) -> Callable[[object, attrs.Attribute[Any], Any], None]:
    """A validator that refuses, in one line, what is no instance of a class."""

    def check(instance: object, attribute: attrs.Attribute[Any], value: Any) -> None:
        if not isinstance(value, wanted):
            raise TypeError(f"{attribute.name} is a {wanted.__name__}, not a {type(value).__name__}")

    return check


@attrs.frozen
class TextBlock:
    """Visible text."""

    type: ClassVar[str] = "text"
    text: str = attrs.field(validator=of_class(str))


@attrs.frozen
class ReasoningBlock:
    """The model's own thinking, as text. Signatures and the like live in replay state."""

    type: ClassVar[str] = "reasoning"
    text: str = attrs.field(validator=of_class(str))


def _shortened(url: str | None) -> str:
    return repr(url if url is None or len(url) <= 100 else f"{url[:99]}\N{HORIZONTAL ELLIPSIS}")


@attrs.frozen
class Attachment:
    """Where the bytes of an image are: in memory, in a file, or behind a URL (exactly one).

    Attributes:
        media_type: such as ``image/png``; None where a URL's is unknown.
        size: in bytes; None for a URL.
        id: SHA-256 in hex, of the bytes, or of the URL's text where only that is known.
    """

    id: str
    media_type: str | None = None
    size: int | None = None
    data: bytes | None = attrs.field(default=None, repr=False)
    path: str | None = None
    url: str | None = attrs.field(default=None, repr=_shortened)  # a data: URL holds the whole image

    def __attrs_post_init__(self) -> None:
        if sum(source is not None for source in (self.data, self.path, self.url)) != 1:
            raise ValueError("an attachment has exactly one of data, path and url")

    @classmethod
    def from_bytes(cls, data: bytes, media_type: str) -> Attachment:
        """An attachment that carries its bytes."""
        data = bytes(data)
        return cls(hashlib.sha256(data).hexdigest(), media_type, len(data), data=data)

    @classmethod
    def from_path(cls, path: str | os.PathLike[str], media_type: str | None = None) -> Attachment:
        """An attachment that names a file. Reads it once, blocking, for its size and digest.

        Raises:
            OSError: the file cannot be read.
            ValueError: no media type was given and the name does not tell one.
        """
        name = os.fspath(path)
        media_type = media_type or mimetypes.guess_type(name)[0]
        if media_type is None:
            raise ValueError(f"the media type of {name!r} is not clear from its name")
        with open(name, "rb") as file:
            digest = hashlib.file_digest(file, "sha256").hexdigest()
            size = file.tell()
        return cls(digest, media_type, size, path=name)

    @classmethod
    def from_url(cls, url: str, media_type: str | None = None) -> Attachment:
        """An attachment that the provider itself fetches; nothing is fetched here."""
        return cls(hashlib.sha256(url.encode()).hexdigest(), media_type, None, url=url)


@attrs.frozen
class ImageBlock:
    """An image."""

    type: ClassVar[str] = "image"
    attachment: Attachment = attrs.field(validator=of_class(Attachment))


@attrs.frozen
class ToolCallBlock:
    """A call the model asks for.

    Attributes:
        arguments: the RAW JSON text the model wrote; empty where it wrote none. Never parsed here.
    """

    type: ClassVar[str] = "tool-call"
    id: CallId
    name: str
    arguments: str = attrs.field(validator=of_class(str))


def as_blocks(value: Iterable[ContentBlock] | str) -> tuple[ContentBlock, ...]:
    """Content as it is kept; a string becomes one text block.

    Raises:
        TypeError: it is neither text nor blocks.
    """
    if isinstance(value, str):
        return (TextBlock(value),)
    if not isinstance(value, Iterable):
        raise TypeError(f"content is a string or an iterable of blocks, not one {type(value).__name__}")
    blocks = tuple(value)
    for block in blocks:
        if not isinstance(getattr(block, "type", None), str):
            raise TypeError(
                f"content is a string or blocks such as TextBlock, "
                f"not a {type(value).__name__} of {type(block).__name__}"
            )
    return blocks


@attrs.frozen
class ToolResultBlock:
    """What a tool answered. ``content`` given as a string becomes one text block.

    Raises:
        TypeError: the content is neither text nor blocks.
    """

    type: ClassVar[str] = "tool-result"
    tool_call_id: CallId
    content: tuple[ContentBlock, ...] = attrs.field(converter=as_blocks)
    is_error: bool = False


@attrs.frozen
class UnknownBlock:
    """A block whose type this process does not know; kept as it came so that it survives the codec.

    Attributes:
        tag: the type it came with.
        data: its other fields, in their JSON spelling.
    """

    type: ClassVar[str] = "unknown"
    tag: str
    data: FrozenObject = attrs.field(converter=freeze_object)


BLOCK_TYPES: dict[str, type[Any]] = {
    block.type: block for block in (TextBlock, ReasoningBlock, ImageBlock, ToolCallBlock, ToolResultBlock)
}
"""Tag to class, for the codec and the assembler. Extend it with :func:`register_block_type`."""


SentAs: TypeAlias = Callable[[Any], Iterable[ContentBlock]]
"""The blocks that a provider is sent in the place of a block of one's own type; may be none."""

SENT_AS: dict[type[Any], SentAs] = {}
"""Class to what its blocks are sent as. Extend it with :func:`register_block_type`."""


def register_block_type(block: type[Any], *, sent_as: SentAs | None = None) -> type[Any]:
    """Make a block class known to the codec and to requests; usable as a decorator.

    The assembler takes blocks of any class, from their ``BlockEnd``.

    Args:
        block: an attrs class with a ``type`` class variable (kebab-case) that is not taken.
        sent_as: what requests carry for such a block. Without it the block reaches the adapter as it is,
            and the adapters of this library leave it out of what they send.

    Raises:
        TypeError: ``block`` is no attrs class or has no ``type`` string.
        ValueError: the tag belongs to another class.
    """
    tag = getattr(block, "type", None)
    if not attrs.has(block) or not isinstance(tag, str) or not tag:
        raise TypeError("a block type is an attrs class with a `type` class variable")
    if BLOCK_TYPES.setdefault(tag, block) is not block:
        raise ValueError(f"block type {tag!r} is already {BLOCK_TYPES[tag].__name__}")
    if sent_as is not None:
        SENT_AS[block] = sent_as
    return block


def block_tag(block: ContentBlock) -> str:
    """The tag a block is known by outside: its type, or the one an unknown block came with."""
    return block.tag if isinstance(block, UnknownBlock) else block.type


def text_of(content: Iterable[ContentBlock]) -> str:
    """The visible text of some blocks, joined without separators."""
    return "".join(block.text for block in content if isinstance(block, TextBlock))
