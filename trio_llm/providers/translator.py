"""What the translator of every HTTP wire keeps of its response, and how it tells of a failure."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import attrs

from ..model.failures import LlmFailure
from ..model.identifiers import ProviderRequestId
from ..transport.errors import failure_from_error_object


class ResponseTranslator:
    """The common part of a :class:`~.reading.Translator`, whose attributes these are. No I/O.

    One instance for each response.

    Args:
        secrets: blacked out where an error in the stream repeats one.
    """

    __slots__ = (
        "_secrets",
        "ending",
        "failure",
        "progressed",
        "request_id",
        "response_id",
        "served_model",
        "terminal",
    )

    def __init__(self, secrets: Sequence[str] = ()) -> None:
        self._secrets = secrets
        self.terminal = False
        self.ending = False
        self.failure: LlmFailure | None = None
        self.progressed = False
        self.served_model: str | None = None
        self.response_id: str | None = None
        self.request_id: ProviderRequestId | None = None

    def _failed(self, message: str, code: str) -> LlmFailure:
        """A failure of this response, in this library's words."""
        return LlmFailure(message, code, request_id=self.request_id)

    def _reported(self, error: Any) -> LlmFailure:
        """An error that came inside the stream, as :func:`failure_from_error_object` takes it."""
        failure = failure_from_error_object(error, secrets=self._secrets)
        return failure if failure.request_id else attrs.evolve(failure, request_id=self.request_id)
