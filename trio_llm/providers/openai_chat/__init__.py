"""Chat completions: OpenAI's own and, by profile, every server's that claims to be compatible.

``ChatAdapter(ChatConfig(profile=profiles.GROQ))`` is all it takes; :mod:`.profiles` holds the ready ones.
"""

from .adapter import ChatAdapter, ChatConfig
from .profile import ChatModel, ChatProfile

__all__ = ["ChatAdapter", "ChatConfig", "ChatModel", "ChatProfile"]
