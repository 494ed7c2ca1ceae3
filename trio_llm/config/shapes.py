"""Attrs classes from plain data, as TOML gives it: the fields and their types are read from the classes.

Every fault is noted with the place where it stands, and reading goes on, so that one look at a file
finds all of them. The text of a fault repeats no value but what a class's own validator repeats.
"""

from __future__ import annotations

import json
import re
import types
from collections.abc import Callable, Mapping
from functools import partial
from types import MappingProxyType
from typing import Any, Final, Literal, TypeAlias, TypeGuard, Union, get_args, get_origin, get_type_hints

import attrs

from ..model.failures import LlmError
from ..model.json_value import FrozenObject, freeze_object
from ..transport.credentials import Secret
from .suggest import suggestion

BAD: Final = object()
"""Stands for a value that could not be read; the fault has been noted."""

_BARE: Final = re.compile(r"[A-Za-z0-9_-]+")


class Place:
    """Somewhere in a file.

    Args:
        faults: where the faults of the whole file are noted.
        path: the place, as TOML spells it.
    """

    def __init__(self, faults: list[str], path: str = "") -> None:
        self._faults = faults
        self._path = path

    def at(self, key: str) -> Place:
        """The place of a key in the table here."""
        quoted = key if _BARE.fullmatch(key) else json.dumps(key)
        return Place(self._faults, f"{self._path}.{quoted}" if self._path else quoted)

    def item(self, index: int) -> Place:
        """The place of an item in the array here."""
        return Place(self._faults, f"{self._path}[{index}]")

    def fault(self, text: str) -> Any:
        """Note a fault; gives :data:`BAD`."""
        self._faults.append(f"{self._path}: {text}" if self._path else text)
        return BAD


Read: TypeAlias = Callable[[Any, Place], Any]
"""Reads one value; gives BAD where it cannot, and notes why."""


@attrs.frozen
class Field:
    """One key of a table, and the argument it becomes."""

    argument: str
    read: Read
    required: bool = False


def read_table(make: Callable[..., Any], fields: Mapping[str, Field], data: Any, place: Place) -> Any:
    """``make(**arguments)`` from a table, or BAD."""
    if not isinstance(data, dict):
        return _unexpected("a table", data, place)
    arguments = {}
    for key, value in data.items():
        if key in fields:
            arguments[fields[key].argument] = fields[key].read(value, place.at(key))
        else:
            arguments[key] = place.at(key).fault(f"is not a known key{suggestion(key, fields)}")
    for key, field in fields.items():
        if field.required and key not in data:
            arguments[field.argument] = place.at(key).fault("is missing")
    if any(argument is BAD for argument in arguments.values()):
        return BAD
    try:
        return make(**arguments)
    except LlmError as error:
        return place.fault(error.failure.message)
    except (TypeError, ValueError) as error:
        return place.fault(str(error))


def attribute_fields(
    kind: type[Any], special: Mapping[str, Read] = MappingProxyType({})
) -> dict[str, Field | None]:
    """The fields of an attrs class by name; None for one of a type that TOML cannot say.

    Args:
        special: what reads some fields, whatever their type.

    Raises:
        NameError: a type annotation of the class cannot be resolved.
    """
    # A Credential names Secret, which the class's own module need not have imported.
    hints = get_type_hints(kind, localns={"Secret": Secret})
    fields: dict[str, Field | None] = {}
    for attribute in attrs.fields(kind):
        if attribute.init:
            name = attribute.alias or attribute.name
            read = special.get(name) or _attribute_reader(attribute, hints[attribute.name])
            fields[name] = read and Field(name, read, attribute.default is attrs.NOTHING)
    return fields


def _attribute_reader(attribute: attrs.Attribute[Any], hint: Any) -> Read | None:
    if attribute.converter is not None and _is_list_of_attrs(item := _required(hint)):
        read = _reader(get_args(item)[0])
        return read and partial(_read_list, partial(_read_string_or, read))
    read = _reader(hint)
    return read and (partial(_read_valid, attribute, read) if attribute.validator else read)


def _read_valid(attribute: attrs.Attribute[Any], read: Read, data: Any, place: Place) -> Any:
    """Ask the attribute's validator first: it knows better than a type what is expected."""
    assert attribute.validator is not None  # else nobody is asked
    try:
        attribute.validator(None, attribute, data)
    except Exception as error:
        # One that speaks of something else, or that needs the object, speaks again when it is made.
        name, _, said = str(error).partition(" ")
        if name == attribute.name:
            return place.fault(said)
    return read(data, place)


# One reader for each kind of type hint


def _required(hint: Any) -> Any:
    """A hint without its None."""
    if get_origin(hint) in (Union, types.UnionType):
        members = [member for member in get_args(hint) if member is not types.NoneType]
        return members[0] if len(members) == 1 else Union[tuple(members)]
    return hint


def _is_list_of_attrs(hint: Any) -> bool:
    return get_origin(hint) is tuple and attrs.has(get_args(hint)[0])


def _reader(hint: Any) -> Read | None:
    """What reads values of a type; None if TOML cannot say them."""
    hint = _required(hint)
    origin, arguments = get_origin(hint), get_args(hint)
    if hint in _SCALARS:
        return partial(_read_scalar, *_SCALARS[hint])
    if hint is FrozenObject:
        return _read_object
    if origin is Literal:
        return partial(_read_literal, arguments)
    if hint == tuple[tuple[str, str], ...]:
        return _read_pairs
    if origin in (tuple, frozenset) and (read := _reader(arguments[0])) is not None:
        return partial(_read_list, read)
    if origin is Union and all(hasattr(member, "mode") for member in arguments):
        return partial(_read_by_mode, {member.mode: member for member in arguments})
    if isinstance(hint, type) and attrs.has(hint):
        fields = attribute_fields(hint)
        if _all_known(fields):
            return partial(read_table, hint, fields)
    return None


def _all_known(fields: dict[str, Field | None]) -> TypeGuard[dict[str, Field]]:
    return None not in fields.values()


_SCALARS: Final[Mapping[Any, tuple[str, tuple[type[Any], ...]]]] = {
    str: ("a string", (str,)),
    bool: ("true or false", (bool,)),
    int: ("a whole number", (int,)),
    float: ("a number", (int, float)),
}


def _read_scalar(expected: str, accepted: tuple[type[Any], ...], data: Any, place: Place) -> Any:
    return data if type(data) in accepted else _unexpected(expected, data, place)


def _read_string_or(read: Read, data: Any, place: Place) -> Any:
    """A string is left to the class's converter."""
    return data if isinstance(data, str) else read(data, place)


def _read_object(data: Any, place: Place) -> Any:
    try:
        return freeze_object(data)
    except (TypeError, ValueError) as error:
        return place.fault(f"is a table that JSON can say; {error}")


def _read_literal(words: tuple[str, ...], data: Any, place: Place) -> Any:
    if isinstance(data, str) and data in words:
        return data
    return place.fault(f"is {' or '.join(map(repr, words))}")


def _read_pairs(data: Any, place: Place) -> Any:
    if not isinstance(data, dict):
        return _unexpected("a table of strings", data, place)
    read = [_read_scalar("a string", (str,), value, place.at(key)) for key, value in data.items()]
    return BAD if BAD in read else data


def _read_list(read_item: Read, data: Any, place: Place) -> Any:
    if not isinstance(data, list):
        return _unexpected("an array", data, place)
    items = [read_item(item, place.item(index)) for index, item in enumerate(data)]
    return BAD if any(item is BAD for item in items) else tuple(items)


def _read_by_mode(modes: Mapping[str, type[Any]], data: Any, place: Place) -> Any:
    """A table whose ``mode`` says which class it is of; the first one where it says nothing."""
    if not isinstance(data, dict):
        return _unexpected("a table", data, place)
    mode = data.get("mode", next(iter(modes)))
    if not isinstance(mode, str) or mode not in modes:
        return place.at("mode").fault(f"is {' or '.join(map(repr, modes))}")
    fields = {name: field for name, field in attribute_fields(modes[mode]).items() if field is not None}
    return read_table(modes[mode], fields, {key: data[key] for key in data if key != "mode"}, place)


_TOML_NAMES: Final = {
    str: "a string",
    bool: "a boolean",
    int: "a number",
    float: "a number",
    list: "an array",
    dict: "a table",
}


def _unexpected(expected: str, data: Any, place: Place) -> Any:
    return place.fault(f"is {expected}, not {_TOML_NAMES.get(type(data), 'a date or time')}")
