"""AbortSignal: one switch, many calls."""

from __future__ import annotations

import gc

from trio_llm.model.signal import AbortSignal


def test_abort_is_synchronous_and_final() -> None:
    signal, heard = AbortSignal(), list[str | None]()
    signal.subscribe(heard.append)
    assert (signal.aborted, signal.reason) == (False, None)
    signal.abort("enough")
    assert heard == ["enough"]
    signal.abort("again")
    assert (signal.aborted, signal.reason, heard) == (True, "enough", ["enough"])


def test_a_reason_may_be_missing() -> None:
    signal = AbortSignal()
    signal.abort()
    signal.abort("late")
    assert (signal.aborted, signal.reason) == (True, None)


def test_it_serves_many_calls_even_with_one_function() -> None:
    signal, heard = AbortSignal(), list[str | None]()
    ends = [signal.subscribe(heard.append) for _ in range(3)]
    ends[1]()
    signal.abort("x")
    assert heard == ["x", "x"]


def test_subscribing_after_the_abort_hears_at_once() -> None:
    signal, heard = AbortSignal(), list[str | None]()
    signal.abort("x")
    end = signal.subscribe(heard.append)
    assert heard == ["x"]
    end()


def test_unsubscribing_twice_does_nothing() -> None:
    signal, heard = AbortSignal(), list[str | None]()
    end = signal.subscribe(heard.append)
    end()
    end()
    signal.abort("x")
    end()
    assert heard == []


def test_a_parent_aborts_its_children_and_not_the_other_way() -> None:
    parent = AbortSignal()
    child, sibling = parent.child(), parent.child()
    grandchild = child.child()
    heard: list[str | None] = []
    grandchild.subscribe(heard.append)
    sibling.abort("alone")
    assert (parent.aborted, child.aborted, sibling.reason) == (False, False, "alone")
    parent.abort("all")
    assert (child.reason, grandchild.reason, sibling.reason) == ("all", "all", "alone")
    assert heard == ["all"]


def test_a_child_of_an_aborted_signal_is_born_aborted() -> None:
    parent = AbortSignal()
    parent.abort("over")
    assert (parent.child().aborted, parent.child().reason) == (True, "over")


def test_a_chain_holds_while_only_its_end_is_held() -> None:
    root = AbortSignal()
    leaf = root.child().child()
    gc.collect()
    root.abort("x")
    assert leaf.aborted


def test_children_that_nobody_holds_are_forgotten() -> None:
    root = AbortSignal()
    for _ in range(100):
        root.child()
    gc.collect()
    assert len(root._children) == 0


def test_aborting_while_being_told_of_an_abort() -> None:
    signal, heard = AbortSignal(), list[str | None]()
    signal.subscribe(lambda reason: signal.abort("inner"))
    signal.subscribe(heard.append)
    signal.abort("outer")
    assert (signal.reason, heard) == ("outer", ["outer"])
