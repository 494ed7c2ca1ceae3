"""The one function that decides: a table over stamps, without any clock."""

import itertools

from hypothesis import given
from hypothesis import strategies as st

from trio_llm.model import codes
from trio_llm.model.chunks import Aborted, Error, Finish, Stop
from trio_llm.streaming.verdict import (
    Cause,
    Rank,
    abort_cause,
    ambient_cause,
    clock_cause,
    dropped_cause,
    first_cause,
    leaving_cause,
)


def provider_cause(now: float) -> Cause:
    return Cause(now, Rank.PROVIDER, "provider", Finish(Stop()))


IN_RANK_ORDER = [
    ambient_cause(1),
    abort_cause(1, None),
    leaving_cause(1),
    provider_cause(1),
    clock_cause(1, "idle", 5),
]


def test_nobody_stamped() -> None:
    assert first_cause([]) is None
    assert first_cause([None, None]) is None


def test_of_one_instant_the_lowest_rank_wins_whatever_the_order() -> None:
    for order in itertools.permutations(IN_RANK_ORDER):
        assert first_cause(order) is IN_RANK_ORDER[0]
    for position in range(len(IN_RANK_ORDER)):
        assert first_cause(reversed(IN_RANK_ORDER[position:])) is IN_RANK_ORDER[position]


@given(st.permutations(range(5)), st.integers(0, 4))
def test_the_earliest_wins_whatever_its_rank(order: list[int], earliest: int) -> None:
    makers = [ambient_cause, lambda now: abort_cause(now, "x"), leaving_cause, provider_cause]
    causes = [make(2.0) for make in makers] + [clock_cause(2.0, "total", 9)]
    first = causes[earliest]
    causes[earliest] = Cause(1.0, first.rank, first.origin, first.finish)
    assert first_cause(causes[index] for index in order) is causes[earliest]


def test_leaving_before_a_layers_drop_of_the_same_instant() -> None:
    left = leaving_cause(1)
    assert first_cause([None, None, left, dropped_cause(1), None, None]) is left


def test_what_each_cause_says() -> None:
    for cause in (ambient_cause(0), abort_cause(0, None), leaving_cause(0), dropped_cause(0)):
        assert isinstance(cause.finish.reason, Aborted)
        assert cause.finish.reason.failure.code == codes.ABORTED
    assert abort_cause(0, "user pressed stop").finish.reason.failure.message == "user pressed stop"  # type: ignore[union-attr]  # shown above
    expired = clock_cause(0, "first_event", 2.5)
    assert isinstance(expired.finish.reason, Error)
    assert expired.finish.reason.failure.code == codes.TIMEOUT
    assert expired.origin == "first_event"
    assert "first_event" in expired.finish.reason.failure.message
    assert "2.5 s" in expired.finish.reason.failure.message
