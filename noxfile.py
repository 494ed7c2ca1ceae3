"""Sessions for development: ``nox -l`` lists them. Only ``nox`` itself must be installed."""

from __future__ import annotations

import shutil
import subprocess

import nox

nox.options.default_venv_backend = "venv"
nox.options.sessions = ["tests", "lint", "types", "docs"]


def runs(version: str) -> bool:
    """Whether there is such a Python. A version manager's stand-in may be there and not run."""
    python = shutil.which(f"python{version}")
    return python is not None and subprocess.run([python, "-c", ""], capture_output=True).returncode == 0


AIMOCK = "@copilotkit/aimock@1.43.0"
PYTHONS = [version for version in ("3.11", "3.12", "3.13") if runs(version)]


@nox.session(python=PYTHONS)
def tests(session: nox.Session) -> None:
    """The test suite, with arguments for pytest."""
    session.install("-e", ".[cli,test]")
    session.run("pytest", *session.posargs)


@nox.session(python=PYTHONS)
def dev_mode(session: nox.Session) -> None:
    """The test suite in Python's development mode: leaked resources are errors."""
    session.install("-e", ".[cli,test]")
    session.run("python", "-X", "dev", "-m", "pytest", *session.posargs)


@nox.session
def coverage(session: nox.Session) -> None:
    """The test suite with branch coverage, subprocesses included."""
    session.install("-e", ".[cli,test]")
    session.run("pytest", "--cov", "--cov-report=term-missing", *session.posargs)


@nox.session
def lint(session: nox.Session) -> None:
    """Formatting and lint, Trio's rules (ASYNC) among them."""
    session.install("-e", ".[lint]")
    session.run("ruff", "format", "--check", ".")
    session.run("ruff", "check", ".")


@nox.session
def types(session: nox.Session) -> None:
    """mypy --strict over everything, and pyright over the library."""
    session.install("-e", ".[cli,test,lint]")
    session.run("mypy")
    session.run("pyright")


@nox.session
def docs(session: nox.Session) -> None:
    """The documentation, to docs/_build/html; a warning is an error."""
    session.install("-e", ".[cli,docs]")
    session.run("sphinx-build", "-W", "--keep-going", "-b", "html", "docs", "docs/_build/html")


@nox.session
def library(session: nox.Session) -> None:
    """The adapter over pydantic-ai, with every SDK that it serves."""
    session.install("-e", ".[test,pydantic-ai]")
    session.run("pytest", "tests/providers/pydantic_ai", "tests/testing", *session.posargs)
    session.run("pytest", "tests/sweeps", "-k", "pydantic_ai", *session.posargs)


@nox.session
def published(session: nox.Session) -> None:
    """Request bodies against the types that the providers publish."""
    session.install("-e", ".[test,published-types]")
    session.run("pytest", "tests/providers", *session.posargs)


@nox.session
def interop(session: nox.Session) -> None:
    """Every adapter against mock servers of others: llmock and fakellm, and aimock where there is npm."""
    session.install("-e", ".[test,interop,pydantic-ai]")
    env = {}
    if shutil.which("npm") is not None:
        folder = session.create_tmp()
        session.run("npm", "install", "--no-fund", "--no-audit", f"--prefix={folder}", AIMOCK, external=True)
        env["AIMOCK_CLI_PATH"] = f"{folder}/node_modules/@copilotkit/aimock/dist/cli.js"
    # llmock brings a plugin for pytest that would point every client at itself.
    session.run("pytest", "-p", "no:llmock", "tests/interop", *session.posargs, env=env)


@nox.session
def e2e(session: nox.Session) -> None:
    """The chat adapter against a real model in a real server, which takes some minutes to build."""
    session.install("-e", ".[test,e2e]", env={"CMAKE_ARGS": "-DLLAVA_BUILD=OFF"})  # no half for pictures
    session.run("pytest", "tests/e2e", *session.posargs)


@nox.session
def bench(session: nox.Session) -> None:
    """The benchmarks, on loopback. Not part of the tests: no test asserts a speed."""
    session.install("-e", ".[test]")
    session.run("python", "-m", "benchmarks", *session.posargs)


@nox.session
def soak(session: nox.Session) -> None:
    """Very many streams with faults and cancels (``-- --short``: fewer), after which nothing has grown."""
    session.install("-e", ".[test]")
    session.run("python", "-m", "benchmarks.soak", *session.posargs)


@nox.session
def sweep(session: nox.Session) -> None:
    """The suite in its long form: every cancellation, cut and schedule, and many more hypothesis examples."""
    session.install("-e", ".[cli,test]")
    session.run("pytest", "--hypothesis-profile=long", *session.posargs, env={"TRIO_LLM_SWEEP": "full"})
