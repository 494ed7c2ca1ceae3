"""Runs the plan: one worker per driver, turns taken in order (A, B, C, A, B, C, ...), one at a time."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, ExitStack, closing
from typing import Any

from .drivers import Driver
from .endpoint import Endpoint, running_provider
from .environments import Environment, environment_of
from .measures import startup
from .plan import Job
from .statistics import summary

Turns = list[dict[str, Any]]
Results = dict[str, dict[str, dict[str, Any]]]
"""By job, then by driver: ``figures`` (see :func:`summary`), ``turns`` (each turn's own) or ``error``."""

_PATIENCE = 300
"""Seconds that a turn may take; the longest takes a tenth of it."""


class MeasureFailed(Exception):
    """A measure failed in its worker; holds the worker's traceback."""


class Worker:
    """A driver's process; see :mod:`benchmarks.worker`."""

    def __init__(self, driver: Driver, environment: Environment) -> None:
        self._driver = driver
        self._process = subprocess.Popen(
            environment.worker,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            cwd=environment.folder,
            env=environment.variables,
            text=True,
        )

    def run(self, measure: str, endpoint: Endpoint, params: dict[str, Any]) -> dict[str, Any]:
        """Run a measure and wait for its result.

        Raises:
            MeasureFailed: it raised, took too long, or the worker died.
        """
        order = {"measure": measure, "endpoint": endpoint.as_dict(), "params": params}
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        hanged = threading.Timer(_PATIENCE, self._process.kill)
        hanged.start()
        try:
            self._process.stdin.write(json.dumps(order) + "\n")
            self._process.stdin.flush()
            line = self._process.stdout.readline()
        except OSError:
            line = ""
        finally:
            hanged.cancel()
        if not line:
            raise MeasureFailed(f"the worker of {self._driver.name} died, or did not answer in {_PATIENCE} s")
        answer = json.loads(line)
        if "error" in answer:
            raise MeasureFailed(f"{answer['error']}\n{answer['traceback']}")
        return answer["result"]

    def close(self) -> None:
        """End the process."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        try:
            self._process.stdin.close()
        except OSError:
            pass  # it died with an order unread
        self._process.stdout.close()
        try:
            self._process.wait(10)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()


class Harness:
    """The provider, and a worker for every driver, started when it first has a turn."""

    def __init__(self, endpoint: Endpoint, stack: ExitStack) -> None:
        self._endpoint = endpoint
        self._stack = stack
        self._environments: dict[str, Environment | Exception] = {}
        self._workers: dict[str, Worker] = {}

    def _environment(self, driver: Driver) -> Environment:
        """A driver's environment. What failed once is not tried again."""
        if driver.name not in self._environments:
            try:
                self._environments[driver.name] = environment_of(driver)
            except (OSError, subprocess.CalledProcessError) as error:
                self._environments[driver.name] = error
        found = self._environments[driver.name]
        if isinstance(found, Exception):
            raise found
        return found

    def _new_worker(self, driver: Driver) -> AbstractContextManager[Worker]:
        return closing(Worker(driver, self._environment(driver)))

    def turn(self, job: Job, driver: Driver, *, full: bool) -> dict[str, Any]:
        """One driver's turn of a job."""
        if job.measure == "startup":
            return startup.measure(self._environment(driver), driver, patience=_PATIENCE)
        params = job.params(driver, full=full)
        if job.fresh:
            with self._new_worker(driver) as worker:
                return worker.run(job.measure, self._endpoint, params)
        if driver.name not in self._workers:
            self._workers[driver.name] = self._stack.enter_context(self._new_worker(driver))
        return self._workers[driver.name].run(job.measure, self._endpoint, params)

    def run(self, job: Job, drivers: Sequence[Driver], *, full: bool) -> dict[str, dict[str, Any]]:
        """A job's rounds. A driver that fails is out of the job, and has a new worker for the next one."""
        turns: dict[str, Turns] = {driver.name: [] for driver in drivers if job.takes(driver, full=full)}
        errors: dict[str, str] = {}
        for number in range(job.rounds[full]):
            for driver in drivers:
                if driver.name not in turns or driver.name in errors:
                    continue
                if not job.has_turn(driver, number, full=full):
                    continue
                try:
                    turns[driver.name].append(self.turn(job, driver, full=full))
                except (MeasureFailed, subprocess.SubprocessError, OSError, ValueError) as error:
                    errors[driver.name] = str(error) or repr(error)
                    if worker := self._workers.pop(driver.name, None):
                        worker.close()
        return {
            name: {"error": errors[name]} if name in errors else {"figures": summary(own), "turns": own}
            for name, own in turns.items()
        }


def run_plan(
    jobs: Sequence[Job],
    drivers: Sequence[Driver],
    *,
    full: bool,
    done: Callable[[Job, dict[str, dict[str, Any]]], object],
) -> None:
    """Run some jobs with some drivers.

    Args:
        done: told of each job when it is done, with its part of the results.
    """
    with ExitStack() as stack:
        harness = Harness(stack.enter_context(running_provider()), stack)
        for job in jobs:
            done(job, harness.run(job, drivers, full=full))


def circumstances(*, full: bool) -> dict[str, Any]:
    """What the numbers depend on, for the record."""
    return {"python": sys.version, "platform": sys.platform, "cpus": os.cpu_count(), "full": full}
