"""How a server departs from OpenAI's chat completions, as data.

Requests need it; responses are read alike from every server (see :mod:`.translate`), but for what is kept
of them to go back.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Final, Literal

import attrs

from ...model.catalogue import ResolvedModelInfo
from ...model.json_value import FrozenObject, freeze_object
from ...protocol.history import HistoryRules
from ..listed_model import ListedModel, model_info

ANY_SHORT_ID: Final = HistoryRules(call_ids=re.compile("[!-~]{1,64}"))
"""OpenAI refuses longer ids of calls ("string too long", maximum length 64)."""

TOOL_CHOICES: Final = frozenset({"auto", "named", "none", "required"})
"""What ``tool_choice`` can ask for."""

VOCABULARY_FIELDS: Final = frozenset(
    {
        "max_completion_tokens",
        "max_tokens",
        "messages",
        "model",
        "response_format",
        "stop",
        "stream",
        "stream_options",
        "temperature",
        "tool_choice",
        "tools",
        "top_p",
    }
)
"""Body fields that only the request's own vocabulary sets."""

RETURNABLE: Final = frozenset({"extra_content", "reasoning_details", "thinking"})
"""What a response has beside its text that some server wants back; see :mod:`.replay`."""


@attrs.frozen
class ChatModel(ListedModel):
    """A model of this wire.

    Attributes:
        efforts: ids out of the profile's, in order; None means all of them, empty means none.
    """

    efforts: tuple[str, ...] | None = attrs.field(default=None, kw_only=True)


def _names(value: Iterable[str]) -> frozenset[str]:
    return frozenset(value)


@attrs.frozen(kw_only=True)
class ChatProfile:
    """A server's dialect. The defaults are plain OpenAI's.

    Attributes:
        id: the provider's usual name.
        name: the same for people.
        base_url: where ``path`` is joined to; None where every deployment has its own.
        key_variable: the environment variable the provider's documentation names for the key.
        key_required: False where servers run without a key; one that is configured is sent.
        key_header, key_prefix: how the key is sent.
        system_role: the role of the system prompt and of system messages.
        max_tokens_field: how the limit of the answer is called.
        include_usage: whether usage must be asked for (``stream_options``); False where it comes
            anyway and the field is refused.
        reasoning_field: under which name an assistant turn's thinking goes back; None sends none back.
        unthought_calls: what stands in that field in a turn with calls and without thinking, where the server
            refuses such a turn without the field; None leaves it out.
        returned: what a server must have back of its own responses, word for word: names out of
            :data:`RETURNABLE`.
        foreign_call: fields of the first call in a turn that came from elsewhere.
        efforts: effort id to the body fields that ask for it, in the catalogue's order.
        default_effort: of models that do not say otherwise; None keeps the provider's own default.
        off_effort: the effort that switches thinking off: the only one of a deployment without thinking.
        title_without_thinking: whether a session title is always asked for with ``off_effort``.
        tool_choices: those that the server honours; ``named`` names one tool.
        required_choice: how ``tool_choice="required"`` is spelled.
        max_stops: how many stop strings a request may have; None leaves it to the server.
        json_schema: whether ``response_format`` may carry a schema.
        unsupported: names of request fields the server refuses or ignores.
        options: the keys of ``provider_options``; each goes into the body as it is.
        session_header, session_field: the header or body field that carries ``session_id``, if any.
        compaction_headers: sent with the requests of a compaction.
        history: which ids and orders of messages the server takes.
        silent_overflow: whether a 400 without a body says that the context window is exceeded.
        models: what the catalogue lists.

    Raises:
        ValueError: ``default_effort`` or ``off_effort`` is none of ``efforts``; ``options`` holds what the
            vocabulary owns; ``returned`` holds what is not returnable;
            ``tool_choices`` holds what is no choice.
    """

    id: str
    name: str
    base_url: str | None = None
    path: str = "chat/completions"
    key_variable: str | None = None
    key_required: bool = True
    key_header: str = "authorization"
    key_prefix: str = "Bearer "
    system_role: Literal["system", "developer"] = "system"
    max_tokens_field: Literal["max_tokens", "max_completion_tokens"] = "max_tokens"
    include_usage: bool = True
    reasoning_field: str | None = None
    unthought_calls: str | None = None
    returned: frozenset[str] = attrs.field(
        default=frozenset(),
        converter=_names,
        validator=attrs.validators.deep_iterable(attrs.validators.in_(RETURNABLE)),
    )
    foreign_call: FrozenObject = attrs.field(default=FrozenObject(), converter=freeze_object)
    efforts: FrozenObject = attrs.field(default=FrozenObject(), converter=freeze_object)
    default_effort: str | None = None
    off_effort: str | None = None
    title_without_thinking: bool = False
    tool_choices: frozenset[str] = attrs.field(
        default=TOOL_CHOICES,
        converter=_names,
        validator=attrs.validators.deep_iterable(attrs.validators.in_(TOOL_CHOICES)),
    )
    required_choice: str = "required"
    max_stops: int | None = None
    json_schema: bool = True
    unsupported: frozenset[str] = attrs.field(default=frozenset(), converter=_names)
    options: frozenset[str] = attrs.field(default=frozenset(), converter=_names)
    session_header: str | None = None
    session_field: str | None = None
    compaction_headers: tuple[tuple[str, str], ...] = ()
    history: HistoryRules = ANY_SHORT_ID
    silent_overflow: bool = False
    models: tuple[ChatModel, ...] = ()

    def __attrs_post_init__(self) -> None:
        for effort in (self.default_effort, self.off_effort):
            if effort is not None and effort not in self.efforts:
                raise ValueError(f"{effort!r} is no effort of {self.name}")
        session = () if self.session_field is None else (self.session_field,)
        owned = VOCABULARY_FIELDS.union(session, *self.efforts.values()) & self.options
        if owned:
            raise ValueError(f"{min(owned)!r} is set by the request itself and is no option")


def resolved(
    profile: ChatProfile, provider: str, model: ChatModel, *, thinking: bool, default_max_tokens: int | None
) -> ResolvedModelInfo:
    """What is known of a model, as the runtime asks for it.

    Args:
        thinking: False for a deployment without thinking, which offers only the effort that is off.
    """
    ids = tuple(profile.efforts) if model.efforts is None else model.efforts
    default = model.default_effort or (profile.default_effort if profile.default_effort in ids else None)
    if not thinking:
        ids = tuple(id for id in ids if id == profile.off_effort)
        default = profile.off_effort if ids else None
    return model_info(provider, model, ids, default, default_max_tokens)
