"""The library behind a typed seam: what of it is used, which of its providers, and which never.

It is imported by name on first use, so that this package can be imported, checked and documented without
it. Everything that comes out of it is ``Any`` to the type checker, and every use of it is in this package.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Mapping
from importlib import import_module
from types import ModuleType
from typing import Any, Final, Literal

import attrs

from ...model.codes import INVALID_CONFIG, UNKNOWN_MODEL
from ...model.failures import LlmError

_PLACEHOLDER: Final = "not-the-key"  # an SDK insists on one; the real key is put in past it


@attrs.frozen
class LibraryProvider:
    """A provider of the library that this adapter serves.

    Attributes:
        key_variable: the environment variable that holds the key where none is configured.
        base_url: given to the library where none is configured, so that it takes none from the environment;
            None where it looks for none.
        key_header: the header of the credential, in lower case, and what stands before the key.
        http: which HTTP library the provider's SDK insists on.
        call_ids: whether the provider is particular about the ids of calls (Anthropic: "Tool use").
        retries: whether the SDK's retries are switched off in its client or by a setting of the request.
        sdk: the module and the class of the SDK's client, where the library's provider takes no address.
    """

    key_variable: str | None
    base_url: str | None = None
    key_header: tuple[str, str] = ("authorization", "Bearer ")
    http: str = "httpx2"
    call_ids: bool = False
    retries: Literal["client", "setting"] = "client"
    sdk: tuple[str, str] | None = None


PROVIDERS: Final[Mapping[str, LibraryProvider]] = {
    "alibaba": LibraryProvider("ALIBABA_API_KEY", "https://dashscope-intl.aliyuncs.com/compatible-mode/v1"),
    "anthropic": LibraryProvider(
        "ANTHROPIC_API_KEY", "https://api.anthropic.com", ("x-api-key", ""), call_ids=True
    ),
    "cerebras": LibraryProvider("CEREBRAS_API_KEY"),
    "cohere": LibraryProvider(
        "CO_API_KEY",
        "https://api.cohere.com",
        http="httpx",
        retries="setting",
        sdk=("cohere", "AsyncClientV2"),
    ),
    "crusoe": LibraryProvider("CRUSOE_API_KEY"),
    "deepseek": LibraryProvider("DEEPSEEK_API_KEY"),
    "fireworks": LibraryProvider("FIREWORKS_API_KEY"),
    "google": LibraryProvider(
        "GEMINI_API_KEY",
        "https://generativelanguage.googleapis.com",
        ("x-goog-api-key", ""),
        retries="setting",
    ),
    "groq": LibraryProvider("GROQ_API_KEY", "https://api.groq.com", http="httpx"),
    "moonshotai": LibraryProvider("MOONSHOTAI_API_KEY", "https://api.moonshot.ai/v1"),
    "nebius": LibraryProvider("NEBIUS_API_KEY"),
    "ollama": LibraryProvider(None, "http://127.0.0.1:11434/v1"),
    "openai": LibraryProvider("OPENAI_API_KEY", "https://api.openai.com/v1"),
    "openai-chat": LibraryProvider("OPENAI_API_KEY", "https://api.openai.com/v1"),
    "openai-responses": LibraryProvider("OPENAI_API_KEY", "https://api.openai.com/v1"),
    "openrouter": LibraryProvider("OPENROUTER_API_KEY"),
    "ovhcloud": LibraryProvider("OVHCLOUD_API_KEY"),
    "sambanova": LibraryProvider("SAMBANOVA_API_KEY", "https://api.sambanova.ai/v1"),
    "together": LibraryProvider("TOGETHER_API_KEY"),
    "vercel": LibraryProvider("VERCEL_AI_GATEWAY_API_KEY"),
    "vllm": LibraryProvider(None, "http://127.0.0.1:8000/v1"),
    "zai": LibraryProvider("ZAI_API_KEY", "https://api.z.ai/api/paas/v4"),
}
"""The providers that are served: their client is one of httpx or httpx2, takes ours, and runs under Trio."""

REFUSED: Final[Mapping[str, str]] = {
    "bedrock": "its client blocks in threads",
    "bedrock-mantle": "its credentials come from files and the environment",
    "google-cloud": "its credentials come from files and the environment",
    "huggingface": "its SDK makes its own client",
    "mistral": "its SDK needs an asyncio event loop",
    "xai": "its client is gRPC over an asyncio event loop",
}
"""Why a provider of the library is not served."""


@attrs.frozen
class Library:
    """The modules of the library that are used."""

    direct: Any
    exceptions: Any
    messages: Any
    models: Any
    output: Any
    providers: Any
    settings: Any
    tools: Any


@functools.cache
def load_library() -> Library:
    """The library, imported on the first call (some hundred milliseconds).

    Raises:
        LlmError: INVALID_CONFIG, if it is not installed.
    """
    try:
        return Library(
            **{field.name: import_module(f"pydantic_ai.{field.name}") for field in attrs.fields(Library)}
        )
    except ImportError as error:
        raise LlmError(
            "pydantic-ai is not installed: pip install 'trio-llm[pydantic-ai]'", INVALID_CONFIG
        ) from error


def find_provider(name: str) -> LibraryProvider:
    """What is known of one of the library's providers.

    Raises:
        LlmError: UNKNOWN_MODEL, if it is none that is served; the message says why not.
    """
    found = PROVIDERS.get(name)
    if found is None:
        reason = REFUSED.get(name, f"it is none of {', '.join(PROVIDERS)}")
        raise LlmError(f"no model of the library's provider {name!r} is served: {reason}", UNKNOWN_MODEL)
    return found


def make_model(name: str, model: str, base_url: str | None, http_client: Any) -> Any:
    """A model of the library that speaks through ``http_client`` alone.

    It is made anew for every call: nothing of one call is in reach of another. The SDK below gets a
    placeholder in place of a key, does not retry, and asks no thread about the platform.

    Raises:
        LlmError: INVALID_CONFIG, if the provider's SDK is not installed or wants something more;
            UNKNOWN_MODEL, if the library refuses the model's name.
    """
    library, known = load_library(), find_provider(name)
    address = base_url if base_url is not None else known.base_url
    try:
        provider_class = library.providers.infer_provider_class(name)
        provider = provider_class(**_client_arguments(provider_class, known, address, http_client))
    except (ImportError, library.exceptions.UserError) as error:
        raise LlmError(f"the library's provider {name!r} cannot be used: {error}", INVALID_CONFIG) from error
    if known.retries == "client":
        sdk = provider.client
        if address is not None:
            sdk.base_url = address
        sdk.max_retries = 0
        # For headers that are not sent: asked of a worker thread by every new client that does not know it.
        sdk._platform = "Unknown"
    try:
        return library.models.infer_model(f"{name}:{model}", provider_factory=lambda _: provider)
    except library.exceptions.UserError as error:
        raise LlmError(str(error), UNKNOWN_MODEL) from error


def _client_arguments(
    provider_class: Any, known: LibraryProvider, address: str | None, http_client: Any
) -> dict[str, Any]:
    """What the library's provider is made with."""
    if known.sdk is not None:
        module, client = known.sdk
        sdk = getattr(import_module(module), client)(
            api_key=_PLACEHOLDER, base_url=address, httpx_client=http_client
        )
        return {f"{module}_client": sdk}
    arguments = {"api_key": _PLACEHOLDER, "http_client": http_client}
    if address is not None and "base_url" in inspect.signature(provider_class.__init__).parameters:
        arguments["base_url"] = address
    return arguments


def http_library(name: str) -> ModuleType:
    """httpx or httpx2, whichever the provider's SDK takes clients of."""
    return import_module(find_provider(name).http)
