"""Requests, their configuration, and the record from which they are rebuilt."""

from __future__ import annotations

import copy
import gc
from typing import Any

import attrs
import pytest
from hypothesis import given, settings

from tests.strategies import CONFIGS, OPTIONS
from trio_llm.model.identifiers import ReasoningEffortId, SessionId
from trio_llm.model.messages import create_user_message
from trio_llm.model.policy import Timeouts
from trio_llm.model.requests import (
    CONFIG_FIELDS,
    GenerateOptions,
    LlmCallConfig,
    NamedTool,
    RequestHeader,
    ResponseFormat,
    ToolSchema,
    call_config,
    call_config_equals,
    is_agent_loop_request,
    mark_agent_loop_request,
    options_from_header,
    request_header,
    without_adapter_defaults,
)
from trio_llm.model.signal import AbortSignal

BASE = LlmCallConfig(provider="p", model="m")
OTHER: dict[str, Any] = {
    "provider": "q",
    "model": "n",
    "reasoning_effort": ReasoningEffortId("high"),
    "temperature": 0.5,
    "max_tokens": 10,
    "stop": ("end",),
    "top_p": 0.9,
    "tool_choice": NamedTool("t"),
    "response_format": ResponseFormat({"type": "object"}),
    "provider_options": {"a": [1]},
}


def options(**fields: Any) -> GenerateOptions:
    return GenerateOptions(**{"provider": "p", "model": "m", "messages": (), **fields})


def tool(name: str, description: str = "") -> ToolSchema:
    return ToolSchema(name, description, {})


# Call-config equality


def test_call_config_has_the_fields_of_the_options_one_to_one() -> None:
    assert set(OTHER) == set(CONFIG_FIELDS)
    assert set(CONFIG_FIELDS) < {field.name for field in attrs.fields(GenerateOptions)}


@pytest.mark.parametrize("name", CONFIG_FIELDS)
def test_call_config_equality_compares_every_field(name: str) -> None:
    changed = attrs.evolve(BASE, **{name: OTHER[name]})
    assert not call_config_equals(BASE, changed)
    assert call_config_equals(changed, attrs.evolve(BASE, **{name: copy.deepcopy(OTHER[name])}))


def test_call_config_equality_looks_at_the_configuration_alone() -> None:
    one = options(messages=[create_user_message("a")], system="s", session_id=SessionId("x"))
    assert call_config_equals(one, options())
    assert call_config_equals(one, BASE)


@given(one=OPTIONS)
@settings(max_examples=30)
def test_call_config_of_options_equals_them(one: GenerateOptions) -> None:
    config = call_config(one)
    assert type(config) is LlmCallConfig
    assert call_config_equals(config, one)
    assert all(getattr(config, name) is getattr(one, name) for name in CONFIG_FIELDS if name != "stop")


# Options


@pytest.mark.parametrize(
    "fields",
    [
        {"provider": ""},
        {"model": ""},
        {"max_tokens": 0},
        {"max_tokens": -1},
        {"max_tokens": 1.5},
        {"max_tokens": True},
        {"tool_choice": "any"},
        {"tool_choice": {"name": "t"}},
        {"purpose": "chat"},
    ],
    ids=str,
)
def test_options_refuse_what_makes_no_sense(fields: dict[str, Any]) -> None:
    (name,) = fields
    with pytest.raises(ValueError, match=name):
        options(**fields)


@pytest.mark.parametrize(
    ("fields", "said"),
    [
        (
            {"messages": [{"role": "user", "content": "Hi"}]},
            "create_user_message and its kin; this is a dict",
        ),
        ({"messages": (create_user_message("a"), {"role": "user"})}, "this is a dict"),
        ({"messages": "Hi"}, "this is a str"),
        ({"tools": [{"name": "add"}]}, "tools are ToolSchema values; this is a dict"),
        ({"timeouts": 30}, "timeouts is a Timeouts, not a int"),
        ({"response_format": {"type": "json_object"}}, "response_format is a ResponseFormat, not a dict"),
    ],
)
def test_values_of_another_class_are_refused_where_they_are_given(fields: dict[str, Any], said: str) -> None:
    with pytest.raises(TypeError, match=said):
        options(**fields)


def test_options_are_frozen_to_the_bottom() -> None:
    parameters, extra, tools = {"type": ["object"]}, {"a": {"b": [1]}}, [tool("t")]
    made = options(provider_options=extra, tools=[ToolSchema("t", "", parameters), *tools], stop=["x"])
    parameters["type"].append("null")
    extra["a"]["b"].append(2)
    tools.append(tool("u"))
    assert made.provider_options == {"a": {"b": (1,)}}
    assert made.tools[0].parameters == {"type": ("object",)}
    assert len(made.tools) == 2
    assert made.stop == ("x",)
    hash(made.tools)
    with pytest.raises(TypeError, match=r"\$\.a"):
        options(provider_options={"a": object()})


def test_one_stop_string_is_one_stop_string() -> None:
    assert options(stop="END").stop == ("END",)
    assert options(stop=[]).stop == ()
    assert options().stop is None


def test_messages_pass_by_identity() -> None:
    messages = (create_user_message("a"), create_user_message("b"))
    assert options(messages=messages).messages is messages
    assert all(
        one is other for one, other in zip(options(messages=list(messages)).messages, messages, strict=True)
    )


@pytest.mark.parametrize("make", [lambda: tool(""), lambda: NamedTool(""), lambda: ResponseFormat({}, "")])
def test_tools_and_formats_have_names(make: Any) -> None:
    with pytest.raises(ValueError, match="name"):
        make()


# Adapter defaults


@given(config=CONFIGS)
def test_adapter_defaults_are_taken_out_again(config: LlmCallConfig) -> None:
    cleared = without_adapter_defaults(config, ["max_tokens", "reasoning_effort"])
    assert (cleared.max_tokens, cleared.reasoning_effort) == (None, None)
    restored = attrs.evolve(cleared, max_tokens=config.max_tokens, reasoning_effort=config.reasoning_effort)
    assert restored == config
    assert without_adapter_defaults(config, ()) is config


@pytest.mark.parametrize("name", ["provider", "model", "messages", "nonsense"])
def test_only_what_an_adapter_supplies_can_be_taken_out(name: str) -> None:
    with pytest.raises(ValueError, match=name):
        without_adapter_defaults(BASE, [name])


# The header


@given(made=OPTIONS)
@settings(max_examples=50)
def test_a_request_is_rebuilt_exactly_from_header_and_history(made: GenerateOptions) -> None:
    header = request_header(made, ["max_tokens"])
    rebuilt = options_from_header(header, made.messages)
    assert rebuilt == made
    assert rebuilt.messages is made.messages
    assert header.adapter_defaults == ("max_tokens",)
    assert list(header.tools) == sorted(header.tools, key=lambda one: one.name)
    assert request_header(rebuilt, ["max_tokens"]) == header


def test_the_header_holds_neither_messages_nor_signal() -> None:
    names = {field.name for field in attrs.fields(RequestHeader)}
    assert not names & {"messages", "signal"}
    signal = AbortSignal()
    assert options_from_header(request_header(options(signal=signal)), ()).signal is None
    assert options_from_header(request_header(options()), (), signal=signal).signal is signal


def test_the_header_holds_tuples() -> None:
    defaults, order = ["max_tokens"], ["b", "a"]
    made = RequestHeader(
        config=BASE, adapter_defaults=defaults, tools=[tool("a"), tool("b")], tool_order=order
    )
    defaults.append("reasoning_effort")
    order.clear()
    assert (made.adapter_defaults, made.tool_order) == (("max_tokens",), ("b", "a"))
    assert RequestHeader(config=BASE).tool_order is None


def test_tool_order_is_kept_only_where_it_is_not_the_sorted_one() -> None:
    in_order = request_header(options(tools=[tool("a"), tool("b")]))
    assert (in_order.tool_order, [one.name for one in in_order.tools]) == (None, ["a", "b"])
    out_of_order = request_header(options(tools=[tool("b"), tool("a")]))
    assert (out_of_order.tool_order, [one.name for one in out_of_order.tools]) == (("b", "a"), ["a", "b"])
    twins = [tool("b", "1"), tool("a"), tool("b", "2")]
    assert options_from_header(request_header(options(tools=twins)), ()).tools == tuple(twins)


@pytest.mark.parametrize("order", [("a",), ("a", "b", "c"), ("a", "c"), ("a", "a")])
def test_a_tool_order_that_names_other_tools_is_refused(order: tuple[str, ...]) -> None:
    header = RequestHeader(config=BASE, tools=[tool("a"), tool("b")], tool_order=order)
    with pytest.raises(ValueError, match="tool_order"):
        options_from_header(header, ())


def test_timeouts_and_purpose_are_recorded() -> None:
    made = options(
        timeouts=Timeouts(idle=5), purpose="compaction", session_id=SessionId("s"), system="be brief"
    )
    header = request_header(made)
    assert (header.timeouts, header.purpose, header.session_id, header.system) == (
        *(Timeouts(idle=5), "compaction", "s"),
        "be brief",
    )


# The loop mark


def test_the_loop_mark_goes_by_object_identity() -> None:
    marked, twin = options(), options()
    assert mark_agent_loop_request(marked) is marked
    assert is_agent_loop_request(marked)
    assert marked == twin
    assert not is_agent_loop_request(twin)
    assert not is_agent_loop_request(attrs.evolve(marked))
    assert not is_agent_loop_request(copy.copy(marked))


def test_the_loop_mark_dies_with_its_object() -> None:
    for _ in range(100):
        mark_agent_loop_request(options())
    gc.collect()
    assert not any(is_agent_loop_request(options()) for _ in range(100))
