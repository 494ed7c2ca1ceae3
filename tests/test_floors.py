"""The house has floors, and imports run only downward. Read from the source of every module."""

import ast
import subprocess
import sys
from collections.abc import Iterator, Mapping
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

import pytest

import trio_llm

FLOORS = (
    "model",
    "protocol",
    "transport",
    "streaming",
    "runtime",
    "providers",
    "middleware",
    "testing",
    "config",
    "cli",
)
NO_IO = {"model", "protocol"}
IO_LIBRARIES = {"trio", "httpx", "httpx2", "h11", "trio_websocket"}
CHAT_WIRE = "trio_llm.providers.openai_chat"

Sources = Mapping[str, str]
"""Module name to source; a package's own module is named as the package is."""


def installed_sources() -> tuple[Sources, frozenset[str]]:
    """Every module of the library, and which of the names are packages."""
    root = Path(trio_llm.__file__).parent
    sources, packages = {}, set()
    for path in sorted(root.rglob("*.py")):
        parts = ["trio_llm", *path.relative_to(root).with_suffix("").parts]
        if parts[-1] == "__init__":
            parts.pop()
            packages.add(".".join(parts))
        sources[".".join(parts)] = path.read_text()
    return sources, frozenset(packages)


SOURCES, PACKAGES = installed_sources()


def imports(
    name: str, sources: Sources, packages: frozenset[str], *, at_import_only: bool = False
) -> Iterator[str]:
    """The modules that a module imports, by full name.

    Args:
        at_import_only: leaves out imports inside functions and under ``TYPE_CHECKING``.
    """
    pending: list[ast.AST] = [ast.parse(sources[name])]
    while pending:
        node = pending.pop()
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            base = name.split(".")
            if node.level:
                base = base[: len(base) - node.level + (name in packages)]
                prefix = ".".join([*base, *(node.module or "").split(".")]).rstrip(".")
            else:
                prefix = node.module or ""
            for alias in node.names:
                submodule = f"{prefix}.{alias.name}"
                yield submodule if submodule in sources else prefix
        elif at_import_only and isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            pass
        elif at_import_only and isinstance(node, ast.If) and "TYPE_CHECKING" in ast.unparse(node.test):
            pending.extend(node.orelse)
        else:
            pending.extend(ast.iter_child_nodes(node))


def floor_of(name: str) -> str | None:
    """The floor a module of the library lives on; None for the package's own module."""
    parts = name.split(".")
    if name == "trio_llm.__main__":
        return "cli"
    return parts[1] if parts[0] == "trio_llm" and len(parts) > 1 else None


def wire_of(name: str) -> str | None:
    """The provider package that a module belongs to; None for what all of them share."""
    parts = name.split(".")
    shared = len(parts) == 3 and name not in PACKAGES
    return (
        ".".join(parts[:3]) if parts[:2] == ["trio_llm", "providers"] and parts[2:] and not shared else None
    )


def complaint(importer: str, imported: str) -> str | None:
    """What is wrong with one module importing another; None if nothing is."""
    above, below = floor_of(importer), floor_of(imported)
    if imported.split(".")[0] != "trio_llm":
        if above in NO_IO and imported.split(".")[0] in IO_LIBRARIES:
            return f"{importer} does no I/O but imports {imported}"
        return None
    if above is None:
        return None
    if below is None:
        return f"{importer} imports the package's front door"
    if FLOORS.index(below) > FLOORS.index(above):
        return f"{importer} imports {imported} from a floor above"
    if below == "testing" and above not in ("testing", "cli"):
        return f"{importer} imports {imported}, which is for tests"
    if below == "runtime" and above == "providers":
        return f"{importer} is a provider and imports {imported}"
    wires = wire_of(importer), wire_of(imported)
    if above == below == "providers" and wires[1] not in (None, wires[0], CHAT_WIRE):
        return f"{importer} imports another provider's {imported}"
    return None


def test_every_module_is_on_a_floor() -> None:
    assert {floor_of(name) for name in SOURCES} <= {None, *FLOORS}
    assert len(SOURCES) > len(FLOORS)


def test_imports_run_only_downward() -> None:
    complaints = [
        said
        for name in SOURCES
        for imported in imports(name, SOURCES, PACKAGES)
        if (said := complaint(name, imported)) is not None
    ]
    assert complaints == []


def test_no_circular_imports() -> None:
    graph = {
        name: {found for found in imports(name, SOURCES, PACKAGES, at_import_only=True) if found in SOURCES}
        for name in SOURCES
    }
    tuple(TopologicalSorter(graph).static_order())


def test_importing_the_package_is_light() -> None:
    program = "import sys, trio_llm; print(*sorted(sys.modules))"
    loaded = subprocess.run(
        [sys.executable, "-c", program], check=True, capture_output=True, text=True
    ).stdout.split()
    heavy = ("trio_llm.providers.", "trio_llm.cli", "trio_llm.testing", "trio_websocket", "click", "rich")
    assert [name for name in loaded if name.startswith(heavy)] == []
    assert "trio_llm" in loaded


@pytest.mark.parametrize(
    ("importer", "imported"),
    [
        ("trio_llm.model.a", "trio"),
        ("trio_llm.protocol.a", "h11"),
        ("trio_llm.protocol.a", "httpx._client"),
        ("trio_llm.model.a", "trio_llm.protocol.b"),
        ("trio_llm.streaming.a", "trio_llm"),
        ("trio_llm.runtime.a", "trio_llm.providers.deepseek"),
        ("trio_llm.providers.a", "trio_llm.runtime.b"),
        ("trio_llm.config.a", "trio_llm.testing.b"),
        ("trio_llm.middleware.a", "trio_llm.testing.b"),
        ("trio_llm.testing.a", "trio_llm.cli.b"),
        ("trio_llm.providers.openai_chat.a", "trio_llm.providers.deepseek.b"),
    ],
)
def test_wrong_edges_are_found(importer: str, imported: str) -> None:
    assert complaint(importer, imported) is not None


@pytest.mark.parametrize(
    ("importer", "imported"),
    [
        ("trio_llm.model.a", "attrs"),
        ("trio_llm.cli.a", "trio_llm.testing.b"),
        ("trio_llm.__main__", "trio_llm.cli.b"),
        ("trio_llm", "trio_llm.runtime"),
        ("trio_llm.providers.deepseek.a", "trio_llm.providers.openai_chat.b"),
        ("trio_llm.providers.deepseek.a", "trio_llm.providers.deepseek.b"),
        ("trio_llm.providers.deepseek.a", "trio_llm.transport.b"),
    ],
)
def test_right_edges_are_allowed(importer: str, imported: str) -> None:
    assert complaint(importer, imported) is None


def test_reading_of_imports() -> None:
    source = """
import json, trio.abc
from . import b
from .. import model
from ..model.chunks import Finish
from trio_llm.model import codes
if TYPE_CHECKING:
    import late
def f():
    import later
"""
    known = (
        "trio_llm",
        "trio_llm.x",
        "trio_llm.x.a",
        "trio_llm.x.b",
        "trio_llm.model",
        "trio_llm.model.chunks",
    )
    sources = dict.fromkeys([*known, "trio_llm.model.codes"], "") | {"trio_llm.x.a": source}
    packages = frozenset({"trio_llm", "trio_llm.x", "trio_llm.model"})
    at_once = {
        "json",
        "trio.abc",
        "trio_llm.x.b",
        "trio_llm.model",
        "trio_llm.model.chunks",
        "trio_llm.model.codes",
    }
    assert set(imports("trio_llm.x.a", sources, packages)) == at_once | {"late", "later"}
    assert set(imports("trio_llm.x.a", sources, packages, at_import_only=True)) == at_once
    package = {"trio_llm.x": "from .b import c\nfrom ..model import codes", "trio_llm.x.b": ""}
    assert set(imports("trio_llm.x", package, packages)) == {"trio_llm.x.b", "trio_llm.model"}


def test_a_cycle_is_found() -> None:
    with pytest.raises(CycleError):
        tuple(TopologicalSorter({"a": {"b"}, "b": {"a"}}).static_order())
