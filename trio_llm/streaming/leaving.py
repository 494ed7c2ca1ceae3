"""Which exception leaves an ``async with stream``, and how it stays what it was."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NoReturn

import trio

from .raised import first_leaf


def carries_cancelled(error: BaseException) -> bool:
    """Whether it is a Cancelled, or a group with one in it."""
    if isinstance(error, BaseExceptionGroup):
        return error.split(trio.Cancelled)[0] is not None
    return isinstance(error, trio.Cancelled)


def raise_cleanup(cancelled: BaseException | None, cleanup: Sequence[Exception]) -> NoReturn:
    """Raise what adapters and layers raised while being closed, beside the Cancelled if there is one."""
    if cancelled is None and len(cleanup) == 1:
        raise_unchanged(cleanup[0])
    raise BaseExceptionGroup(
        "while the stream was closed", [*([] if cancelled is None else [cancelled]), *cleanup]
    )


def bare(error: BaseException, body: BaseException | None) -> BaseException:
    """What the nursery's group is about: without the Cancelled of its tasks, and without the group.

    A group that the body itself raised stays as it is; an interrupt goes before all else.
    """
    if isinstance(error, BaseExceptionGroup) and error is not body:
        interrupts = error.split((Exception, trio.Cancelled))[1]
        if interrupts is not None:
            return first_leaf(interrupts)
    while isinstance(error, BaseExceptionGroup) and error is not body:
        others = [member for member in error.exceptions if not isinstance(member, trio.Cancelled)]
        if len(others) > 1:
            break
        error = others[0] if others else error.exceptions[0]
    return error


def raise_unchanged(error: BaseException) -> NoReturn:
    """Raise without adding the exception being handled as its context."""
    context = error.__context__
    try:
        raise error
    finally:
        error.__context__ = context
        del error
