"""The peers' interpreters: each peer in a virtual environment of its own, kept between runs."""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
import sys
from pathlib import Path

from .drivers import Driver

REQUIREMENTS = Path(__file__).parent / "peers"


def cache_folder() -> Path:
    """Where the environments are kept: under ``$XDG_CACHE_HOME``, else ``~/.cache``."""
    base = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(base) / "trio-llm-benchmarks"


def interpreter(driver: Driver) -> str:
    """The interpreter that runs a driver; for a peer, makes its environment if there is none yet.

    Raises:
        subprocess.CalledProcessError: it could not be installed.
    """
    if driver.kind != "peer":
        return sys.executable
    requirements = REQUIREMENTS / f"{driver.name}.txt"
    wanted = hashlib.sha256(f"{sys.version}\n{requirements.read_text()}".encode()).hexdigest()[:12]
    folder = cache_folder() / f"{driver.name}-{wanted}"
    python = folder / "bin" / "python"
    if not (folder / "complete").exists():
        print(f"installing {driver.name} into {folder}", file=sys.stderr)
        shutil.rmtree(folder, ignore_errors=True)
        subprocess.run([sys.executable, "-m", "venv", folder], check=True)
        subprocess.run([python, "-m", "pip", "install", "--quiet", "--requirement", requirements], check=True)
        (folder / "complete").touch()
    return str(python)
