"""DeepSeek's dialect of the chat wire (api-docs.deepseek.com: "Create chat completion", "Thinking Mode")."""

from __future__ import annotations

from typing import Final

import attrs

from ..openai_chat.adapter import ChatAdapter, ChatConfig
from ..openai_chat.profile import ChatModel, ChatProfile

_CONTEXT_WINDOW: Final = 1_048_565  # as the API's own refusals name it

DEEPSEEK: Final = ChatProfile(
    id="deepseek",
    name="DeepSeek",
    base_url="https://api.deepseek.com",
    key_variable="DEEPSEEK_API_KEY",
    reasoning_field="reasoning_content",
    unthought_calls=" ",  # "The reasoning_content in the thinking mode must be passed back to the API."
    efforts={
        "low": {"thinking": {"type": "enabled"}, "reasoning_effort": "low"},
        "high": {"thinking": {"type": "enabled"}, "reasoning_effort": "high"},
        "max": {"thinking": {"type": "enabled"}, "reasoning_effort": "max"},
        "off": {"thinking": {"type": "disabled"}},
    },
    default_effort="high",
    off_effort="off",
    title_without_thinking=True,
    json_schema=False,
    options={"frequency_penalty", "presence_penalty", "user_id"},
    session_header="x-session-id",
    compaction_headers=(("x-compaction", "true"),),
    models=(
        ChatModel(
            "deepseek-v4-pro", "DeepSeek V4 Pro", context_window=_CONTEXT_WINDOW, input_modalities=("text",)
        ),
        ChatModel(
            "deepseek-v4-flash",
            "DeepSeek V4 Flash",
            context_window=_CONTEXT_WINDOW,
            input_modalities=("text",),
        ),
    ),
)
"""The profile. Its provider options are the sampling penalties and ``user_id``."""


@attrs.frozen(kw_only=True)
class DeepSeekConfig(ChatConfig):
    """A :class:`~trio_llm.providers.openai_chat.ChatConfig` that needs nothing but a key.

    The key is by default that of the environment variable DEEPSEEK_API_KEY.
    """

    profile: ChatProfile = DEEPSEEK


class DeepSeekAdapter(ChatAdapter):
    """Streams DeepSeek's chat completions; see :class:`~trio_llm.providers.openai_chat.ChatAdapter`."""
