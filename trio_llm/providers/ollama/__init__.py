"""Ollama's own API, with newline-delimited JSON."""

from .adapter import OllamaAdapter, OllamaConfig
from .models import OllamaModel

__all__ = ["OllamaAdapter", "OllamaConfig", "OllamaModel"]
