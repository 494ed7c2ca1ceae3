"""Waiting for something that an AbortSignal may cut short, outside a stream."""

from __future__ import annotations

import contextlib
from collections.abc import Awaitable, Callable, Generator
from typing import TypeVar

import trio

from ..model import codes
from ..model.failures import LlmError
from ..model.signal import AbortSignal

T = TypeVar("T")


@contextlib.contextmanager
def cancelled_by(signal: AbortSignal | None) -> Generator[trio.CancelScope]:
    """A cancel scope that the signal cancels, at once if it was aborted before."""
    with trio.CancelScope() as scope:
        unsubscribe = signal.subscribe(scope.cancel) if signal is not None else None
        try:
            yield scope
        finally:
            if unsubscribe is not None:
                unsubscribe()


async def unless_aborted(signal: AbortSignal | None, work: Callable[[], Awaitable[T]]) -> T:
    """Run ``work`` until it is done or the signal aborts, whichever comes first.

    Raises:
        LlmError: ABORTED, with the signal's reason as message; what ``work`` returned or raised after
            the abort counts no more.
    """
    if signal is None:
        return await work()
    cause: Exception | None = None
    with cancelled_by(signal):
        try:
            result = await work()
            if not signal.aborted:
                return result
        except Exception as error:
            if not signal.aborted:
                raise
            cause = error
    raise LlmError(signal.reason or "aborted", codes.ABORTED) from cause
