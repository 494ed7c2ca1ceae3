"""Every way to call a provider, cancelled in every way at every step: what was promised, and no leak."""

import pytest

from .cancelling import CELLS, Cell, sweep
from .extent import FULL


@pytest.mark.parametrize("seed", range(3 if FULL else 1))
@pytest.mark.parametrize("cell", CELLS if FULL else CELLS[::17], ids=str)
def test_cancelled_at_every_step(cell: Cell, seed: int) -> None:
    assert sweep(cell, seed) > 15
