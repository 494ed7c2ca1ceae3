"""Claude models and what they accept (Claude API docs: "Models overview", "Thinking", "Effort").

The wire is one, but models differ in how thinking is asked for and in which settings they refuse.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Final, Literal

import attrs

from ...model.catalogue import ResolvedModelInfo
from ..listed_model import ListedModel, model_info

OFF: Final = "off"
"""The effort that switches thinking off, where a model allows it."""

LEVELS: Final = ("low", "medium", "high", "xhigh", "max")
"""Every effort that the wire knows."""

BUDGETS: Final = {"low": 2_048, "medium": 8_192, "high": 24_576}
"""How many tokens a model without adaptive thinking may think, by effort."""

DEFAULT_MAX_TOKENS: Final = 32_000
"""The limit of an answer for models that are not listed; the wire wants one with every request."""

_DATED: Final = re.compile(r"[-@]\d{8}$")


@attrs.frozen
class AnthropicModel(ListedModel):
    """A model of this wire. The defaults are those of one that is not listed.

    Attributes:
        max_output_tokens: the most an answer may have, and what it may have where a request sets no limit.
        thinking: how an effort is asked for: ``adaptive`` lets the model decide how much it thinks,
            ``budget`` gives a number of tokens.
        efforts: which of ``low``, ``medium``, ``high``, ``xhigh`` and ``max`` it takes.
        off: how thinking is switched off: by leaving it out, as it is off until asked for, or by saying
            ``disabled`` or ``between_tools``. None where it cannot be switched off.
        takes_effort: whether ``output_config.effort`` may be sent.
        sampling: whether ``temperature`` and ``top_p`` are accepted.
        forced_tools: whether ``tool_choice`` may force a call.
    """

    thinking: Literal["adaptive", "budget"] = attrs.field(default="adaptive", kw_only=True)
    efforts: tuple[str, ...] = attrs.field(default=LEVELS, kw_only=True)
    off: Literal["omit", "disabled", "between_tools"] | None = attrs.field(default="disabled", kw_only=True)
    takes_effort: bool = attrs.field(default=True, kw_only=True)
    sampling: bool = attrs.field(default=True, kw_only=True)
    forced_tools: bool = attrs.field(default=True, kw_only=True)

    @property
    def effort_ids(self) -> tuple[str, ...]:
        """The efforts on offer, ``off`` included, in the catalogue's order."""
        return self.efforts if self.off is None else (OFF, *self.efforts)


def find_model(models: Iterable[AnthropicModel], id: str) -> AnthropicModel:
    """The listed model, known by its id with or without its date; else one of which nothing is known."""
    listed = {model.id: model for model in models}
    found = listed.get(id) or listed.get(_DATED.sub("", id))
    if found is None:
        return AnthropicModel(id)
    return found if found.id == id else attrs.evolve(found, id=id)


def resolved(
    provider: str, model: AnthropicModel, *, thinking: bool, default_max_tokens: int | None
) -> ResolvedModelInfo:
    """What is known of a model, as the runtime asks for it.

    Args:
        thinking: False for a deployment without thinking, which offers only the effort that is off.
    """
    ids = model.effort_ids if thinking else tuple(id for id in model.effort_ids if id == OFF)
    default = model.default_effort if thinking else OFF if ids else None
    return model_info(provider, model, ids, default, limit_of(model, default_max_tokens))


def limit_of(model: AnthropicModel, default_max_tokens: int | None) -> int:
    """How many tokens an answer may have where a request sets no limit."""
    return default_max_tokens or model.max_output_tokens or DEFAULT_MAX_TOKENS


def _claude(
    id: str,
    name: str,
    *,
    off: Literal["omit", "disabled", "between_tools"] | None,
    efforts: tuple[str, ...] = LEVELS,
    sampling: bool = False,
    forced_tools: bool = True,
) -> AnthropicModel:
    return AnthropicModel(
        id,
        name,
        context_window=1_000_000,
        max_output_tokens=128_000,
        efforts=efforts,
        off=off,
        sampling=sampling,
        forced_tools=forced_tools,
        input_modalities=("text", "image"),
    )


def _claude_4_5(id: str, name: str, *, takes_effort: bool = False) -> AnthropicModel:
    return AnthropicModel(
        id,
        name,
        context_window=200_000,
        max_output_tokens=64_000,
        thinking="budget",
        efforts=tuple(BUDGETS),
        off="omit",
        takes_effort=takes_effort,
        input_modalities=("text", "image"),
    )


_NO_XHIGH: Final = ("low", "medium", "high", "max")

CLAUDE_MODELS: Final = (
    _claude("claude-fable-5-2", "Claude Fable 5.2", off=None, forced_tools=False),
    _claude("claude-opus-5-5", "Claude Opus 5.5", off=None, forced_tools=False),
    _claude("claude-sonnet-5-5", "Claude Sonnet 5.5", off="between_tools", forced_tools=False),
    _claude("claude-haiku-5-5", "Claude Haiku 5.5", off="disabled"),
    _claude("claude-fable-5-1", "Claude Fable 5.1", off=None, forced_tools=False),
    _claude("claude-opus-5", "Claude Opus 5", off="disabled"),
    _claude("claude-sonnet-5", "Claude Sonnet 5", off="disabled"),
    _claude("claude-fable-5", "Claude Fable 5", off=None),
    _claude("claude-opus-4-8", "Claude Opus 4.8", off="omit"),
    _claude("claude-opus-4-7", "Claude Opus 4.7", off="omit"),
    _claude("claude-opus-4-6", "Claude Opus 4.6", off="omit", efforts=_NO_XHIGH, sampling=True),
    _claude("claude-sonnet-4-6", "Claude Sonnet 4.6", off="omit", efforts=_NO_XHIGH, sampling=True),
    _claude_4_5("claude-opus-4-5", "Claude Opus 4.5", takes_effort=True),
    _claude_4_5("claude-sonnet-4-5", "Claude Sonnet 4.5"),
    _claude_4_5("claude-haiku-4-5", "Claude Haiku 4.5"),
)
"""What the provider lists."""
