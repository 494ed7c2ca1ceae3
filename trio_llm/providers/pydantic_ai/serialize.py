"""A request of ours as the library takes it: messages, settings, parameters."""

from __future__ import annotations

import base64
import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

import attrs

from ...model.codes import (
    UNSUPPORTED_CONTENT,
    UNSUPPORTED_OPTION,
    UNSUPPORTED_REASONING_EFFORT,
)
from ...model.content import (
    Attachment,
    ContentBlock,
    ImageBlock,
    TextBlock,
    ToolCallBlock,
    ToolResultBlock,
    text_of,
)
from ...model.failures import LlmError
from ...model.identifiers import CallId
from ...model.messages import Message
from ...model.requests import GenerateOptions, NamedTool
from ...protocol.history import HistoryRules, repair
from ...protocol.json_text import decode_lenient, encode_body
from ..replay_state import OnDegraded
from .config import THINKING, PydanticAiModel
from .library import Library
from .replay import restore_response

UNKNOWN_TOOL: Final = "unknown"
"""The name of the tool behind a result whose call is not in the history."""

PROVIDER_OPTIONS: Final = frozenset(
    {
        "frequency_penalty",
        "logit_bias",
        "parallel_tool_calls",
        "presence_penalty",
        "seed",
        "service_tier",
        "top_k",
    }
)
"""The keys of ``provider_options``: settings of the library that the vocabulary does not own."""

# Calls that were cut stay, with {} for arguments; results without their call stay, under another name.
_RULES: Final = HistoryRules(
    call_ids=re.compile("[!-~]{1,64}"),  # OpenAI takes no longer ones
    broken_calls="keep",
    orphan_results="keep",
    foreign_reasoning="drop",
)
_PARTICULAR_RULES: Final = attrs.evolve(_RULES, call_ids=re.compile("[a-zA-Z0-9_-]{1,64}"))


def check_options(options: GenerateOptions, model: PydanticAiModel) -> None:
    """Refuse what can be refused without the library.

    Raises:
        LlmError: UNSUPPORTED_REASONING_EFFORT, UNSUPPORTED_OPTION.
    """
    effort = options.reasoning_effort
    if effort is not None and effort not in model.efforts:
        offered = f"offers only {', '.join(model.efforts)}" if model.efforts else "is not known to offer any"
        raise LlmError(
            f"{options.model!r} {offered}: no reasoning effort {effort!r}", UNSUPPORTED_REASONING_EFFORT
        )
    unknown = sorted((options.provider_options or {}).keys() - PROVIDER_OPTIONS)
    if unknown:
        raise LlmError(f"there is no provider option {unknown[0]!r}", UNSUPPORTED_OPTION)


def model_settings(options: GenerateOptions, unsupported: Iterable[str]) -> dict[str, Any]:
    """The library's ModelSettings.

    Args:
        unsupported: the settings that the library's model class says it ignores.

    Raises:
        LlmError: UNSUPPORTED_OPTION, for one of them.
    """
    settings: dict[str, Any] = _thawed(options.provider_options or {})
    choice = options.tool_choice
    wanted = {
        "max_tokens": options.max_tokens,
        "temperature": options.temperature,
        "top_p": options.top_p,
        "stop_sequences": [_clean(stop) for stop in options.stop] if options.stop else None,
        "thinking": None if options.reasoning_effort is None else THINKING[options.reasoning_effort],
        "tool_choice": [_clean(choice.name)] if isinstance(choice, NamedTool) else choice,
    }
    settings.update({name: value for name, value in wanted.items() if value is not None})
    ignored = sorted(settings.keys() & set(unsupported))
    if ignored:
        raise LlmError(f"this model takes no {ignored[0]!r}", UNSUPPORTED_OPTION)
    return settings


def request_parameters(library: Library, options: GenerateOptions) -> Any:
    """The library's ModelRequestParameters: tools and response format."""
    tools = [
        # strict=False: otherwise the library rewrites the schema wherever it can.
        library.tools.ToolDefinition(
            name=_clean(tool.name),
            parameters_json_schema=_thawed(tool.parameters),
            description=_clean(tool.description),
            strict=False,
        )
        for tool in options.tools
    ]
    form = options.response_format
    if form is None:
        return library.models.ModelRequestParameters(function_tools=tools)
    return library.models.ModelRequestParameters(
        function_tools=tools,
        output_mode="native",
        output_object=library.output.OutputObjectDefinition(
            _thawed(form.schema), name=_clean(form.name), strict=form.strict
        ),
    )


def model_messages(
    library: Library,
    options: GenerateOptions,
    images: Mapping[str, str],
    on_degraded: OnDegraded,
    *,
    particular: bool,
) -> list[Any]:
    """The library's messages: the system prompt and the repaired history.

    Args:
        images: image bytes in base64, by attachment id.
        on_degraded: told of each message whose replay state makes no sense; it is sent without.
        particular: whether the provider is particular about the ids of calls.

    Raises:
        LlmError: UNSUPPORTED_CONTENT, for an image outside a user message, or of no known type.
    """
    history = repair(options.messages, _PARTICULAR_RULES if particular else _RULES)
    writer = _Writer(library, images, on_degraded)
    if options.system:
        writer.add_request([library.messages.SystemPromptPart(_clean(options.system))])
    for message in history:
        writer.add(message)
    return writer.out


class _Writer:
    """Writes a history, message by message."""

    def __init__(self, library: Library, images: Mapping[str, str], on_degraded: OnDegraded) -> None:
        self._messages = library.messages
        self._images = images
        self._on_degraded = on_degraded
        self._names: dict[CallId, str] = {}
        self.out: list[Any] = []

    def add(self, message: Message) -> None:
        if message.role == "user":
            self.add_request(self._user(message.content))
            return
        if any(isinstance(block, ImageBlock) for block in message.content):
            raise LlmError(f"no image can stand in a message of the {message.role}", UNSUPPORTED_CONTENT)
        if message.role == "system":
            text = text_of(message.content)
            self.add_request([self._messages.SystemPromptPart(_clean(text))] if text else [])
        else:
            self._add_response(message)

    def add_request(self, parts: list[Any]) -> None:
        before = self.out[-1].parts if self.out else []
        if self._are_results(parts) and self._are_results(before):
            # In one request, or the library shows the images of one result in front of the next.
            self.out[-1] = self._messages.ModelRequest(parts=[*before, *parts])
        elif parts:
            self.out.append(self._messages.ModelRequest(parts=parts))

    def _are_results(self, parts: Sequence[Any]) -> bool:
        return bool(parts) and all(isinstance(part, self._messages.ToolReturnPart) for part in parts)

    def _user(self, content: Iterable[ContentBlock]) -> list[Any]:
        parts: list[Any] = []
        prompt: list[Any] = []
        for block in content:
            if isinstance(block, ToolResultBlock):
                parts.append(self._result(block))
            else:
                prompt.extend(self._said(block))
        if len(prompt) == 1 and isinstance(prompt[0], str):
            parts.append(self._messages.UserPromptPart(prompt[0]))
        elif prompt:
            parts.append(self._messages.UserPromptPart(prompt))
        return parts

    def _said(self, block: ContentBlock) -> list[Any]:
        if isinstance(block, TextBlock) and block.text:
            return [_clean(block.text)]
        if isinstance(block, ImageBlock):
            return [self._image(block.attachment)]
        return []

    def _image(self, attachment: Attachment) -> Any:
        if attachment.url is not None:
            return self._messages.ImageUrl(attachment.url, media_type=attachment.media_type)
        if attachment.media_type is None:
            raise LlmError("an image without a media type cannot be sent", UNSUPPORTED_CONTENT)
        return self._messages.BinaryContent(
            base64.b64decode(self._images[attachment.id]), media_type=attachment.media_type
        )

    def _result(self, block: ToolResultBlock) -> Any:
        content = [item for inner in block.content for item in self._said(inner)]
        whole: Any = content
        if all(isinstance(item, str) for item in content):
            whole = "".join(content) or "(no output)"
        return self._messages.ToolReturnPart(
            self._names.get(block.tool_call_id, UNKNOWN_TOOL),
            whole,
            block.tool_call_id,
            outcome="failed" if block.is_error else "success",
        )

    def _add_response(self, message: Message) -> None:
        for block in message.content:
            if isinstance(block, ToolCallBlock):
                self._names[block.id] = _clean(block.name)
        restored = restore_response(self._messages, message, self._on_degraded)
        if restored is None:
            parts = [part for block in message.content for part in self._answered(block)]
            restored = self._messages.ModelResponse(parts=parts) if parts else None
        if restored is not None:
            self.out.append(restored)

    def _answered(self, block: ContentBlock) -> list[Any]:
        if isinstance(block, TextBlock) and block.text:
            return [self._messages.TextPart(_clean(block.text))]
        if isinstance(block, ToolCallBlock):
            return [
                self._messages.ToolCallPart(_clean(block.name), arguments_object(block.arguments), block.id)
            ]
        return []


def arguments_object(arguments: str) -> dict[str, Any]:
    """The object of a historical call's arguments; ``{}`` for what is none."""
    try:
        value = decode_lenient(arguments)
    except LlmError:
        return {}
    return _thawed(value) if isinstance(value, dict) else {}


def _thawed(value: Any) -> Any:
    """A frozen JSON value as the library may change it, fit for UTF-8."""
    return decode_lenient(encode_body(value))


def _clean(text: str) -> str:
    """Text fit for UTF-8: a lone surrogate becomes U+FFFD."""
    return text if text.isascii() else str(_thawed(text))
