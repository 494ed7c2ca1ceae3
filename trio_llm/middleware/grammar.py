"""Checks that what comes from below obeys the grammar of chunks; for adapters and layers under development.

``runtime.use(check_grammar)`` checks what the adapters send, and the layers that were added after it.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator

from ..model.chunks import StreamChunk
from ..model.failures import LlmError
from ..model.requests import GenerateOptions
from ..protocol.grammar import Grammar
from ..streaming.lanes import Next


async def check_grammar(options: GenerateOptions, next: Next) -> AsyncGenerator[StreamChunk, None]:
    """The layer. Proper chunks pass as they are.

    A chunk that may not come where it comes is not passed on: the attempt is dropped, and ``receive()``
    raises, as such a stream is a defect of a program and nothing that a provider or a user could mend. A
    stream that is abandoned, or cancelled, has nothing to answer for; one that ends with Error or Aborted
    may leave blocks open.

    Raises:
        LlmError: INVALID_CHUNK_SEQUENCE; the text says which rule of :mod:`trio_llm.protocol.grammar` was
            broken, a note says whose stream it was.
    """
    grammar = Grammar()
    async for chunk in next(options):
        try:
            grammar.check(chunk)
        except LlmError as error:
            raise _named(error, options) from None
        yield chunk
    try:
        grammar.end()
    except LlmError as error:
        raise _named(error, options) from None


def _named(error: LlmError, options: GenerateOptions) -> LlmError:
    error.add_note(f"in the stream of model {options.model!r} from provider {options.provider!r}")
    return error
