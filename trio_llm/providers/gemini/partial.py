"""Arguments of a call that come value by value (Vertex AI, "Stream function call arguments")."""

from __future__ import annotations

import re
from typing import Any, Final

from ...model.codes import MALFORMED_RESPONSE
from ...model.failures import LlmError
from ...protocol.json_text import SurrogateJoiner

# The singular queries of RFC 9535 that name a value: $.name, $[0], $['name'].
_STEP: Final = re.compile(r"\.([^.\[\]'\"]+)|\[(\d{1,9})\]|\['([^']*)'\]|\[\"([^\"]*)\"\]")
_SCALARS: Final = ("numberValue", "boolValue", "nullValue")


class PartialArguments:
    """Puts the pieces of an object together.

    Attributes:
        value: what is whole so far.
    """

    __slots__ = ("_open", "value")

    def __init__(self, value: dict[str, Any]) -> None:
        self.value = value
        self._open: dict[str, tuple[SurrogateJoiner, list[str]]] = {}  # texts that go on, by path

    @property
    def whole(self) -> bool:
        """Whether no text waits for more of it."""
        return not self._open

    def add(self, piece: Any) -> None:
        """Take one piece.

        Raises:
            LlmError: MALFORMED_RESPONSE, for a path that makes no sense here.
        """
        path = piece.get("jsonPath") if isinstance(piece, dict) else None
        if not isinstance(path, str):
            raise _malformed(path)
        text = piece.get("stringValue")
        if isinstance(text, str):
            joiner, texts = self._open.setdefault(path, (SurrogateJoiner(), []))
            texts.append(joiner.push(text))
            if not piece.get("willContinue"):
                del self._open[path]
                self._put(path, "".join([*texts, joiner.flush()]))
            return
        for name in _SCALARS:
            if name in piece:
                self._put(path, None if name == "nullValue" else piece[name])

    def _put(self, path: str, value: Any) -> None:
        steps = _steps(path)
        node: Any = self.value
        for step, following in zip(steps, [*steps[1:], None], strict=True):
            known = _has(node, step, path)
            if following is None:
                node[step] = value
            elif not known:
                node[step] = [] if isinstance(following, int) else {}
            node = node[step]


def _has(node: Any, step: str | int, path: str) -> bool:
    """Whether a value stands there already; the next place of a list is made."""
    if isinstance(step, str) and isinstance(node, dict):
        return step in node
    if not isinstance(step, int) or not isinstance(node, list) or step > len(node):
        raise _malformed(path)
    if step < len(node):
        return True
    node.append(None)
    return False


def _steps(path: str) -> list[str | int]:
    steps: list[str | int] = []
    place = 1
    while place < len(path):
        step = _STEP.match(path, place)
        if step is None:
            raise _malformed(path)
        name, index, *quoted = step.groups()
        steps.append(int(index) if index is not None else name or quoted[0] or quoted[1] or "")
        place = step.end()
    if not path.startswith("$") or not steps:
        raise _malformed(path)
    return steps


def _malformed(path: object) -> LlmError:
    return LlmError(f"a part of a call's arguments has no place: {path!r}"[:200], MALFORMED_RESPONSE)
