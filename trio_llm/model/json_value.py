"""JSON values that cannot change.

A value that crosses this library (tool parameters, replay state, provider options) is frozen when
it is put into a message, so that a recorded request stays what it was. Objects become
:class:`FrozenObject`, arrays become tuples; both encode with any JSON library as they are.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NoReturn, TypeAlias, Union

JsonValue: TypeAlias = Union[
    bool, int, float, str, "tuple[JsonValue, ...]", "list[JsonValue]", "Mapping[str, JsonValue]", None
]
"""Anything JSON can say. Frozen values hold :class:`FrozenObject` and tuples inside."""


class FrozenObject(dict[str, Any]):
    """A JSON object that refuses every change and can be hashed.

    It is a ``dict`` so that JSON encoders and ``==`` work without conversion.

    Raises:
        TypeError: from every method that would change it.
    """

    __slots__ = ()

    def _refuse(self: Any, *args: Any, **kwargs: Any) -> NoReturn:
        raise TypeError("a frozen JSON object cannot be changed")

    __setitem__: Any = _refuse
    __delitem__: Any = _refuse
    __ior__: Any = _refuse
    clear: Any = _refuse
    pop: Any = _refuse
    popitem: Any = _refuse
    setdefault: Any = _refuse
    update: Any = _refuse

    def __hash__(self) -> int:  # type: ignore[override]  # dict has none; a frozen one can have it
        return hash(frozenset(self.items()))

    def __reduce__(self) -> tuple[Any, ...]:
        return (FrozenObject, (dict(self),))

    def __copy__(self) -> FrozenObject:
        return self

    def __deepcopy__(self, memo: object) -> FrozenObject:
        return self

    def __repr__(self) -> str:
        return dict.__repr__(self)


def freeze_json(value: Any) -> Any:
    """Return ``value`` with every object and array inside it frozen.

    Args:
        value: anything JSON can say; mappings need string keys; lists and tuples are arrays.

    Raises:
        TypeError: the value holds something JSON cannot say (the text names the type and path).
        ValueError: the value holds NaN or an infinity.
    """
    return _freeze(value, "$")


def _freeze(value: Any, path: str) -> Any:
    if value is None or isinstance(value, (str, bool, int)):
        return value
    if isinstance(value, float):
        if value != value or value in (float("inf"), float("-inf")):
            raise ValueError(f"{path}: JSON has no {value!r}")
        return value
    if type(value) is FrozenObject:
        return value
    if isinstance(value, Mapping):
        frozen = {}
        for key, item in value.items():
            if not isinstance(key, str):
                raise TypeError(f"{path}: JSON object keys are strings, not {type(key).__name__}")
            frozen[key] = _freeze(item, f"{path}.{key}")
        return FrozenObject(frozen)
    if isinstance(value, (list, tuple)):
        return tuple(_freeze(item, f"{path}[{index}]") for index, item in enumerate(value))
    raise TypeError(f"{path}: {type(value).__name__} is not a JSON value")


def freeze_object(value: Mapping[str, Any]) -> FrozenObject:
    """Freeze a JSON object.

    Raises:
        TypeError: ``value`` is no mapping, or holds something JSON cannot say.
        ValueError: ``value`` holds NaN or an infinity.
    """
    frozen = freeze_json(value)
    if not isinstance(frozen, FrozenObject):
        raise TypeError(f"expected a JSON object, not {type(value).__name__}")
    return frozen


def freeze_optional_object(value: Mapping[str, Any] | None) -> FrozenObject | None:
    """Freeze a JSON object, or pass None through. Raises as :func:`freeze_object`."""
    return None if value is None else freeze_object(value)
