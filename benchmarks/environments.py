"""What runs the drivers: each peer in an environment of its own, made on first use and kept between runs."""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from .drivers import Driver
from .endpoint import PROJECT

_HERE = Path(__file__).parent
PEERS = _HERE / "peers"


@dataclass(frozen=True)
class Environment:
    """How to start what a driver is written in.

    Attributes:
        worker: the command of the driver's worker.
        evaluate: the command that takes a program's text as its last argument.
        folder: where both are started.
        variables: the environment variables of both.
    """

    worker: Sequence[str]
    evaluate: Sequence[str]
    folder: Path
    variables: Mapping[str, str] = field(
        default_factory=lambda: {
            **os.environ,
            "LITELLM_LOCAL_MODEL_COST_MAP": "True",  # else it asks the Internet for prices as it is imported
            "PYTHONPATH": str(PROJECT),
        }
    )


def cache_folder() -> Path:
    """Where the environments are kept: under ``$XDG_CACHE_HOME``, else ``~/.cache``."""
    base = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(base) / "trio-llm-benchmarks"


def environment_of(driver: Driver) -> Environment:
    """A driver's environment; for a peer, makes it if there is none yet.

    Raises:
        subprocess.CalledProcessError: it could not be installed.
        OSError: what installs it is not there.
    """
    if driver.language == "javascript":
        folder = _installed(driver, PEERS / f"{driver.name}.json", _install_packages)
        # The program's text is evaluated: Node looks for the packages of a file next to that file.
        evaluate = (str(folder / "node_modules" / ".bin" / "node"), "--input-type=module", "--eval")
        worker = (_HERE / "drivers" / f"{driver.module}.mjs").read_text()
        return Environment((*evaluate, worker), evaluate, folder)
    python = sys.executable
    if driver.kind == "peer":
        folder = _installed(driver, PEERS / f"{driver.name}.txt", _install_requirements)
        python = str(folder / "bin" / "python")
    return Environment((python, "-m", "benchmarks.worker", driver.name), (python, "-c"), PROJECT)


def _installed(driver: Driver, pins: Path, install: Callable[[Path, Path], None]) -> Path:
    """The folder of an environment made from these pins."""
    wanted = hashlib.sha256(f"{sys.version}\n{pins.read_text()}".encode()).hexdigest()[:12]
    folder = cache_folder() / f"{driver.name}-{wanted}"
    if not (folder / "complete").exists():
        print(f"installing {driver.name} into {folder}", file=sys.stderr)
        shutil.rmtree(folder, ignore_errors=True)
        install(folder, pins)
        (folder / "complete").touch()
    return folder


def _install_requirements(folder: Path, pins: Path) -> None:
    subprocess.run([sys.executable, "-m", "venv", folder], check=True)
    pip = folder / "bin" / "python", "-m", "pip"
    subprocess.run([*pip, "install", "--quiet", "--requirement", pins], check=True)


def _install_packages(folder: Path, pins: Path) -> None:
    folder.mkdir(parents=True)
    shutil.copy(pins, folder / "package.json")
    quiet = "--no-audit", "--no-fund", "--no-package-lock", "--loglevel=error"
    subprocess.run(["npm", "install", *quiet], cwd=folder, check=True, stdout=sys.stderr)
