"""The lossless JSON codec: every value of the model floor but signals and keys.

Fields are spelled in camelCase; an optional field that is None is left out. What belongs to a sum carries its
kebab-case tag first: chunks and blocks under ``type``, sources, forms and finish reasons under
``kind``, retry policies under ``mode``. Bytes are base64; a phase clock that is switched off is
``"off"``, as JSON has no infinity. A block, source, form or finish reason of an unknown kind comes
back as the JSON it was.

The functions read the fields and their types from the attrs classes, so a block type made known with
``register_block_type`` needs no code here.
"""

from __future__ import annotations

import base64
import binascii
import json
import math
import operator
import types
from collections.abc import Callable, Mapping
from functools import cache, partial, reduce
from typing import (
    Any,
    Final,
    Literal,
    NewType,
    TypeAlias,
    TypeVar,
    Union,
    get_args,
    get_origin,
    get_type_hints,
)

import attrs
import msgspec

from ..model.chunks import CHUNK_TYPES, FINISH_REASONS, FinishReason, StreamChunk, UnknownFinish
from ..model.content import BLOCK_TYPES, ContentBlock, UnknownBlock
from ..model.json_value import FrozenObject
from ..model.messages import FORMS, SOURCES, Message, PluginForm, Source, UnknownForm, UnknownSource
from ..model.policy import AlwaysRetry, NormalRetry, RetryPolicy, Timeouts
from ..model.requests import GenerateOptions, RequestHeader
from ..model.signal import AbortSignal
from .json_text import decode_lenient

T = TypeVar("T")

_OFF: Final = "off"
_SECRETS: Final = frozenset({"api_key"})
_UNKNOWN: Final = (UnknownBlock, UnknownSource, UnknownForm, UnknownFinish)
_Decoder: TypeAlias = Callable[[Any, str], Any]


@attrs.frozen
class _Sum:
    """A sum whose members are told apart by a tag.

    Attributes:
        key: where the tag stands.
        members: the known tags.
        unknown: keeps what has another tag; None where that is an error.
    """

    key: str
    members: Mapping[str, type[Any]]
    unknown: type[Any] | None = None


_SUMS: Final[dict[Any, _Sum]] = {
    StreamChunk: _Sum("type", CHUNK_TYPES),
    ContentBlock: _Sum("type", BLOCK_TYPES, UnknownBlock),
    Source: _Sum("kind", SOURCES, UnknownSource),
    PluginForm: _Sum("kind", FORMS, UnknownForm),
    FinishReason: _Sum("kind", FINISH_REASONS, UnknownFinish),
    RetryPolicy: _Sum("mode", {policy.mode: policy for policy in (NormalRetry, AlwaysRetry)}),
}


# Out


def to_json(value: Any) -> Any:
    """A value as plain dicts, lists, strings, numbers, booleans and None.

    Raises:
        TypeError: it holds something that is no value of the model floor.
        ValueError: it holds a number that JSON cannot say.
    """
    if value is None or isinstance(value, (str, bool, int)):
        return value
    if isinstance(value, float):
        if not math.isfinite(value):
            raise ValueError(f"JSON has no {value!r}")
        return value
    if isinstance(value, dict):
        return {key: to_json(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [to_json(item) for item in value]
    if isinstance(value, bytes):
        return base64.b64encode(value).decode()
    if not attrs.has(type(value)):
        raise TypeError(f"{type(value).__name__} is no value of the vocabulary")
    return _object(value)


def _object(value: Any) -> dict[str, Any]:
    shape = _shape(type(value))
    if isinstance(value, _UNKNOWN):
        encoded = {shape.tag_key: value.tag, **to_json(value.data)}
        if isinstance(value, UnknownFinish) and value.raw is not None:
            encoded["raw"] = value.raw
        return encoded
    encoded = {} if shape.tag is None else {shape.tag_key: shape.tag}
    for field in shape.fields:
        item = getattr(value, field.name)
        if item is not None or not field.optional:
            encoded[field.key] = _OFF if field.switchable and item == math.inf else to_json(item)
    return encoded


def encode(value: Any) -> bytes:
    """A value as compact UTF-8 JSON. Lone surrogates are spelled as escapes, so nothing is lost.

    Raises:
        TypeError, ValueError: as :func:`to_json`.
    """
    plain = to_json(value)
    try:
        return msgspec.json.encode(plain)
    except UnicodeEncodeError:
        return json.dumps(plain, separators=(",", ":")).encode()


# In


def decode_value(kind: type[T], data: Any) -> T:
    """A value of an attrs class of the model floor from its JSON.

    Args:
        data: what :func:`to_json` gave.

    Raises:
        ValueError: ``data`` is not such a value; the text says where it goes wrong.
    """
    decoded: T = _decoder(kind)(data, "$")
    return decoded


def decode(kind: Any, text: bytes | str) -> Any:
    """A value from JSON text; ``kind`` is an attrs class or one of the sums of the model floor.

    Raises:
        LlmError: MALFORMED_RESPONSE, if ``text`` is no JSON.
        ValueError: as :func:`decode_value`.
    """
    return _decoder(kind)(decode_lenient(text), "$")


def decode_chunk(data: Any) -> StreamChunk:
    """A chunk from its JSON. Raises as :func:`decode_value`."""
    chunk: StreamChunk = _decoder(StreamChunk)(data, "$")
    return chunk


def decode_block(data: Any) -> ContentBlock:
    """A content block from its JSON. Raises as :func:`decode_value`."""
    block: ContentBlock = _decoder(ContentBlock)(data, "$")
    return block


def decode_message(data: Any) -> Message:
    """A message from its JSON. Raises as :func:`decode_value`."""
    return decode_value(Message, data)


def decode_finish(data: Any) -> FinishReason:
    """A finish reason from its JSON. Raises as :func:`decode_value`."""
    reason: FinishReason = _decoder(FinishReason)(data, "$")
    return reason


def decode_policy(data: Any) -> RetryPolicy:
    """A retry policy from its JSON. Raises as :func:`decode_value`."""
    policy: RetryPolicy = _decoder(RetryPolicy)(data, "$")
    return policy


def decode_options(data: Any) -> GenerateOptions:
    """Options, messages included, from their JSON; without a signal. Raises as :func:`decode_value`."""
    return decode_value(GenerateOptions, data)


def decode_header(data: Any) -> RequestHeader:
    """A request header from its JSON. Raises as :func:`decode_value`."""
    return decode_value(RequestHeader, data)


# The shape of a class, read once


@attrs.frozen
class _Field:
    """One field of a class.

    Attributes:
        optional: it is None where nothing else is said.
        required: there is no default.
        switchable: it may be infinite.
    """

    name: str
    key: str
    argument: str
    hint: Any
    optional: bool
    required: bool
    switchable: bool


@attrs.frozen
class _Shape:
    """The fields of a class that go into JSON, and its tag if it has one."""

    fields: tuple[_Field, ...]
    tag_key: str
    tag: str | None


def _read_shape(kind: type[Any]) -> _Shape:
    # JsonValue is recursive, and says no more than Any here.
    hints = get_type_hints(kind, localns={"JsonValue": Any})
    fields = tuple(
        _Field(
            name=field.name,
            key=_camel(field.name),
            argument=field.alias or field.name,
            hint=hints[field.name],
            optional=field.default is None,
            required=field.default is attrs.NOTHING,
            switchable=kind is Timeouts,
        )
        for field in attrs.fields(kind)
        if field.name not in _SECRETS and AbortSignal not in get_args(hints[field.name])
    )
    for key in ("type", "kind", "mode"):
        tag = getattr(kind, key, None)
        if isinstance(tag, str):
            return _Shape(fields, key, tag)
    return _Shape(fields, "", None)


_shape: Final[Callable[[Any], _Shape]] = cache(_read_shape)


def _camel(name: str) -> str:
    head, *tail = name.strip("_").split("_")
    return head + "".join(word.capitalize() for word in tail)


# One decoder for each kind of type hint: takes JSON and its path, raises ValueError


def _make_decoder(hint: Any) -> _Decoder:
    if hint in _SUMS:
        return partial(_decode_sum, _SUMS[hint])
    if isinstance(hint, NewType):
        return _decoder(hint.__supertype__)
    if hint in _SCALARS:
        return partial(_decode_scalar, hint, _SCALARS[hint])
    if hint is bytes:
        return _decode_bytes
    origin = get_origin(hint)
    if hint in (Any, FrozenObject, dict) or origin in (dict, Mapping):
        return lambda data, path: data  # JSON as it is; the class itself freezes it
    if origin is Literal:
        return partial(_decode_literal, get_args(hint))
    if origin in (tuple, list):
        return partial(_decode_list, get_args(hint)[0])
    if origin in (Union, types.UnionType):
        alternatives = tuple(member for member in get_args(hint) if member is not type(None))
        whole = reduce(operator.or_, alternatives)
        members = (whole,) if whole in _SUMS else alternatives
        return partial(_decode_union, members, len(alternatives) < len(get_args(hint)))
    if isinstance(hint, type) and attrs.has(hint):
        return partial(_decode_object, hint)
    raise TypeError(f"the codec knows no JSON for the type {hint!r}")


_decoder: Final[Callable[[Any], _Decoder]] = cache(_make_decoder)


_SCALARS: Final[dict[Any, tuple[type[Any], ...]]] = {
    str: (str,),
    bool: (bool,),
    int: (int,),
    float: (float, int),
}


def _decode_scalar(kind: type[Any], accepted: tuple[type[Any], ...], data: Any, path: str) -> Any:
    if type(data) not in accepted:
        raise _unexpected(path, kind.__name__, data)
    return data


def _decode_bytes(data: Any, path: str) -> bytes:
    try:
        return base64.b64decode(_decoder(str)(data, path), validate=True)
    except binascii.Error:
        raise ValueError(f"{path}: expected base64") from None


def _decode_literal(values: tuple[Any, ...], data: Any, path: str) -> Any:
    if not isinstance(data, str) or data not in values:
        raise ValueError(f"{path}: expected one of {values!r}")
    return data


def _decode_list(member: Any, data: Any, path: str) -> tuple[Any, ...]:
    if not isinstance(data, (list, tuple)):
        raise _unexpected(path, "an array", data)
    decode_member = _decoder(member)
    return tuple(decode_member(item, f"{path}[{place}]") for place, item in enumerate(data))


def _decode_union(members: tuple[Any, ...], optional: bool, data: Any, path: str) -> Any:
    if data is None and optional:
        return None
    *others, last = members
    for member in others:
        try:
            return _decoder(member)(data, path)
        except ValueError:
            continue
    return _decoder(last)(data, path)


def _decode_sum(members: _Sum, data: Any, path: str) -> Any:
    tag = _mapping(data, path).get(members.key)
    if not isinstance(tag, str):
        raise _unexpected(f"{path}.{members.key}", "a tag", tag)
    kind = members.members.get(tag)
    if kind is not None:
        return _decode_object(kind, data, path)
    if members.unknown is None:
        raise ValueError(f"{path}.{members.key}: unknown tag {tag!r}")
    rest = {key: value for key, value in data.items() if key != members.key}
    raw = (
        {"raw": rest.pop("raw")} if members.unknown is UnknownFinish and type(rest.get("raw")) is str else {}
    )
    return _built(members.unknown, {"tag": tag, "data": rest, **raw}, path)


def _decode_object(kind: type[Any], data: Any, path: str) -> Any:
    shape = _shape(kind)
    rest = dict(_mapping(data, path))
    if shape.tag is not None and rest.pop(shape.tag_key, None) != shape.tag:
        raise ValueError(f"{path}.{shape.tag_key}: expected {shape.tag!r}")
    arguments = {}
    for field in shape.fields:
        if field.key in rest:
            item = rest.pop(field.key)
            arguments[field.argument] = (
                math.inf
                if field.switchable and item == _OFF
                else _decoder(field.hint)(item, f"{path}.{field.key}")
            )
        elif field.required:
            raise ValueError(f"{path}.{field.key} is missing")
    if rest:
        # Dropping what one does not know would lose it without a word.
        raise ValueError(f"{path}: {kind.__name__} has no field {min(rest)!r}")
    return _built(kind, arguments, path)


def _mapping(data: Any, path: str) -> Mapping[str, Any]:
    if not isinstance(data, Mapping):
        raise _unexpected(path, "an object", data)
    return data


def _unexpected(path: str, expected: str, data: Any) -> ValueError:
    return ValueError(f"{path}: expected {expected}, not {type(data).__name__}")


def _built(kind: type[Any], arguments: dict[str, Any], path: str) -> Any:
    try:
        return kind(**arguments)
    except (TypeError, ValueError) as error:
        raise ValueError(f"{path}: {error}") from error
