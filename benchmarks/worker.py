"""A driver's process: ``python -m benchmarks.worker DRIVER``.

Reads one JSON line per run (``measure``, ``endpoint``, ``params``), answers each with one. It lives
through all rounds, so that its CPU time holds no start; between its turns it only waits.
"""

from __future__ import annotations

import functools
import importlib
import json
import sys
import traceback
from typing import Any

import anyio

from .drivers import DRIVERS, Driver
from .endpoint import Endpoint
from .limits import raise_file_limit
from .measures.leaks import counting_leaks


async def _run(driver: Driver, order: dict[str, Any]) -> dict[str, Any]:
    measure = importlib.import_module(f"benchmarks.measures.{order['measure']}").measure
    leaks: dict[str, float] = {}
    async with counting_leaks(leaks):
        result = await measure(driver, Endpoint(**order["endpoint"]), **order["params"])
    return {**result, **leaks}


def main() -> None:
    """Serve the harness until it closes standard input."""
    driver = DRIVERS[sys.argv[1]]
    raise_file_limit()
    answers, sys.stdout = sys.stdout, sys.stderr  # what an SDK prints must not be taken for an answer
    for line in sys.stdin:
        try:
            result = anyio.run(functools.partial(_run, driver, json.loads(line)), backend=driver.loop)
            answer: dict[str, Any] = {"result": result}
        except Exception as error:
            answer = {"error": f"{type(error).__name__}: {error}", "traceback": traceback.format_exc()}
        print(json.dumps(answer), file=answers, flush=True)


if __name__ == "__main__":
    main()
