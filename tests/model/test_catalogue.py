"""Catalogue values are plain data, detached from what they were made of."""

from __future__ import annotations

from trio_llm.model.catalogue import (
    ConfigurableProvider,
    ModelDiscoveryRequest,
    ModelInfo,
    ModelReasoning,
    ReasoningEffort,
    ResolvedModelInfo,
)
from trio_llm.model.identifiers import ReasoningEffortId


def test_L10_lists_become_tuples_of_their_own() -> None:
    modalities, path = ["text", "image"], ["llm", "p"]
    efforts = [ReasoningEffort(ReasoningEffortId("high"), "High")]
    info = ModelInfo("p", "m", "M", input_modalities=modalities)
    provider = ConfigurableProvider("p", "P", "ns", path)
    reasoning = ModelReasoning(efforts)
    modalities.append("audio")
    path.append("x")
    efforts.clear()
    assert info.input_modalities == ("text", "image")
    assert provider.settings_path == ("llm", "p")
    assert len(reasoning.efforts) == 1


def test_L12_absent_modalities_are_unknown() -> None:
    assert ResolvedModelInfo("p", "m", "M").input_modalities is None
    assert ResolvedModelInfo("p", "m", "M", input_modalities=()).input_modalities == ()


def test_a_discovery_request_does_not_show_its_key() -> None:
    assert "sk-secret" not in repr(ModelDiscoveryRequest("p", api_key="sk-secret"))
