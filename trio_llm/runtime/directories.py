"""Directories: which providers an application's settings can set up."""

from __future__ import annotations

from collections.abc import Iterable

from ..model import codes
from ..model.catalogue import ConfigurableProvider
from ..model.failures import LlmError
from .shelf import Shelf
from .topology import Handle


class DirectoryRegistration(Handle):
    """The entries of one directory; leaving its context withdraws them."""

    def __init__(self, shelf: Shelf[ConfigurableProvider], entries: Iterable[ConfigurableProvider]) -> None:
        listed = _checked(entries)
        if not listed:
            raise LlmError("a directory begins with at least one provider", codes.INVALID_DIRECTORY)
        super().__init__(lambda: shelf.take_down(self))
        self._shelf = shelf
        shelf.put(self, listed)

    def replace(self, entries: Iterable[ConfigurableProvider]) -> None:
        """Put other entries, or none, in the place of the present ones, in one step.

        Raises:
            LlmError: REGISTRATION_DISPOSED after close; INVALID_DIRECTORY, DUPLICATE_DIRECTORY, and
                then nothing has changed.
        """
        self._shelf.require(self)
        self._shelf.put(self, _checked(entries))


def _checked(entries: Iterable[ConfigurableProvider]) -> list[tuple[str, ConfigurableProvider]]:
    listed = list(entries)
    for entry in listed:
        if not isinstance(entry, ConfigurableProvider):
            raise LlmError(f"not a ConfigurableProvider: {entry!r}", codes.INVALID_DIRECTORY)
        for name in ("provider", "display_name", "settings_ns"):
            value = getattr(entry, name)
            if not isinstance(value, str) or not value:
                raise LlmError(
                    f"{name} is a non-empty string, not {value!r}: {entry!r}", codes.INVALID_DIRECTORY
                )
    return [(entry.provider, entry) for entry in listed]
