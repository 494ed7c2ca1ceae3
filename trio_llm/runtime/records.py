"""Records of retries, and a file of them."""

from __future__ import annotations

import os
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any, Literal, TypeAlias

import attrs
import trio

from ..model.failures import LlmFailure
from ..model.policy import RetryPolicy
from ..protocol.codec import to_json
from ..protocol.json_text import encode_body
from .retry import DelaySource


@attrs.frozen(kw_only=True)
class AttemptRecord:
    """One step of a retry: it was scheduled (before the wait), or it was started (after it).

    A wait that is cancelled leaves no "started".

    Attributes:
        attempt: the number of the attempt to come.
        retry: its place in its budget, from 1; 0 for one that a recovery asked for.
        provider, model: whom the failed attempt had asked.
        failure: why that one failed.
        policy: as captured when it was dispatched.
        delay_ms: the wait, in milliseconds.
        delay_source: who set it.
    """

    event: Literal["scheduled", "started"]
    attempt: int
    retry: int
    provider: str
    model: str
    failure: LlmFailure
    policy: RetryPolicy
    delay_ms: float
    delay_source: DelaySource


Record: TypeAlias = Callable[[AttemptRecord], Awaitable[None] | None]
"""Writes a record down; the retry goes on when it has returned, and what it raises ends the loop."""


def record_to_json(record: AttemptRecord) -> dict[str, Any]:
    """A record as JSON, in the spelling of the other logs."""
    return {
        "type": f"attempt-{record.event}",
        "attempt": record.attempt,
        "retry": record.retry,
        "provider": record.provider,
        "model": record.model,
        "failure": to_json(record.failure),
        "policy": to_json(record.policy),
        "delayMs": record.delay_ms,
        "delaySource": record.delay_source,
    }


class JsonLinesRecorder:
    """Appends each record to a file, one JSON object a line, written out before it returns.

    Args:
        path: created with the first record.
    """

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self._path = Path(path)

    async def __call__(self, record: AttemptRecord) -> None:
        """Append a record. Cancelling waits until the line is whole.

        Raises:
            OSError: the file cannot be written.
        """
        line = encode_body(record_to_json(record)) + b"\n"
        await trio.to_thread.run_sync(self._append, line)

    def _append(self, line: bytes) -> None:
        with self._path.open("ab") as file:
            file.write(line)
