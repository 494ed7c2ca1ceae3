"""The Responses API of OpenAI, and of servers that speak it too; over HTTP and over WebSockets."""

from .adapter import ResponsesAdapter, ResponsesConfig
from .models import OPENAI_MODELS, ResponsesModel

__all__ = ["OPENAI_MODELS", "ResponsesAdapter", "ResponsesConfig", "ResponsesModel"]
