"""One adapter for the many model classes of pydantic-ai, over its model layer alone.

It needs the extra ``pydantic-ai``. The library writes the request and reads the response; this package
gives it the connection, and keeps the stream contract.
"""

from .adapter import PydanticAiAdapter
from .config import PydanticAiConfig, PydanticAiModel

__all__ = ["PydanticAiAdapter", "PydanticAiConfig", "PydanticAiModel"]
