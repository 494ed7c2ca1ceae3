"""JSON values that cannot change."""

from __future__ import annotations

import copy
import json
import math
import pickle
from typing import Any

import msgspec
import pytest
from hypothesis import given

from tests.strategies import JSON_VALUES
from trio_llm.model.json_value import FrozenObject, freeze_json, freeze_object, freeze_optional_object


def thawed(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: thawed(item) for key, item in value.items()}
    return [thawed(item) for item in value] if isinstance(value, tuple) else value


@given(value=JSON_VALUES)
def test_freezing_changes_no_value(value: Any) -> None:
    frozen = freeze_json(value)
    assert thawed(frozen) == value
    assert json.loads(json.dumps(frozen)) == json.loads(json.dumps(value))
    assert freeze_json(frozen) == frozen
    assert hash(frozen) == hash(freeze_json(copy.deepcopy(value)))
    assert pickle.loads(pickle.dumps(frozen)) == frozen
    assert copy.deepcopy(frozen) == copy.copy(frozen) == frozen


def test_a_frozen_object_refuses_every_change() -> None:
    inner = {"list": [1, {"deep": 1}]}
    frozen = freeze_object(inner)
    inner["list"].append(2)
    assert frozen == {"list": (1, {"deep": 1})}
    changes: list[Any] = [
        lambda: frozen.__setitem__("a", 1),
        lambda: frozen.__delitem__("list"),
        lambda: frozen.__ior__({"a": 1}),
        lambda: frozen.update(a=1),
        lambda: frozen.setdefault("a", 1),
        lambda: frozen.pop("list"),
        lambda: frozen.popitem(),
        lambda: frozen.clear(),
        lambda: frozen["list"][1].update(deep=2),
    ]
    for change in changes:
        with pytest.raises(TypeError):
            change()
    assert frozen == {"list": (1, {"deep": 1})}


def test_a_frozen_object_is_an_ordinary_dict_for_encoders() -> None:
    frozen = freeze_object({"b": 1, "a": [True, None]})
    assert msgspec.json.encode(frozen) == b'{"b":1,"a":[true,null]}'
    assert json.dumps(frozen) == '{"b": 1, "a": [true, null]}'
    assert repr(frozen) == "{'b': 1, 'a': (True, None)}"
    assert copy.copy(frozen) is copy.deepcopy(frozen) is frozen
    assert freeze_object(frozen) is frozen
    assert {frozen: 1}[freeze_object({"a": [True, None], "b": 1})] == 1


@pytest.mark.parametrize(
    ("value", "error", "where"),
    [
        ({"a": [1, {2}]}, TypeError, r"\$\.a\[1\]: set"),
        ({"a": b"x"}, TypeError, r"\$\.a: bytes"),
        ({1: "x"}, TypeError, r"\$: .*keys"),
        ([math.nan], ValueError, r"\$\[0\]"),
        ({"a": -math.inf}, ValueError, r"\$\.a"),
    ],
)
def test_what_json_cannot_say_is_refused_with_its_place(
    value: Any, error: type[Exception], where: str
) -> None:
    with pytest.raises(error, match=where):
        freeze_json(value)


def test_an_object_is_asked_for() -> None:
    not_an_object: Any = [1]
    with pytest.raises(TypeError, match="JSON object"):
        freeze_object(not_an_object)
    assert freeze_optional_object(None) is None
    assert type(freeze_optional_object({})) is FrozenObject
