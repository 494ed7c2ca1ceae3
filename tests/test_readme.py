"""The README says what is true: its commands are those that CI runs, its programs run."""

import re
import subprocess
import sys
from pathlib import Path

import pytest
import trio

from trio_llm.testing.demo_provider import demo_provider

ROOT = Path(__file__).resolve().parent.parent
README = (ROOT / "README.rst").read_text()
GUIDES = sorted((ROOT / "docs").rglob("*.rst"))


def commands(text: str) -> list[str]:
    """The literal lines that set up a virtual environment and run something."""
    return re.findall(r"^    (python3 -m venv .*)$", text, re.MULTILINE)


def programs(text: str) -> list[str]:
    """The Python code blocks, without their indent."""
    found = re.findall(r"^\.\. code-block:: python\n\n((?:    .*\n|\n)+)", text, re.MULTILINE)
    return [re.sub(r"^    ", "", code, flags=re.MULTILINE) for code in found]


def test_ci_runs_the_tests_by_the_readmes_command() -> None:
    demo, tests = commands(README)
    assert demo.endswith('.venv/bin/trio-llm chat "Hello"')
    assert tests.endswith(".venv/bin/pytest")
    assert (ROOT / ".ci" / "run").read_text().splitlines()[-1] == tests


def test_ci_is_executable() -> None:
    assert (ROOT / ".ci" / "run").stat().st_mode & 0o111 == 0o111


@pytest.mark.parametrize("path", [ROOT / "README.rst", *GUIDES], ids=lambda path: path.name)
def test_every_program_compiles(path: Path) -> None:
    for code in programs(path.read_text()):
        compile(code, path.name, "exec", flags=0x2000)  # ast.PyCF_ALLOW_TOP_LEVEL_AWAIT


def test_reading_of_programs() -> None:
    assert programs(".. code-block:: python\n\n    a\n\n        b\n\ntext\n") == ["a\n\n    b\n\n"]


async def test_the_first_program_runs() -> None:
    async with demo_provider(pause=0) as server:
        elsewhere = f"""
import functools
import trio_llm.providers.deepseek as package
own = dict(base_url={server.base_url!r}, api_key="any")
package.DeepSeekConfig = functools.partial(package.DeepSeekConfig, **own)
"""
        with trio.fail_after(30):
            done = await trio.run_process(
                [sys.executable, "-X", "dev", "-W", "error", "-c", elsewhere + programs(README)[0]],
                capture_stdout=True,
            )
    assert done.stdout.startswith(b'You said: "Why is the sky blue?"')
    assert b"\nStop(" in done.stdout
    assert b"TokenUsage(" in done.stdout


def test_the_example_of_a_test_runs() -> None:
    subprocess.run(
        [sys.executable, "-X", "dev", "-W", "error", "-c", programs(README)[1]], check=True, timeout=30
    )
