"""Providers from configuration: values or a TOML file, checked as a whole, replaced while calls run."""

from .kinds import Kind, find_kind, known_kinds, register_kind
from .reading import load_config, read_config
from .routes import ConfiguredProviders, apply_config
from .values import LlmConfig, ProviderConfig

__all__ = [
    "LlmConfig",
    "ProviderConfig",
    "load_config",
    "read_config",
    "apply_config",
    "ConfiguredProviders",
    "Kind",
    "known_kinds",
    "find_kind",
    "register_kind",
]
