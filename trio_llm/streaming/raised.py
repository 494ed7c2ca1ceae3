"""What an exception that leaves an adapter's ``produce`` says."""

from __future__ import annotations

import trio

from ..model import codes
from ..model.error_chain import error_chain
from ..model.failures import LlmError, LlmFailure


def failure_of(error: BaseException) -> LlmFailure:
    """The facts of an adapter's exception; UNKNOWN with its text where it has none.

    An adapter with a nursery of its own raises groups: a group with one leaf counts as that leaf.
    """
    leaf = error
    while isinstance(leaf, BaseExceptionGroup) and len(leaf.exceptions) == 1:
        leaf = leaf.exceptions[0]
    if isinstance(leaf, LlmError):
        return leaf.failure
    return LlmFailure(error_chain(error) or type(error).__name__, codes.UNKNOWN)


def first_leaf(error: BaseException) -> BaseException:
    """The first exception in a group; another exception is its own."""
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    return error


def is_failure(error: Exception) -> bool:
    """Whether it is an LlmError, or a group of nothing else: the provider's failure, not cleanup's."""
    if isinstance(error, ExceptionGroup):
        return error.split(LlmError)[1] is None
    return isinstance(error, LlmError)


def while_cancelled(error: BaseException | None) -> bool:
    """Whether the exception was raised by cleanup: while a Cancelled was passing."""
    seen: set[int] = set()
    pending = [error]
    while pending:
        current = pending.pop()
        if current is None or id(current) in seen:
            continue
        seen.add(id(current))
        if isinstance(current, trio.Cancelled):
            return True
        pending.append(current.__context__)
        if isinstance(current, BaseExceptionGroup):
            pending.extend(current.exceptions)
    return False
