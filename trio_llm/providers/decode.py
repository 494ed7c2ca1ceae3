"""Typed decoding of the events of a wire.

The fast path decodes straight into a ``msgspec.Struct``. What it refuses (surrogate halves split over
two deltas, a number where a string is expected, and other JSON text of the wild) goes through the
lenient decoder and is then converted as permissively as ``msgspec`` can.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Generic, TypeVar

import msgspec

from ..model.codes import MALFORMED_RESPONSE
from ..model.failures import LlmError
from ..protocol.json_text import decode_lenient

T = TypeVar("T")

UNDECODABLE = (msgspec.DecodeError, UnicodeDecodeError, RecursionError)
"""What the strict decoder raises for what it does not take."""


class EventDecoder(Generic[T]):
    """Decodes JSON text into one type.

    Attributes:
        fast: the strict decoder, for a loop that wants to look at the bytes before falling back to
            :meth:`lenient`; raises one of ``UNDECODABLE``.
    """

    __slots__ = ("_type", "fast")

    def __init__(self, type_: type[T]) -> None:
        self._type = type_
        self.fast: Callable[[bytes], T] = msgspec.json.Decoder(type_).decode

    def lenient(self, data: bytes) -> T:
        """Decode what the strict decoder refused.

        Raises:
            LlmError: MALFORMED_RESPONSE, if it is no JSON or cannot be read as the type. The message says
                what and where, and quotes nothing of it.
        """
        value = decode_lenient(data)
        try:
            return msgspec.convert(value, self._type, strict=False)
        except (msgspec.ValidationError, RecursionError) as error:
            raise LlmError(
                f"the provider sent an event of another shape than expected: {error}",
                MALFORMED_RESPONSE,
            ) from error

    def __call__(self, data: bytes) -> T:
        """Decode, strictly first. Raises as :meth:`lenient`."""
        try:
            return self.fast(data)
        except UNDECODABLE:
            return self.lenient(data)
