"""Random schedules of everything that can end a call, judged by an independent model."""

import pytest
import trio
from trio.testing import MockClock

from .schedules import compare


@pytest.mark.parametrize("layers", [0, 2])
def test_random_schedules_agree_with_the_reference_model(layers: int) -> None:
    clock = MockClock(autojump_threshold=0)

    async def main() -> tuple[int, list[str]]:
        return await compare(range(6000), clock, layers=layers)

    compared, disagreements = trio.run(main, clock=clock)
    assert compared > 5000
    assert not disagreements, f"{len(disagreements)} disagreements, the first: {disagreements[0]}"
