"""Image bytes for a request, read and encoded before it is serialized."""

from __future__ import annotations

import base64
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

import trio

from ..model.codes import UNSUPPORTED_CONTENT
from ..model.content import Attachment, ContentBlock, ImageBlock, ToolResultBlock
from ..model.failures import LlmError
from ..model.messages import Message


def _attachments(content: Iterable[ContentBlock]) -> Iterator[Attachment]:
    for block in content:
        if isinstance(block, ImageBlock):
            yield block.attachment
        elif isinstance(block, ToolResultBlock):
            yield from _attachments(block.content)


def _encode(attachment: Attachment) -> str:
    if attachment.data is not None:
        return base64.b64encode(attachment.data).decode("ascii")
    assert attachment.path is not None
    try:
        return base64.b64encode(Path(attachment.path).read_bytes()).decode("ascii")
    except OSError as error:
        raise LlmError(
            f"the image {attachment.path!r} cannot be read: {error.strerror or error}", UNSUPPORTED_CONTENT
        ) from error


def _encode_all(attachments: Sequence[Attachment]) -> dict[str, str]:
    return {attachment.id: _encode(attachment) for attachment in attachments}


async def load_images(messages: Iterable[Message]) -> dict[str, str]:
    """The images of user messages (those inside tool results too) in base64, by the attachment's id.

    What lies behind a URL is the provider's to fetch and not in the result. Files are read, and
    everything is encoded, in a worker thread; without images nothing is awaited. When cancelled, the
    thread is abandoned.

    Raises:
        LlmError: UNSUPPORTED_CONTENT, if a file cannot be read.
    """
    wanted = {
        attachment.id: attachment
        for message in messages
        if message.role == "user"
        for attachment in _attachments(message.content)
        if attachment.url is None
    }
    if not wanted:
        return {}
    return await trio.to_thread.run_sync(_encode_all, tuple(wanted.values()), abandon_on_cancel=True)


def refuse_images(message: Message, who: str) -> None:
    """For a message of a role that shows none.

    Args:
        who: how the error calls the other side.

    Raises:
        LlmError: UNSUPPORTED_CONTENT.
    """
    if any(isinstance(block, ImageBlock) for block in message.content):
        raise LlmError(f"{who} takes no image in a message of the {message.role}", UNSUPPORTED_CONTENT)


def data_url(attachment: Attachment, images: dict[str, str]) -> str:
    """The image as a URL: its own, or a ``data:`` one (RFC 2397).

    Raises:
        LlmError: UNSUPPORTED_CONTENT, if nobody said of which type its bytes are.
    """
    if attachment.url is not None:
        return attachment.url
    if attachment.media_type is None:
        raise LlmError("an image without a media type cannot be sent", UNSUPPORTED_CONTENT)
    return f"data:{attachment.media_type};base64,{images[attachment.id]}"
