"""Kinds of providers: what a configuration's ``kind`` stands for. Their packages load on first use."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Mapping
from importlib.metadata import entry_points
from types import MappingProxyType
from typing import Any, Final

import attrs

from ..model import codes
from ..model.failures import LlmError
from ..streaming.contract import LlmAdapter
from .suggest import suggestion

ENTRY_POINTS: Final = "trio_llm.kinds"
"""The entry point group in which an installed package offers kinds; each is a :class:`Kind`."""


def _frozen(value: Mapping[str, str]) -> Mapping[str, str]:
    return MappingProxyType(dict(value))


@attrs.frozen
class Kind:
    """Where the two classes of a kind are; each as ``package.module:name``.

    Attributes:
        adapter: called with a function that gives the present configuration; gives an
            :class:`~trio_llm.streaming.contract.LlmAdapter`, which asks that function once for each call.
        config: an attrs class with a default for most fields; its fields are the kind's keys in a file.
        named: fields whose value a file gives by name, and the mapping that holds the values.
        display_name: the provider's name for people, where the kind is that of one provider.
    """

    adapter: str
    config: str
    named: Mapping[str, str] = attrs.field(factory=dict, converter=_frozen, kw_only=True)
    display_name: str | None = attrs.field(default=None, kw_only=True)

    def config_class(self) -> type[Any]:
        """The class of its configurations. Raises as :func:`load` does."""
        found: type[Any] = load(self.config)
        return found

    def make_adapter(self, config: Callable[[], Any]) -> LlmAdapter:
        """An adapter. Raises as :func:`load` does, and what making it raises."""
        adapter: LlmAdapter = load(self.adapter)(config)
        return adapter


_kinds: Final = {
    "deepseek": Kind(
        "trio_llm.providers.deepseek:DeepSeekAdapter",
        "trio_llm.providers.deepseek:DeepSeekConfig",
        display_name="DeepSeek",
    ),
    "anthropic": Kind(
        "trio_llm.providers.anthropic:AnthropicAdapter",
        "trio_llm.providers.anthropic:AnthropicConfig",
        display_name="Anthropic",
    ),
    "gemini": Kind(
        "trio_llm.providers.gemini:GeminiAdapter",
        "trio_llm.providers.gemini:GeminiConfig",
        display_name="Gemini",
    ),
    "ollama": Kind(
        "trio_llm.providers.ollama:OllamaAdapter",
        "trio_llm.providers.ollama:OllamaConfig",
        display_name="Ollama",
    ),
    "openai": Kind(
        "trio_llm.providers.openai_responses:ResponsesAdapter",
        "trio_llm.providers.openai_responses:ResponsesConfig",
        display_name="OpenAI",
    ),
    "openai-chat": Kind(
        "trio_llm.providers.openai_chat:ChatAdapter",
        "trio_llm.providers.openai_chat:ChatConfig",
        named={"profile": "trio_llm.providers.openai_chat.profiles:PROFILES"},
    ),
    "pydantic-ai": Kind(
        "trio_llm.providers.pydantic_ai:PydanticAiAdapter",
        "trio_llm.providers.pydantic_ai:PydanticAiConfig",
    ),
}


def known_kinds() -> Mapping[str, Kind]:
    """The kinds of this library and those made known with :func:`register_kind`; detached."""
    return dict(_kinds)


def register_kind(name: str, kind: Kind) -> None:
    """Make a kind known to this process.

    Raises:
        LlmError: INVALID_CONFIG, the name is empty or means another kind.
    """
    if not name or _kinds.get(name, kind) != kind:
        raise LlmError(f"the name {name!r} is taken by another kind of provider", codes.INVALID_CONFIG)
    _kinds[name] = kind


def find_kind(name: str) -> Kind:
    """The kind of that name: one of :func:`kinds`, else what an installed package offers.

    Raises:
        LlmError: INVALID_CONFIG, there is none, or the package that offers it is broken.
    """
    if name in _kinds:
        return _kinds[name]
    offered = {point.name: point for point in entry_points(group=ENTRY_POINTS)}
    if name not in offered:
        known = (*_kinds, *sorted(offered))
        raise LlmError(f"is no kind of provider{suggestion(name, known)}", codes.INVALID_CONFIG)
    kind = load(offered[name].value)
    if not isinstance(kind, Kind):
        raise LlmError(f"{offered[name].value} is no Kind", codes.INVALID_CONFIG)
    return kind


def load(path: str) -> Any:
    """What ``package.module:name`` stands for.

    Raises:
        LlmError: INVALID_CONFIG, there is no such thing, or its module cannot be imported.
    """
    module, _, name = path.partition(":")
    try:
        return getattr(importlib.import_module(module), name)
    except (ImportError, AttributeError, ValueError) as error:
        raise LlmError(f"{path} does not load: {error}", codes.INVALID_CONFIG) from error
