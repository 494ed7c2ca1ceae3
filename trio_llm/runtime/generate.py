"""One call without its chunks: the message, or an error that carries what there was."""

from __future__ import annotations

import attrs

from ..model.chunks import Aborted, Error, FinishReason, TokenUsage
from ..model.content import ContentBlock
from ..model.failures import LlmError, LlmFailure
from ..model.messages import Message
from ..streaming.stream import ChunkStream


@attrs.frozen
class Generated:
    """What a call came to.

    Attributes:
        message: the assistant message, with the replay state of its adapter.
        usage: None where it was not reported.
    """

    message: Message
    usage: TokenUsage | None
    finish: FinishReason


class GenerateError(LlmError):
    """A call that failed or was aborted; its cause is the adapter's own exception, if there was one.

    Attributes:
        partial: the text and reasoning there was.
        usage: None where unknown.
    """

    def __init__(
        self, failure: LlmFailure, partial: tuple[ContentBlock, ...], usage: TokenUsage | None
    ) -> None:
        super().__init__(failure.message, failure.code)
        self.failure = failure
        self.partial = partial
        self.usage = usage

    def __reduce__(self) -> tuple[object, ...]:
        return (GenerateError, (self.failure, self.partial, self.usage))


async def generate(stream: ChunkStream) -> Generated:
    """Run a stream to its end.

    Raises:
        GenerateError: it ended with Error or Aborted.
        Exception: what a layer raised.
    """
    async with stream:
        async for _ in stream:
            pass
    message, finish = stream.message, stream.finish
    if isinstance(finish, (Aborted, Error)):
        raise GenerateError(finish.failure, stream.partial, stream.usage) from stream.error
    assert message is not None  # every other end is a success
    assert finish is not None
    return Generated(message, stream.usage, finish)
