"""Named entries put up in groups, where every change is one step: the registry's and directories' core."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from typing import Generic, TypeVar

from ..model import codes
from ..model.failures import LlmError

T = TypeVar("T")


class Shelf(Generic[T]):
    """Entries by name, in the order of their groups. A group is changed as a whole or not at all.

    Args:
        duplicate_code: the code for a name that is taken, or that a group names twice.
        committed: called synchronously after each change; the shelf may be read inside it.
    """

    def __init__(self, duplicate_code: str, committed: Callable[[], None]) -> None:
        self._duplicate_code = duplicate_code
        self._committed = committed
        self._groups: dict[Hashable, tuple[tuple[str, T], ...]] = {}
        self._entries: dict[str, T] = {}

    def get(self, name: str) -> T | None:
        """The entry of that name, or None."""
        return self._entries.get(name)

    def entries(self) -> tuple[T, ...]:
        """Every entry; detached."""
        return tuple(self._entries.values())

    def require(self, key: Hashable) -> None:
        """Raises LlmError REGISTRATION_DISPOSED unless the group stands."""
        if key not in self._groups:
            raise LlmError("the registration was closed", codes.REGISTRATION_DISPOSED)

    def check(self, key: Hashable, names: Sequence[str]) -> None:
        """Whether a group may hold these names.

        Raises:
            LlmError: the shelf's duplicate code.
        """
        own = {name for name, _ in self._groups.get(key, ())}
        seen: set[str] = set()
        for name in names:
            if name in seen:
                raise LlmError(f"{name!r} is named twice", self._duplicate_code)
            if name in self._entries and name not in own:
                raise LlmError(f"{name!r} is already registered", self._duplicate_code)
            seen.add(name)

    def put(self, key: Hashable, entries: Sequence[tuple[str, T]]) -> None:
        """Put a group up, or put other entries in its place. Nothing changes if this raises.

        Raises:
            LlmError: the shelf's duplicate code.
        """
        self.check(key, [name for name, _ in entries])
        self._groups[key] = tuple(entries)
        self._commit()

    def take_down(self, key: Hashable) -> None:
        """Remove a group."""
        del self._groups[key]
        self._commit()

    def _commit(self) -> None:
        # a new mapping, so that whoever iterates the old one is not disturbed
        self._entries = {name: entry for group in self._groups.values() for name, entry in group}
        self._committed()
