"""Hypothesis strategies that several floors share."""

from __future__ import annotations

from itertools import pairwise
from typing import TypeVar

from hypothesis import strategies as st

Cuttable = TypeVar("Cuttable", bytes, str)

PLACES = st.lists(st.integers(min_value=0, max_value=400), max_size=12)
"""Where to cut something; for :func:`cut`."""


def cut(whole: Cuttable, places: list[int]) -> list[Cuttable]:
    """``whole`` in pieces, cut at ``places`` (taken modulo its length; pieces may be empty)."""
    edges = [0, *sorted(place % (len(whole) + 1) for place in places), len(whole)]
    return [whole[start:end] for start, end in pairwise(edges)]
