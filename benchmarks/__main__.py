"""``python -m benchmarks``: run the benchmarks, print tables, write JSON and a picture."""

from __future__ import annotations

import argparse
import fnmatch
import sys
import time
from pathlib import Path
from typing import Any

from . import harness, picture, report
from .drivers import DRIVERS, Driver
from .endpoint import PROJECT
from .harness import Results
from .plan import JOBS, Job


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__)
    parser.add_argument("--full", action="store_true", help="more of everything; default: a quick run")
    parser.add_argument(
        "--drivers", metavar="NAMES", help="only these (comma-separated); default: floors and library"
    )
    parser.add_argument(
        "--peers", metavar="NAMES", default="", help="these peers too, or 'all'; installed on first use"
    )
    parser.add_argument("--only", metavar="PATTERNS", default="*", help="jobs, e.g. 'burst,cancel-*'")
    parser.add_argument(
        "--out", type=Path, default=PROJECT / "build" / "benchmarks", help="folder for results"
    )
    parser.add_argument(
        "--show", action="store_true", help="run nothing, show the results that are there, of a cut run too"
    )
    parser.add_argument("--list", action="store_true", help="list jobs and drivers")
    return parser.parse_args()


def _drivers(names: str | None, peers: str) -> list[Driver]:
    if names is not None:
        chosen = set(names.split(","))
    else:
        chosen = {driver.name for driver in DRIVERS.values() if driver.kind != "peer"}
    if peers == "all":
        chosen |= {driver.name for driver in DRIVERS.values() if driver.kind == "peer"}
    else:
        chosen |= set(filter(None, peers.split(",")))
    if unknown := chosen - DRIVERS.keys():
        sys.exit(f"no such driver: {', '.join(sorted(unknown))} (there are: {', '.join(DRIVERS)})")
    return [driver for driver in DRIVERS.values() if driver.name in chosen]


def _jobs(patterns: str) -> list[Job]:
    wanted = patterns.split(",")
    return [job for job in JOBS.values() if any(fnmatch.fnmatch(job.key, pattern) for pattern in wanted)]


def _run(arguments: argparse.Namespace, drivers: list[Driver], jobs: list[Job]) -> Results:
    """Run, and write the results after each job: what is interrupted has measured something."""
    results: Results = {}
    began = time.monotonic()
    jobs = [job for job in jobs if any(job.takes(driver, full=arguments.full) for driver in drivers)]
    circumstances = harness.circumstances(full=arguments.full)

    def done(job: Job, part: dict[str, dict[str, Any]]) -> None:
        results[job.key] = part
        report.write_json(arguments.out / "results.json", results, circumstances)
        elapsed = time.monotonic() - began
        print(f"[{len(results)}/{len(jobs)}] {elapsed:5.0f} s: {job.key}", file=sys.stderr, flush=True)

    try:
        harness.run_plan(jobs, drivers, full=arguments.full, done=done)
    except KeyboardInterrupt:
        print("interrupted; this is what there is", file=sys.stderr)
    return results


def main() -> None:
    """Run what the command line asks for, or show what was run."""
    arguments = _arguments()
    drivers, jobs = _drivers(arguments.drivers, arguments.peers), _jobs(arguments.only)
    if arguments.list:
        print("drivers:", *DRIVERS, "\njobs:", *JOBS)
        return
    arguments.out.mkdir(parents=True, exist_ok=True)
    if arguments.show:
        results = report.read_json(arguments.out / "results.json")
    else:
        results = _run(arguments, drivers, jobs)
    print(report.text(results, list(DRIVERS)))
    picture.write_svg(
        arguments.out / "results.svg", results, {driver.name: driver.kind for driver in DRIVERS.values()}
    )
    print(f"\nresults.json and results.svg are in {arguments.out}")


if __name__ == "__main__":
    main()
