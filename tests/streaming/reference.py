"""An independent model of the cancellation table, to judge random schedules by.

It knows nothing of trio or of the engine: a schedule of wire data, consumer pace, abort, clocks,
ambient cancellation, leaving and loop stalls goes in; which verdicts and which sights of the
consumer are right comes out. Times are whole numbers, so that ties are frequent.
"""

from __future__ import annotations

import math
import random
from collections.abc import Sequence
from typing import Literal, TypeAlias

import attrs

INF = math.inf

Item: TypeAlias = Literal["E", "C", "F", "X", "Z", "H"]
"""An event, a comment, the finish, a transport failure, an end without finish, silence for ever."""

Verdict: TypeAlias = tuple[str, str]
"""(code or kind, origin)."""

AMBIENT, ABORT, LEAVING, PROVIDER, CLOCK = range(5)


@attrs.frozen(kw_only=True)
class Schedule:
    """What happens, and when. A time of None: it does not happen."""

    items: tuple[tuple[float, Item], ...]
    relays: int
    buffer: int
    think: tuple[int, ...]
    idle: int | None
    first_event: int | None
    progress: int | None
    total: int | None
    abort: int | None
    abort_through: Literal["stream", "signal"]
    ambient: int | None
    ambient_by: Literal["deadline", "cancel"]
    leave_after: int | None
    leave_by: Literal["break", "raise"]
    never_reads_until: int | None
    stall: tuple[float, int] | None


def random_schedule(seed: int, *, deep_buffer: bool = False) -> Schedule:
    """The schedule of a seed."""
    rng = random.Random(seed)

    def pick(chance: float, low: int, high: int) -> int | None:
        return rng.randint(low, high) if rng.random() < chance else None

    time, items = 0, list[tuple[float, Item]]()
    for _ in range(rng.randint(0, 6)):
        time += rng.choice((0, 1, 1, 2, 3, 5))
        items.append((time, rng.choice(("E", "E", "E", "E", "C"))))
    ending: Item = rng.choice(("F", "F", "F", "X", "Z", "H"))
    if ending != "H":
        items.append((time + rng.choice((0, 1, 2, 4)), ending))
    return Schedule(
        items=tuple(items),
        relays=rng.choice((0, 1, 2)),
        buffer=16 if deep_buffer else rng.choice((0, 1, 2, 16)),
        think=tuple(rng.choice((0, 0, 1, 2, 4, 7)) for _ in range(12)),
        idle=pick(0.6, 1, 6),
        first_event=pick(0.3, 1, 8),
        progress=pick(0.3, 1, 6),
        total=pick(0.3, 1, 14),
        abort=pick(0.45, 0, 14),
        abort_through=rng.choice(("stream", "signal")),
        ambient=pick(0.35, 0, 14),
        ambient_by=rng.choice(("deadline", "cancel")),
        leave_after=pick(0.35, 1, 5),
        leave_by=rng.choice(("break", "raise")),
        never_reads_until=pick(0.08, 0, 10),
        stall=(rng.randint(0, 10) + 0.5, rng.randint(1, 4)) if rng.random() < 0.35 else None,
    )


@attrs.frozen
class Expected:
    """What is right for a schedule.

    Attributes:
        recorded: the verdict.
        endings: for each number of chunks that may reach the consumer, how its loop may end
            (a verdict, "left" or "Cancelled") and when.
        may_be_left_instead: the body left in the opening instant, and a cancel or abort came in a
            later pass.
        taken_in_leaving: behind layers, this end may be taken in the instant the body leaves.
    """

    schedule: Schedule
    recorded: Verdict
    endings: dict[int, tuple[frozenset[Verdict | str], float]]
    takes: tuple[float, ...]
    ambient_seen: float
    may_be_left_instead: bool
    taken_in_leaving: Verdict | None

    def allows(self, seen: Sequence[int], how: Verdict | str | None) -> bool:
        """Whether the consumer may have seen these chunks and ended like this."""
        if list(seen) != list(range(len(seen))):
            return False
        leave = self.schedule.leave_after
        for count, (hows, _) in self.endings.items():
            if how not in hows:
                continue
            limit = count if leave is None else min(count, leave)
            if how == "left":
                right = len(seen) == (0 if self.schedule.never_reads_until is not None else leave)
            elif how == "Cancelled":
                before = sum(time < self.ambient_seen for time in self.takes[:limit])
                right = before <= len(seen) <= limit
            else:
                right = len(seen) == count
            if right:
                return True
        return False


def expect(schedule: Schedule) -> Expected | None:
    """What is right, or None where the schedule is ambiguous by construction or never ends."""
    model = _Model(schedule)
    if not model.flow() or not (causes := model.causes()):
        return None
    time, _, recorded = min(causes)
    must = sum(put < time for put in model.puts)
    may = sum(put <= time for put in model.puts)
    endings = {count: model.ending(count, time, recorded) for count in range(must, may + 1)}
    return Expected(
        schedule=schedule,
        recorded=recorded,
        endings=endings,
        takes=tuple(model.takes),
        ambient_seen=INF if schedule.ambient is None else model.seen(schedule.ambient),
        may_be_left_instead=any(when == 0 for _, when in endings.values()),
        taken_in_leaving=model.end[1] if model.end is not None and model.left == model.end[0] else None,
    )


class _Model:
    def __init__(self, schedule: Schedule) -> None:
        self.schedule = schedule
        self.puts: list[float] = []
        self.takes: list[float] = []
        self.end: tuple[float, Verdict] | None = None
        self.expired: tuple[float, Verdict] | None = None
        self._offset = 0.0
        self._last_byte = 0.0
        self._last_event: float | None = None

    def seen(self, time: float) -> float:
        """When a stalled loop observes what happened at ``time``."""
        stall = self.schedule.stall
        if stall is not None and stall[0] < time <= stall[0] + stall[1]:
            return stall[0] + stall[1]
        return time

    def _due(self) -> tuple[float, str]:
        schedule = self.schedule
        waiting = schedule.first_event if schedule.first_event is not None else schedule.progress
        clocks = [
            (None if schedule.idle is None else self._last_byte + schedule.idle, "idle"),
            (
                waiting if self._last_event is None else None,
                "first_event" if schedule.first_event is not None else "progress",
            ),
            (
                None
                if schedule.progress is None or self._last_event is None
                else self._last_event + schedule.progress,
                "progress",
            ),
            (schedule.total, "total"),
        ]
        # Of clocks due at once the engine names the total first, then idle.
        order = {"total": 0, "idle": 1, "first_event": 2, "progress": 3}
        due = [(time, order[name], name) for time, name in clocks if time is not None]
        if not due:
            return INF, ""
        time, _, name = min(due)
        return time + self._offset, name

    def flow(self) -> bool:
        """Let the wire's data flow freely, up to the provider's end or a clock's; False if ambiguous."""
        schedule = self.schedule
        never = schedule.never_reads_until is not None
        consumer_ready = producer_ready = 0.0
        for position, (time, kind) in enumerate([*schedule.items, (INF, "H")]):
            due, phase = self._due()
            observed_due = self.seen(max(due, producer_ready)) if due < INF else INF
            arrival = max(self.seen(time), producer_ready)
            if observed_due < arrival:
                self.expired = (observed_due, ("TIMEOUT", phase))
                break
            if kind == "H":
                break
            self._last_byte = arrival - self._offset
            if kind in "EF":
                self._last_event = arrival - self._offset
            if kind in "FXZ":
                self.end = (arrival, _ENDS[kind])
            if due <= arrival and self._due()[0] <= arrival and self.end is None:
                following = schedule.items[position + 1 : position + 2]
                if following and self.seen(following[0][0]) <= arrival:
                    return False  # a chain of items in the very instant of an expired clock
            producer_ready = arrival
            if kind in "EF":
                count = len(self.puts)
                self.puts.append(arrival)
                if never:
                    done = arrival if count < schedule.buffer else INF
                else:
                    self.takes.append(max(arrival, consumer_ready))
                    consumer_ready = self.seen(self.takes[-1] + schedule.think[count])
                    room = count < schedule.buffer
                    done = arrival if room else max(arrival, self.takes[count - schedule.buffer])
                if done == INF:
                    break
                self._offset += done - arrival
                producer_ready = done
            if self.end is not None:
                break
        return True

    @property
    def left(self) -> float | None:
        """When the body leaves, if it does."""
        schedule = self.schedule
        if schedule.never_reads_until is not None:
            return self.seen(schedule.never_reads_until)
        if schedule.leave_after is not None and len(self.puts) >= schedule.leave_after:
            last = schedule.leave_after - 1
            return self.seen(self.takes[last] + schedule.think[last])
        return None

    def causes(self) -> list[tuple[float, int, Verdict]]:
        schedule = self.schedule
        causes: list[tuple[float, int, Verdict]] = []
        if schedule.ambient is not None:
            causes.append((self.seen(schedule.ambient), AMBIENT, ("ABORTED", "ambient")))
        if schedule.abort is not None:
            causes.append((self.seen(schedule.abort), ABORT, ("ABORTED", "signal")))
        if self.left is not None:
            causes.append((self.left, LEAVING, ("ABORTED", "consumer")))
        if self.end is not None:
            causes.append((self.end[0], PROVIDER, self.end[1]))
        if self.expired is not None:
            causes.append((self.expired[0], CLOCK, self.expired[1]))
        return causes

    def ending(self, count: int, time: float, recorded: Verdict) -> tuple[frozenset[Verdict | str], float]:
        """How the consumer's loop ends when ``count`` chunks reach it."""
        schedule = self.schedule
        ambient = INF if schedule.ambient is None else self.seen(schedule.ambient)
        what: Verdict | str
        if schedule.never_reads_until is not None:
            when, what = self.seen(schedule.never_reads_until), "left"
        elif schedule.leave_after is not None and count >= schedule.leave_after:
            last = schedule.leave_after - 1
            when, what = self.seen(self.takes[last] + schedule.think[last]), "left"
        else:
            ready = self.seen(self.takes[count - 1] + schedule.think[count - 1]) if count else 0
            when, what = max(ready, time), recorded
        if ambient < when:
            return frozenset({"Cancelled"}), when
        if ambient == when:
            return frozenset({"Cancelled", "left"} if what == "left" else {"Cancelled"}), when
        return frozenset({what}), when


_ENDS: dict[str, Verdict] = {
    "F": ("stop", "provider"),
    "X": ("TRANSPORT", "provider"),
    "Z": ("STREAM_CLOSED", "provider"),
}
