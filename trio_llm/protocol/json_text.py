"""JSON text as it is met in the wild, and as it is sent.

The fast decoder comes first. What it refuses goes to the standard library's, which takes what
providers really send: halves of a surrogate pair split over two deltas, numbers beyond a float's range.
"""

from __future__ import annotations

import json
import re
from typing import Any, NoReturn

import msgspec

from ..model import codes
from ..model.failures import LlmError


def decode_lenient(data: bytes | str) -> Any:
    """The value of a JSON text.

    Lone surrogate halves stay in the strings (see :class:`SurrogateJoiner`); bytes that are not
    UTF-8 become U+FFFD; a byte order mark is skipped.

    Raises:
        LlmError: MALFORMED_RESPONSE, if it is no JSON text. The message says where, not what.
    """
    try:
        return msgspec.json.decode(data)
    except (msgspec.DecodeError, UnicodeEncodeError, RecursionError):
        pass
    text = data if isinstance(data, str) else data.decode("utf-8", "replace")
    try:
        return json.loads(text.removeprefix("\ufeff"))
    except (ValueError, RecursionError) as error:
        raise LlmError(f"undecodable JSON: {error}", codes.MALFORMED_RESPONSE) from error


def _refuse_constant(name: str) -> NoReturn:
    raise ValueError(f"JSON has no {name}")


def is_complete_json(text: str) -> bool:
    """Whether ``text`` is one whole JSON text. Strict: nothing is repaired, NaN is no number."""
    try:
        msgspec.json.decode(text)
        return True
    except (msgspec.DecodeError, UnicodeEncodeError, RecursionError):
        pass
    try:
        json.loads(text, parse_constant=_refuse_constant)
        return True
    except (ValueError, RecursionError):
        return False


def compact(value: Any) -> str:
    """``value`` as JSON text without spaces, for arguments that a provider sent as an object.

    Lossless: lone surrogates stay what they are.
    """
    try:
        return msgspec.json.encode(value).decode()
    except UnicodeEncodeError:
        return json.dumps(value, ensure_ascii=False, separators=(",", ":"))


def encode_body(value: Any) -> bytes:
    """``value`` as the compact UTF-8 JSON of a request body.

    Every lone surrogate in it becomes U+FFFD, as UTF-8 cannot say one (RFC 8259 section 8.1);
    halves that stand next to each other are the character they make. Raises for no JSON value.

    Args:
        value: anything JSON can say, frozen or not; msgspec Structs too.
    """
    try:
        return msgspec.json.encode(value)
    except UnicodeEncodeError:
        return msgspec.json.encode(_scrub(msgspec.to_builtins(value)))


def _scrub(value: Any) -> Any:
    if isinstance(value, str):
        return _join_halves(value, "replace")
    if isinstance(value, dict):
        return {_scrub(key): _scrub(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [_scrub(item) for item in value]
    return value


def _join_halves(text: str, lone: str) -> str:
    """Join surrogate halves that stand together; ``lone`` is the codec error handler for the others."""
    return text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", lone)


# A whole pair, a lone half, or any other escape (so that an escaped backslash is not misread).
_ESCAPES = re.compile(
    r"\\u[dD][89abAB][0-9a-fA-F]{2}\\u[dD][c-fC-F][0-9a-fA-F]{2}"
    r"|(?P<lone>\\u[dD][89a-fA-F][0-9a-fA-F]{2})"
    r"|\\.",
    re.DOTALL,
)


def outgoing_arguments(arguments: str) -> str:
    """The raw arguments of a historical call as a request carries them in a string.

    Empty ones are sent as ``{}``. A lone surrogate that the text spells as an escape becomes
    ``\\ufffd``; one that stands in it raw is the business of :func:`encode_body`.
    """
    if not arguments.strip():
        return "{}"
    if "\\u" not in arguments:
        return arguments
    return _ESCAPES.sub(lambda match: "\\ufffd" if match["lone"] else match[0], arguments)


def arguments_object(arguments: str) -> dict[str, Any]:
    """The raw arguments of a historical call for a wire that takes an object and nothing else.

    Empty ones, and what is no object, are ``{}``.

    Raises:
        LlmError: MALFORMED_RESPONSE, if it is no JSON text.
    """
    value = decode_lenient(arguments) if arguments.strip() else {}
    return value if isinstance(value, dict) else {}


class SurrogateJoiner:
    """Joins the halves of characters that a provider split over two deltas of one block."""

    __slots__ = ("_held",)

    def __init__(self) -> None:
        self._held = ""

    def push(self, text: str) -> str:
        """What can be shown of the text so far: a trailing high half waits for its other half."""
        if not self._held and text.isascii():
            return text  # nearly all there is
        if self._held and text:
            text = _join_halves(self._held + text[0], "surrogatepass") + text[1:]
            self._held = ""
        if text and "\ud800" <= text[-1] <= "\udbff":
            self._held = text[-1]
            return text[:-1]
        return text

    @property
    def holding(self) -> bool:
        """Whether a half waits."""
        return self._held != ""

    def flush(self) -> str:
        """The half that is still held, at the end of the block; usually empty."""
        held, self._held = self._held, ""
        return held
