"""Runs the plan: one worker per driver, turns taken in order (A, B, C, A, B, C, ...), one at a time."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from typing import Any

from .drivers import Driver
from .endpoint import PROJECT, Endpoint, running_provider
from .measures import startup
from .plan import Job
from .statistics import summary
from .venvs import interpreter

Turns = list[dict[str, Any]]
Results = dict[str, dict[str, dict[str, Any]]]
"""By job, then by driver: ``figures`` (see :func:`summary`), ``turns`` (each turn's own) or ``error``."""


class MeasureFailed(Exception):
    """A measure failed in its worker; holds the worker's traceback."""


class Worker:
    """A driver's process; see :mod:`benchmarks.worker`."""

    def __init__(self, driver: Driver, python: str) -> None:
        self._driver = driver
        self._process = subprocess.Popen(
            [python, "-m", "benchmarks.worker", driver.name],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            cwd=PROJECT,
            env={**os.environ, "LITELLM_LOCAL_MODEL_COST_MAP": "True", "PYTHONPATH": str(PROJECT)},
            text=True,
        )

    def run(self, measure: str, endpoint: Endpoint, params: dict[str, Any]) -> dict[str, Any]:
        """Run a measure and wait for its result.

        Raises:
            MeasureFailed: it raised, or the worker died.
        """
        order = {"measure": measure, "endpoint": endpoint.as_dict(), "params": params}
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(json.dumps(order) + "\n")
        self._process.stdin.flush()
        line = self._process.stdout.readline()
        if not line:
            raise MeasureFailed(f"the worker of {self._driver.name} died")
        answer = json.loads(line)
        if "error" in answer:
            raise MeasureFailed(f"{answer['error']}\n{answer['traceback']}")
        return answer["result"]

    def close(self) -> None:
        """End the process."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.close()
        self._process.stdout.close()
        try:
            self._process.wait(10)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()


@contextmanager
def _worker(driver: Driver, python: str) -> Iterator[Worker]:
    worker = Worker(driver, python)
    try:
        yield worker
    finally:
        worker.close()


class Harness:
    """The provider, and every driver's worker."""

    def __init__(self, endpoint: Endpoint, drivers: Sequence[Driver], stack: ExitStack) -> None:
        self._endpoint = endpoint
        self._drivers = drivers
        self._python = {driver.name: interpreter(driver) for driver in drivers}
        self._workers = {
            driver.name: stack.enter_context(_worker(driver, self._python[driver.name])) for driver in drivers
        }

    def turn(self, job: Job, driver: Driver, *, full: bool) -> dict[str, Any]:
        """One driver's turn of a job."""
        python = self._python[driver.name]
        if job.measure == "startup":
            return startup.measure(python, driver.imports)
        params = job.params(driver, full=full)
        if job.fresh:
            with _worker(driver, python) as worker:
                return worker.run(job.measure, self._endpoint, params)
        return self._workers[driver.name].run(job.measure, self._endpoint, params)

    def run(self, job: Job, *, full: bool) -> dict[str, dict[str, Any]]:
        """A job's rounds. A driver that fails is out of the job and does not end it."""
        drivers = [driver for driver in self._drivers if job.takes(driver, full=full)]
        turns: dict[str, Turns] = {driver.name: [] for driver in drivers}
        errors: dict[str, str] = {}
        for _ in range(job.rounds[full]):
            for driver in drivers:
                if driver.name in errors:
                    continue
                try:
                    turns[driver.name].append(self.turn(job, driver, full=full))
                except (MeasureFailed, subprocess.CalledProcessError, OSError) as error:
                    errors[driver.name] = str(error)
        return {
            name: {"error": errors[name]} if name in errors else {"figures": summary(own), "turns": own}
            for name, own in turns.items()
        }


def run_plan(
    jobs: Sequence[Job], drivers: Sequence[Driver], *, full: bool, report: Callable[[str], object]
) -> Results:
    """Run some jobs with some drivers.

    Args:
        report: told of each job when it is done.
    """
    with ExitStack() as stack:
        harness = Harness(stack.enter_context(running_provider()), drivers, stack)
        results: Results = {}
        for number, job in enumerate(jobs, 1):
            began = time.monotonic()
            results[job.key] = harness.run(job, full=full)
            report(f"[{number}/{len(jobs)}] {job.key}: {time.monotonic() - began:.1f} s")
        return results


def environment() -> dict[str, Any]:
    """What the numbers depend on, for the record."""
    return {"python": sys.version, "platform": sys.platform, "cpus": os.cpu_count()}
