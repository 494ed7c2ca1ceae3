"""``python -m benchmarks``: run the benchmarks, print tables, write JSON and a picture."""

from __future__ import annotations

import argparse
import fnmatch
import sys
import time
from pathlib import Path

from . import harness, picture, report
from .drivers import DRIVERS, Driver
from .endpoint import PROJECT
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


def main() -> None:
    """Run what the command line asks for."""
    arguments = _arguments()
    drivers, jobs = _drivers(arguments.drivers, arguments.peers), _jobs(arguments.only)
    if arguments.list:
        print("drivers:", *DRIVERS, "\njobs:", *JOBS)
        return
    began = time.monotonic()
    jobs = [job for job in jobs if any(job.takes(driver, full=arguments.full) for driver in drivers)]
    results = harness.run_plan(
        jobs, drivers, full=arguments.full, report=lambda line: print(line, file=sys.stderr, flush=True)
    )
    names = [driver.name for driver in drivers]
    print(report.text(results, names))
    arguments.out.mkdir(parents=True, exist_ok=True)
    report.write_json(arguments.out / "results.json", results, harness.environment())
    picture.write_svg(
        arguments.out / "results.svg", results, {driver.name: driver.kind for driver in drivers}
    )
    print(f"\n{time.monotonic() - began:.0f} s; results.json and results.svg are in {arguments.out}")


if __name__ == "__main__":
    main()
