"""Foreign async generators, closed when they are no longer wanted.

An SDK that leaves a loop early (at ``[DONE]``, for an error inside the stream) leaves the generators it
pulled suspended, for the garbage collector to find: under Trio that is a warning, and a clean-up that
outlives the call. So those that a call starts are kept, and closed before it ends.
"""

from __future__ import annotations

import sys
import types
from collections.abc import AsyncGenerator, Coroutine, Generator
from typing import Any, Final, TypeVar

import trio

T = TypeVar("T")

_DEADLINE: Final = 1.0  # how long they may take to close, in seconds


async def run_and_close(coroutine: Coroutine[Any, Any, T]) -> T:
    """Await a coroutine, then close every async generator that it started and did not finish.

    Cancellation passes through the coroutine; the closing is shielded for at most a second, and what it
    raises is dropped.
    """
    started: list[AsyncGenerator[Any, Any]] = []
    try:
        return await _keeping(coroutine, started)
    finally:
        with trio.CancelScope(shield=True, deadline=trio.current_time() + _DEADLINE):
            for generator in started:
                try:
                    await generator.aclose()
                except Exception:  # nobody wants to know how a response that is over ends
                    pass


@types.coroutine
def _keeping(
    coroutine: Coroutine[Any, Any, T], started: list[AsyncGenerator[Any, Any]]
) -> Generator[Any, Any, T]:
    """The coroutine, step by step, with hooks of its own for async generators in each step."""
    value: Any = None
    while True:
        outer = sys.get_asyncgen_hooks()
        sys.set_asyncgen_hooks(firstiter=started.append, finalizer=None)
        try:
            yielded = coroutine.send(value)
        except StopIteration as end:
            result: T = end.value
            return result
        finally:
            sys.set_asyncgen_hooks(*outer)
        value = yield yielded  # Trio sends everything in, cancellation too: as an outcome to be unwrapped
