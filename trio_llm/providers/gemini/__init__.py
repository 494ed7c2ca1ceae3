"""The Gemini API, and Vertex AI, which speaks it too."""

from .adapter import GeminiAdapter, GeminiConfig
from .models import GEMINI_MODELS, GeminiModel

__all__ = ["GEMINI_MODELS", "GeminiAdapter", "GeminiConfig", "GeminiModel"]
