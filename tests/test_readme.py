"""README and documentation say what is true: the commands are those that CI runs, every program runs."""

import inspect
import re
import sys
import textwrap
from pathlib import Path

import pytest
import trio

import trio_llm
from trio_llm import codes
from trio_llm.model.policy import DEFAULT_RETRYABLE_CODES
from trio_llm.testing.demo_provider import demo_provider

ROOT = Path(__file__).resolve().parent.parent
README = (ROOT / "README.rst").read_text()
PACKAGE = ROOT / "trio_llm"
PAGES = [ROOT / "README.rst", *sorted((ROOT / "docs").rglob("*.rst"))]


def commands(text: str) -> list[str]:
    """The literal lines that set up a virtual environment and run something."""
    return re.findall(r"^    (python3 -m venv .*)$", text, re.MULTILINE)


def blocks(text: str, language: str) -> list[str]:
    """The code blocks of a language, without their indent."""
    found = re.findall(rf"^\.\. code-block:: {language}\n\n((?:    .*\n|\n)+)", text, re.MULTILINE)
    return [textwrap.dedent(code) for code in found]


PROGRAMS = [
    pytest.param(code, blocks(text, "toml"), id=f"{path.stem}-{number}")
    for path in PAGES
    for text in (path.read_text(),)
    for number, code in enumerate(blocks(text, "python"), 1)
]

ELSEWHERE = """
import functools
import trio_llm.providers.deepseek as deepseek
import trio_llm.providers.openai_chat as openai_chat
own = dict(base_url={url!r}, api_key="any")
deepseek.DeepSeekConfig = functools.partial(deepseek.DeepSeekConfig, **own)
openai_chat.ChatConfig = functools.partial(openai_chat.ChatConfig, **own)
class MyAdapter: ...
"""
"""What makes a program talk to the demo provider, and gives it what its page leaves to the reader."""

AROUND = """
import trio
from trio_llm import GenerateOptions, LlmRuntime, create_user_message
from trio_llm.providers.deepseek import DeepSeekAdapter, DeepSeekConfig
async def main():
    options = GenerateOptions(provider="deepseek", model="m", messages=[create_user_message("Hi")])
    async with LlmRuntime() as runtime:
        runtime.register_adapter("deepseek", DeepSeekAdapter(DeepSeekConfig()))
{code}
"""
"""What stands around a fragment."""


def whole(code: str) -> str:
    """A program that runs what a page shows."""
    try:
        compile(code, "page", "exec")
    except SyntaxError:  # `await` outside of a function
        code = AROUND.format(code=textwrap.indent(code, " " * 8))
    if "async def main" in code and "trio.run(" not in code:
        code += "\nimport trio\ntrio.run(main)\n"
    return code


async def run(code: str, directory: Path) -> str:
    """Run a program of a page against the demo provider; gives what it printed."""
    async with demo_provider(pause=0) as server:
        # A configuration is read, and its classes with it, but nobody is called.
        program = "" if "apply_config(" in code else ELSEWHERE.format(url=server.base_url)
        with trio.fail_after(60):
            done = await trio.run_process(
                [sys.executable, "-X", "dev", "-W", "error", "-c", program + whole(code)],
                capture_stdout=True,
                cwd=directory,
            )
    return done.stdout.decode()


def test_ci_runs_the_tests_by_the_readmes_command() -> None:
    demo, tests = commands(README)
    assert demo.endswith('.venv/bin/trio-llm chat "Hello"')
    assert tests.endswith(".venv/bin/pytest")
    assert (ROOT / ".ci" / "run").read_text().splitlines()[-1] == tests


def test_ci_is_executable() -> None:
    assert (ROOT / ".ci" / "run").stat().st_mode & 0o111 == 0o111


@pytest.mark.parametrize(("code", "configuration"), PROGRAMS)
async def test_every_program_runs(code: str, configuration: list[str], tmp_path: Path) -> None:
    for toml in configuration:
        (tmp_path / "llm.toml").write_text(toml)
    await run(code, tmp_path)


def test_the_reference_has_every_public_module() -> None:
    reference = "\n".join(page.read_text() for page in (ROOT / "docs" / "reference").glob("*.rst"))
    documented = set(re.findall(r"^\.\. automodule:: (\S+)$", reference, re.MULTILINE))
    named = {getattr(getattr(trio_llm, name), "__module__", "") for name in trio_llm.__all__}
    public = {module for module in named if module.startswith("trio_llm.")}
    public |= {f"trio_llm.providers.{path.parent.name}" for path in PACKAGE.glob("providers/*/__init__.py")}
    for floor in ("middleware", "testing"):
        public |= {f"trio_llm.{floor}.{path.stem}" for path in PACKAGE.glob(f"{floor}/[a-z]*.py")}
    assert public - documented == set()


def test_every_public_class_and_function_says_what_it_is() -> None:
    values = [getattr(trio_llm, name) for name in trio_llm.__all__]
    assert [value for value in values if inspect.isclass(value) and not value.__doc__] == []
    assert [value for value in values if inspect.isfunction(value) and not value.__doc__] == []


def test_the_guide_explains_every_code() -> None:
    page = (ROOT / "docs" / "guide" / "failures.rst").read_text()
    explained = dict(re.findall(r"^``([A-Z_]+)``( \*)?", page, re.MULTILINE))
    assert set(explained) == {code for code in vars(codes).values() if str(code).isupper()}
    assert {code for code, mark in explained.items() if mark} == set(DEFAULT_RETRYABLE_CODES)


def test_reading_of_programs() -> None:
    text = ".. code-block:: python\n\n    a\n\n        b\n\ntext\n"
    assert blocks(text, "python") == ["a\n\n    b\n\n"]
    assert blocks(text, "toml") == []
    assert len(PROGRAMS) > 10


async def test_a_fragment_and_a_main_are_made_whole(tmp_path: Path) -> None:
    assert await run("print((await runtime.generate(options)).finish)", tmp_path) == "Stop(raw='stop')\n"
    assert await run("async def main() -> None:\n    print('ran')", tmp_path) == "ran\n"


async def test_the_first_program_shows_the_answer_and_its_end(tmp_path: Path) -> None:
    shown = await run(blocks(README, "python")[0], tmp_path)
    assert shown.startswith('You said: "Why is the sky blue?"')
    assert "\nStop(" in shown
    assert "TokenUsage(" in shown


async def test_the_program_with_tools_calls_both(tmp_path: Path) -> None:
    shown = await run(blocks((ROOT / "docs" / "guide" / "recipes.rst").read_text(), "python")[0], tmp_path)
    assert "weather of Bern: fine\\ntime_of_day of Bern: fine" in shown
