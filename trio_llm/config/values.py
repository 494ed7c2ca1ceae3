"""A configuration as values: which providers there are, and how each is reached."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import attrs

from ..model import codes
from ..model.failures import LlmError


@attrs.frozen
class ProviderConfig:
    """One provider.

    Attributes:
        name: the route's name, which requests use.
        kind: as :func:`~.kinds.find_kind` knows it.
        settings: how it is reached, in the kind's own class, such as
            :class:`~trio_llm.providers.deepseek.DeepSeekConfig`.

    Raises:
        ValueError: an empty name or kind.
    """

    name: str = attrs.field(validator=attrs.validators.min_len(1))
    kind: str = attrs.field(validator=attrs.validators.min_len(1))
    settings: Any


def _providers(value: Iterable[ProviderConfig]) -> tuple[ProviderConfig, ...]:
    return tuple(value)


@attrs.frozen
class LlmConfig:
    """The providers of an application.

    Raises:
        LlmError: INVALID_CONFIG, two providers of one name.
    """

    providers: tuple[ProviderConfig, ...] = attrs.field(default=(), converter=_providers)

    def __attrs_post_init__(self) -> None:
        seen = set()
        for provider in self.providers:
            if provider.name in seen:
                raise LlmError(f"provider {provider.name!r} is configured twice", codes.INVALID_CONFIG)
            seen.add(provider.name)
