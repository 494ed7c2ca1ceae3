"""How much the model shall think: efforts to the fields of a request."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from ...model.requests import GenerateOptions
from .. import request_checks
from .models import BUDGETS, OFF, AnthropicModel

_LEAST_BUDGET: Final = 1024  # "Extended thinking": budget_tokens is at least that, and below max_tokens
_LEAST_ANSWER: Final = 1024


def check_effort(options: GenerateOptions, model: AnthropicModel, *, thinking: bool) -> str | None:
    """The effort to ask for; None keeps the provider's default.

    Args:
        thinking: False for a deployment without thinking: there it is always off.

    Raises:
        LlmError: UNSUPPORTED_REASONING_EFFORT, for one that the model does not offer here.
    """
    offered = model.effort_ids if thinking else (OFF,) if model.off is not None else ()
    effort = options.reasoning_effort if thinking else options.reasoning_effort or OFF
    request_checks.check_effort(effort, offered, model.id)
    return effort


def thinking_field(
    effort: str | None, model: AnthropicModel, max_tokens: int, settings: Mapping[str, Any] | None
) -> dict[str, Any] | None:
    """The ``thinking`` field; None where it is left out.

    Args:
        effort: as :func:`check_effort` gives it.
        settings: further members of the field wherever thinking is on.

    Raises:
        LlmError: UNSUPPORTED_OPTION, if ``max_tokens`` leaves no room to think.
    """
    extras = dict(settings or {})
    if effort == OFF:
        return None if model.off == "omit" else {"type": model.off}
    if effort is None:
        # A model that thinks unless told otherwise is told how, and nothing else.
        return {"type": "adaptive", **extras} if extras and model.off != "omit" else None
    if model.thinking == "adaptive":
        return {"type": "adaptive", **extras}
    budget = min(BUDGETS[effort], max_tokens - _LEAST_ANSWER)
    if budget < _LEAST_BUDGET:
        raise request_checks.refused(
            f"max_tokens of {max_tokens} leave no room to think: {model.id} needs"
            f" {_LEAST_BUDGET + _LEAST_ANSWER} with a reasoning effort"
        )
    return {"type": "enabled", "budget_tokens": budget, **extras}
