"""How long a fresh interpreter takes to import something. Run by the harness itself, not in a worker."""

from __future__ import annotations

import json
import subprocess

from ..drivers import Driver
from ..environments import Environment

_PROGRAMS = {
    "python": """
import json, time
began, cpu = time.perf_counter(), time.process_time()
{statement}
print(json.dumps([time.process_time() - cpu, time.perf_counter() - began]))
""",
    "javascript": """
const began = performance.now(), cpu = process.cpuUsage();
{statement}
const { user, system } = process.cpuUsage(cpu);
console.log(JSON.stringify([(user + system) * 1e-6, (performance.now() - began) * 1e-3]));
""",
}


def measure(environment: Environment, driver: Driver, *, patience: float) -> dict[str, float]:
    """CPU and wall time of what an application of a driver imports, in a new process.

    Args:
        patience: seconds after which it is given up.

    Raises:
        subprocess.SubprocessError: it failed, or was given up.
    """
    program = _PROGRAMS[driver.language].replace("{statement}", driver.imports)
    output = subprocess.check_output(
        [*environment.evaluate, program],
        cwd=environment.folder,
        env=environment.variables,
        text=True,
        timeout=patience,
    )
    cpu, wall = json.loads(output.splitlines()[-1])
    return {"import_ms": cpu * 1e3, "wall_ms": wall * 1e3}
