"""Request bodies against the types that a provider publishes with its own package."""

from __future__ import annotations

import collections.abc
import importlib
import importlib.util
import typing
from typing import Any, Literal, get_args, get_origin


def check_published(body: dict[str, Any], module: str, name: str) -> None:
    """Check a body against the type of that name, where the package of that module is installed."""
    if importlib.util.find_spec(module.partition(".")[0]) is not None:
        assert faults(body, getattr(importlib.import_module(module), name)) == []


def faults(value: Any, wanted: Any, path: str = "$") -> list[str]:
    """Where a value departs from a type; extra members of an object are faults too."""
    origin = get_origin(wanted)
    if wanted in (Any, object):
        return []
    if origin in (typing.Required, typing.NotRequired, typing.Annotated):
        return faults(value, get_args(wanted)[0], path)
    if isinstance(wanted, typing.TypeVar) or wanted is None or wanted is type(None):
        return [] if value is None else [f"{path}: not null"]
    if origin is typing.Union or type(wanted).__name__ == "UnionType":
        found = [faults(value, choice, path) for choice in get_args(wanted)]
        return min(found, key=lambda each: (len(each), -max(map(len, each), default=0)))
    if origin is Literal:
        return [] if value in get_args(wanted) else [f"{path}: {value!r} is none of {get_args(wanted)}"]
    if origin is dict or wanted is dict:
        return [] if isinstance(value, dict) else [f"{path}: no object"]
    if origin is not None and isinstance(origin, type) and issubclass(origin, collections.abc.Iterable):
        if not isinstance(value, list):
            return [f"{path}: no list"]
        return [f for i, item in enumerate(value) for f in faults(item, get_args(wanted)[0], f"{path}[{i}]")]
    if typing.is_typeddict(wanted) or hasattr(wanted, "__required_keys__"):
        return _object_faults(value, wanted, path)
    if getattr(wanted, "_is_protocol", False) or origin is not None:
        return []
    ok = isinstance(value, (int, float) if wanted is float else wanted)
    return [] if ok else [f"{path}: {value!r} is no {wanted.__name__}"]


def _object_faults(value: Any, wanted: Any, path: str) -> list[str]:
    if not isinstance(value, dict):
        return [f"{path}: no object"]
    hints = typing.get_type_hints(wanted, include_extras=True)
    # The classes do not know which of their keys are required, as their annotations are strings.
    required = [name for name, hint in hints.items() if get_origin(hint) is typing.Required]
    found = [f"{path}: lacks {name}" for name in required if name not in value]
    if wanted.__name__ not in ("InputSchemaTyped",):
        found += [f"{path}: {name} is not known" for name in value if name not in hints]
    return found + [
        f
        for name, item in value.items()
        if name in hints
        for f in faults(item, hints[name], f"{path}.{name}")
    ]
