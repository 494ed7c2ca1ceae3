"""The random schedules of tests/streaming in their long form, and behind layers with random buffers."""

from __future__ import annotations

import attrs
import pytest
import trio
from trio.testing import MockClock

from ..streaming.reference import Expected, Schedule, expect, random_schedule
from ..streaming.schedules import acceptable, compare, pass_through, run_schedule
from .extent import FULL

PART = 10_000 if FULL else 500

every_part = pytest.mark.parametrize("part", range(10) if FULL else [200])


def seeds_of(part: int) -> range:
    return range(part * PART, (part + 1) * PART)


@every_part
@pytest.mark.parametrize("layers", [0, 2])
def test_schedules_agree_with_the_reference_model(layers: int, part: int) -> None:
    clock = MockClock(autojump_threshold=0)

    async def main() -> tuple[int, list[str]]:
        return await compare(seeds_of(part), clock, layers=layers)

    compared, disagreements = trio.run(main, clock=clock)
    assert compared > 0.9 * PART
    assert not disagreements, f"{len(disagreements)} disagreements, the first: {disagreements[0]}"


def expected_behind_layers(schedule: Schedule) -> list[Expected]:
    """What is right behind layers, whatever the buffer; none where the schedule is ambiguous.

    The pump reads ahead. It takes one batch into its hand, and one more where that comes in the very
    instant in which the one before it was handed over; a batch that waits in a buffer grows.
    """
    depths = (16,) if schedule.buffer else (1, 2)
    expected = [expect(attrs.evolve(schedule, buffer=depth)) for depth in depths]
    return [each for each in expected if each is not None] if None not in expected else []


async def compare_behind_layers(seeds: range, clock: MockClock, layers: int) -> tuple[int, list[str]]:
    """Run the schedules of some seeds; returns how many were compared, and the disagreements."""
    compared, disagreements = 0, list[str]()
    for seed in seeds:
        schedule = random_schedule(seed)
        expected = expected_behind_layers(schedule)
        if not expected:
            continue
        compared += 1
        recorded, seen, how, left_over = await run_schedule(schedule, clock, [pass_through] * layers)
        if left_over or not any(acceptable(one, recorded, seen, how, layered=True) for one in expected):
            disagreements.append(
                f"seed {seed}: {schedule}\n  want {expected}\n"
                f"  got {recorded} seen {seen} ended {how} tasks left {left_over}"
            )
    return compared, disagreements


@every_part
@pytest.mark.parametrize("layers", [1, 2])
def test_schedules_with_random_buffers_behind_layers(layers: int, part: int) -> None:
    clock = MockClock(autojump_threshold=0)

    async def main() -> tuple[int, list[str]]:
        return await compare_behind_layers(seeds_of(part), clock, layers)

    compared, disagreements = trio.run(main, clock=clock)
    assert compared > 0.9 * PART
    assert not disagreements, f"{len(disagreements)} disagreements, the first: {disagreements[0]}"
