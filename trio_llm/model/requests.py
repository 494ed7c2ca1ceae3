"""Requests: what is asked of a model, and the record of what was asked."""

from __future__ import annotations

import weakref
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Literal, TypeAlias

import attrs

from .content import of_class
from .identifiers import ReasoningEffortId, SessionId
from .json_value import FrozenObject, freeze_object, freeze_optional_object
from .messages import Message
from .policy import Timeouts
from .signal import AbortSignal

Purpose: TypeAlias = Literal["compaction", "session-title"]


@attrs.frozen
class ToolSchema:
    """A tool the model may call.

    Attributes:
        parameters: a JSON schema; frozen at construction.
    """

    name: str = attrs.field(validator=attrs.validators.min_len(1))
    description: str
    parameters: FrozenObject = attrs.field(converter=freeze_object)


@attrs.frozen
class NamedTool:
    """A tool choice: the model must call this tool."""

    name: str = attrs.field(validator=attrs.validators.min_len(1))


ToolChoice: TypeAlias = Literal["auto", "none", "required"] | NamedTool


@attrs.frozen
class ResponseFormat:
    """The answer must be JSON that follows a schema.

    Attributes:
        schema: a JSON schema; frozen at construction.
        name: how the provider shall call the format.
        strict: whether the provider shall enforce the schema.
    """

    schema: FrozenObject = attrs.field(converter=freeze_object)
    name: str = attrs.field(default="response", validator=attrs.validators.min_len(1))
    strict: bool = True


def _messages(value: Iterable[Message]) -> tuple[Message, ...]:
    messages = tuple(value)
    if set(map(type, messages)) <= {
        Message
    }:  # no loop over a long history, which is gone through for every call
        return messages
    for message in messages:
        if not isinstance(message, Message):
            raise TypeError(
                f"messages are made by create_user_message and its kin; this is a {type(message).__name__}"
            )
    return messages


def _tools(value: Iterable[ToolSchema]) -> tuple[ToolSchema, ...]:
    tools = tuple(value)
    for tool in tools:
        if not isinstance(tool, ToolSchema):
            raise TypeError(f"tools are ToolSchema values; this is a {type(tool).__name__}")
    return tools


def _names(value: Iterable[str]) -> tuple[str, ...]:
    return tuple(value)


def _stop(value: Iterable[str] | str | None) -> tuple[str, ...] | None:
    if value is None:
        return None
    return (value,) if isinstance(value, str) else tuple(value)


def _choice(instance: object, attribute: attrs.Attribute[Any], value: Any) -> None:
    if value is not None and not isinstance(value, NamedTool) and value not in ("auto", "none", "required"):
        raise ValueError(f"tool_choice is 'auto', 'none', 'required' or a NamedTool, not {value!r}")


def _positive(instance: object, attribute: attrs.Attribute[Any], value: Any) -> None:
    if value is not None and (type(value) is not int or value < 1):
        raise ValueError(f"{attribute.name} is a positive count of tokens, not {value!r}")


@attrs.frozen(kw_only=True)
class LlmCallConfig:
    """The part of a request that is configuration; one to one with fields of :class:`GenerateOptions`."""

    provider: str = attrs.field(validator=attrs.validators.min_len(1))
    model: str = attrs.field(validator=attrs.validators.min_len(1))
    reasoning_effort: ReasoningEffortId | None = None
    temperature: float | None = None
    max_tokens: int | None = attrs.field(default=None, validator=_positive)
    stop: tuple[str, ...] | None = attrs.field(default=None, converter=_stop)
    top_p: float | None = None
    tool_choice: ToolChoice | None = attrs.field(default=None, validator=_choice)
    response_format: ResponseFormat | None = attrs.field(
        default=None, validator=attrs.validators.optional(of_class(ResponseFormat))
    )
    provider_options: FrozenObject | None = attrs.field(default=None, converter=freeze_optional_object)


@attrs.frozen(kw_only=True)
class GenerateOptions(LlmCallConfig):
    """One request. What is None is left to the adapter, then to the provider.

    Attributes:
        provider: the route's name.
        model: the provider's id of the model; need not be in any catalogue.
        messages: the conversation, oldest first.
        reasoning_effort: an id from the model's catalogue entry.
        system: the system prompt.
        tools: the tools the model may call.
        max_tokens: the most tokens the answer may have.
        stop: strings that end the answer; they are not in the output.
        signal: aborts the call.
        session_id, purpose: hints an adapter may map or ignore.
        timeouts: override the adapter's, field by field.
        provider_options: documented keys per adapter; an unknown key is refused.

    Raises:
        ValueError: an empty provider or model, a limit that is not positive, an unknown tool choice.
        TypeError: ``provider_options`` holds something JSON cannot say; ``messages``, ``tools``,
            ``response_format`` or ``timeouts`` hold values of other classes.
    """

    messages: tuple[Message, ...] = attrs.field(converter=_messages)
    system: str | None = None
    tools: tuple[ToolSchema, ...] = attrs.field(default=(), converter=_tools)
    signal: AbortSignal | None = None
    session_id: SessionId | None = None
    purpose: Purpose | None = attrs.field(
        default=None,
        validator=attrs.validators.optional(attrs.validators.in_(("compaction", "session-title"))),
    )
    timeouts: Timeouts | None = attrs.field(
        default=None, validator=attrs.validators.optional(of_class(Timeouts))
    )


CONFIG_FIELDS = tuple(field.name for field in attrs.fields(LlmCallConfig))
"""The names of the fields that make up an :class:`LlmCallConfig`."""


def call_config(options: LlmCallConfig) -> LlmCallConfig:
    """The configuration part of some options."""
    return LlmCallConfig(**{name: getattr(options, name) for name in CONFIG_FIELDS})


def call_config_equals(one: LlmCallConfig, other: LlmCallConfig) -> bool:
    """Whether two requests have the same configuration; compares every configuration field."""
    return all(getattr(one, name) == getattr(other, name) for name in CONFIG_FIELDS)


def without_adapter_defaults(config: LlmCallConfig, defaults: Iterable[str]) -> LlmCallConfig:
    """``config`` without the fields an adapter had supplied, so that another route supplies its own.

    Args:
        defaults: names of configuration fields, as a prepared call lists them.

    Raises:
        ValueError: a name that is no optional field of the configuration.
    """
    cleared: dict[str, Any] = {}
    for name in defaults:
        if name not in CONFIG_FIELDS or name in ("provider", "model"):
            raise ValueError(f"{name!r} is not a field that an adapter supplies")
        cleared[name] = None
    return attrs.evolve(config, **cleared) if cleared else config


@attrs.frozen(kw_only=True)
class RequestHeader:
    """The recorded snapshot of one call; with the history, the request can be rebuilt from it.

    Attributes:
        adapter_defaults: which fields of ``config`` the adapter supplied.
        tools: sorted by name.
        tool_order: the tools' names in the order they were sent, where that is not the sorted one.
    """

    config: LlmCallConfig
    adapter_defaults: tuple[str, ...] = attrs.field(default=(), converter=_names)
    system: str | None = None
    tools: tuple[ToolSchema, ...] = attrs.field(default=(), converter=_tools)
    tool_order: tuple[str, ...] | None = attrs.field(
        default=None, converter=attrs.converters.optional(_names)
    )
    session_id: SessionId | None = None
    purpose: Purpose | None = None
    timeouts: Timeouts | None = None


def request_header(options: GenerateOptions, adapter_defaults: Sequence[str] = ()) -> RequestHeader:
    """The header of a call: everything of ``options`` but messages and signal."""
    ordered = tuple(sorted(options.tools, key=lambda tool: tool.name))
    return RequestHeader(
        config=call_config(options),
        adapter_defaults=adapter_defaults,
        system=options.system,
        tools=ordered,
        tool_order=None if ordered == options.tools else tuple(tool.name for tool in options.tools),
        session_id=options.session_id,
        purpose=options.purpose,
        timeouts=options.timeouts,
    )


def options_from_header(
    header: RequestHeader, messages: Iterable[Message], *, signal: AbortSignal | None = None
) -> GenerateOptions:
    """The request again, from its header and the history it was sent with.

    Raises:
        ValueError: ``tool_order`` names other tools than the header holds.
    """
    tools: Iterable[ToolSchema] = header.tools
    if header.tool_order is not None:
        by_name: Mapping[str, list[ToolSchema]] = {name: [] for name in header.tool_order}
        for tool in header.tools:
            if tool.name not in by_name:
                raise ValueError(f"tool_order does not name {tool.name!r}")
            by_name[tool.name].append(tool)
        try:
            tools = [by_name[name].pop(0) for name in header.tool_order]
        except IndexError:
            raise ValueError("tool_order names a tool that the header does not hold") from None
    return GenerateOptions(
        **{name: getattr(header.config, name) for name in CONFIG_FIELDS},
        messages=messages,
        system=header.system,
        tools=tools,
        signal=signal,
        session_id=header.session_id,
        purpose=header.purpose,
        timeouts=header.timeouts,
    )


_loop_requests: weakref.WeakValueDictionary[int, GenerateOptions] = weakref.WeakValueDictionary()


def mark_agent_loop_request(options: GenerateOptions) -> GenerateOptions:
    """Mark this very object as built by an agent loop; returns it.

    The mark is process-local, goes by object identity and dies with the object. Middleware reads
    it; passing changed options on for a marked request raises.
    """
    _loop_requests[id(options)] = options
    return options


def is_agent_loop_request(options: GenerateOptions) -> bool:
    """Whether :func:`mark_agent_loop_request` was called with this very object."""
    return _loop_requests.get(id(options)) is options
