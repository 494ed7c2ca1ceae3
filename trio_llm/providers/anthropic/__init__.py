"""The Messages API of Anthropic, and of servers that speak it too."""

from .adapter import AnthropicAdapter, AnthropicConfig
from .models import CLAUDE_MODELS, AnthropicModel

__all__ = ["AnthropicAdapter", "AnthropicConfig", "AnthropicModel", "CLAUDE_MODELS"]
