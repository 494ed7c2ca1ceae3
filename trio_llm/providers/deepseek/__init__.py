"""DeepSeek: a profile of the chat wire."""

from .adapter import DEEPSEEK, DeepSeekAdapter, DeepSeekConfig

__all__ = ["DEEPSEEK", "DeepSeekAdapter", "DeepSeekConfig"]
