"""How long a fresh interpreter takes to import something. Run by the harness itself, not in a worker."""

from __future__ import annotations

import subprocess

from ..endpoint import PROJECT

_PROGRAM = """
import time
began, cpu = time.perf_counter(), time.process_time()
{statement}
print(time.process_time() - cpu, time.perf_counter() - began)
"""


def measure(python: str, statement: str) -> dict[str, float]:
    """CPU and wall time of one import.

    Args:
        python: the interpreter.
        statement: an import statement.
    """
    program = _PROGRAM.format(statement=statement)
    output = subprocess.check_output([python, "-c", program], cwd=PROJECT, text=True)
    cpu, wall = map(float, output.split()[-2:])
    return {"import_ms": cpu * 1e3, "wall_ms": wall * 1e3}
