"""What somebody may have meant who wrote something else."""

from __future__ import annotations

import difflib
from collections.abc import Iterable


def suggestion(written: str, known: Iterable[str]) -> str:
    """The end of a sentence that refuses a word: the one that was meant, else all there are."""
    words = list(known)
    close = difflib.get_close_matches(written.lower(), words, n=1)
    if close:
        return f"; did you mean {close[0]!r}?"
    return f"; known: {', '.join(map(repr, words))}" if words else ""
