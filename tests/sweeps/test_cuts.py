"""The answer of every provider, cut at every byte: one clear failure, and nothing lost, doubled or left."""

import itertools

import pytest

from .cutting import WAYS, Way, sweep
from .extent import FULL
from .shapes import SCHEMES, SHAPES, Scheme, Shape

every_shape = pytest.mark.parametrize("shape", SHAPES, ids=lambda shape: shape.name)


@every_shape
@pytest.mark.parametrize("scheme", SCHEMES if FULL else ["http"])
def test_cut_at_every_byte(shape: Shape, scheme: Scheme) -> None:
    places = range(len(shape.body) + 1)
    if FULL:
        sweep(shape, scheme, itertools.product(places, WAYS))
    else:
        sweep(shape, scheme, zip(places, itertools.cycle(WAYS), strict=False))


@every_shape
@pytest.mark.parametrize("scheme", SCHEMES)
@pytest.mark.parametrize("way", WAYS)
def test_cut_behind_the_last_byte(shape: Shape, scheme: Scheme, way: Way) -> None:
    sweep(shape, scheme, [(len(shape.body), way)])
