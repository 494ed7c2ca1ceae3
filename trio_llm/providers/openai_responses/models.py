"""Models of the Responses API and what they accept (OpenAI docs: "Models", "Reasoning models").

The wire is one, but only models that reason take an effort, give encrypted reasoning and read it again.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Final

import attrs

from ...model.catalogue import ResolvedModelInfo
from ..listed_model import ListedModel, model_info

LEVELS: Final = ("none", "minimal", "low", "medium", "high", "xhigh", "max")
"""Every effort that the wire knows."""

_DATED: Final = re.compile(r"-\d{4}-\d{2}-\d{2}$")
_PLAIN: Final = re.compile(r"(?:.*/)?(?:gpt-3|gpt-4|chatgpt|gpt-5[\d.]*-chat)")


@attrs.frozen
class ResponsesModel(ListedModel):
    """A model of this wire. The defaults are those of one that is not listed.

    Attributes:
        efforts: which efforts it takes, in order; empty for a model that does not reason.
        sampling: whether ``temperature`` and ``top_p`` are accepted; with the effort ``none`` they are.
    """

    efforts: tuple[str, ...] = attrs.field(default=LEVELS, kw_only=True)
    sampling: bool = attrs.field(default=True, kw_only=True)

    @property
    def reasons(self) -> bool:
        """Whether it gives reasoning and takes it back."""
        return bool(self.efforts)


def find_model(models: Iterable[ResponsesModel], id: str) -> ResponsesModel:
    """The listed model, known by its id with or without its date; else one of which nothing is known.

    Of those, only OpenAI's own that are known not to reason are told apart by their names.
    """
    listed = {model.id: model for model in models}
    found = listed.get(id) or listed.get(_DATED.sub("", id))
    if found is None:
        return ResponsesModel(id, efforts=()) if _PLAIN.match(id) else ResponsesModel(id)
    return found if found.id == id else attrs.evolve(found, id=id)


def resolved(provider: str, model: ResponsesModel, *, default_max_tokens: int | None) -> ResolvedModelInfo:
    """What is known of a model, as the runtime asks for it."""
    return model_info(provider, model, model.efforts, model.default_effort, default_max_tokens)


def _gpt(id: str, name: str, window: int | None, efforts: tuple[str, ...]) -> ResponsesModel:
    return ResponsesModel(
        id,
        name,
        context_window=window,
        efforts=efforts,
        sampling=not efforts,
        input_modalities=("text", "image"),
    )


_FROM_5_6: Final = ("none", "low", "medium", "high", "xhigh", "max")
_FROM_5_2: Final = ("none", "low", "medium", "high", "xhigh")
_GPT_5: Final = ("minimal", "low", "medium", "high")
_O: Final = ("low", "medium", "high")

OPENAI_MODELS: Final = (
    _gpt("gpt-5.6-sol", "GPT-5.6 Sol", None, _FROM_5_6),
    _gpt("gpt-5.6-terra", "GPT-5.6 Terra", None, _FROM_5_6),
    _gpt("gpt-5.6-luna", "GPT-5.6 Luna", None, _FROM_5_6),
    _gpt("gpt-5.5", "GPT-5.5", 1_050_000, _FROM_5_2),
    _gpt("gpt-5.4", "GPT-5.4", 1_050_000, _FROM_5_2),
    _gpt("gpt-5.4-mini", "GPT-5.4 mini", 400_000, _FROM_5_2),
    _gpt("gpt-5.4-nano", "GPT-5.4 nano", 400_000, _FROM_5_2),
    _gpt("gpt-5.2", "GPT-5.2", 400_000, _FROM_5_2),
    _gpt("gpt-5.1", "GPT-5.1", 400_000, ("none", "low", "medium", "high")),
    _gpt("gpt-5", "GPT-5", 400_000, _GPT_5),
    _gpt("gpt-5-mini", "GPT-5 mini", 400_000, _GPT_5),
    _gpt("gpt-5-nano", "GPT-5 nano", 400_000, _GPT_5),
    _gpt("o3", "o3", 200_000, _O),
    _gpt("o4-mini", "o4-mini", 200_000, _O),
    _gpt("gpt-4.1", "GPT-4.1", 1_047_576, ()),
    _gpt("gpt-4.1-mini", "GPT-4.1 mini", 1_047_576, ()),
    _gpt("gpt-4.1-nano", "GPT-4.1 nano", 1_047_576, ()),
    _gpt("gpt-4o", "GPT-4o", 128_000, ()),
    _gpt("gpt-4o-mini", "GPT-4o mini", 128_000, ()),
)
"""What the provider lists, as far as it writes text. A window that it does not tell plainly is left out."""
