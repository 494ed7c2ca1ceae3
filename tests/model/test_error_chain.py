"""One line for an exception and everything behind it."""

from __future__ import annotations

import pytest

from trio_llm.model.error_chain import error_chain
from trio_llm.model.failures import LlmError


def raised_from(*texts: str) -> OSError:
    """An error for each text, each caused by the next."""
    error: OSError | None = None
    for text in reversed(texts):
        outer = OSError(text)
        outer.__cause__ = error
        error = outer
    assert error is not None
    return error


class Hostile(Exception):
    def __str__(self) -> str:
        raise RuntimeError("no text for you")


class NoString(Exception):
    def __str__(self) -> str:
        return None  # type: ignore[return-value]  # the point of the test


def test_L26_outermost_first_causes_after_colons() -> None:
    assert error_chain(raised_from("call failed", "no route", "refused")) == "call failed: no route: refused"


def test_L26_context_counts_unless_it_is_suppressed() -> None:
    error = ValueError("outer")
    error.__context__ = OSError("inner")
    assert error_chain(error) == "outer: inner"
    error.__suppress_context__ = True
    assert error_chain(error) == "outer"


def test_L26_group_members_are_bracketed() -> None:
    inner = ExceptionGroup("both addresses", [raised_from("v6", "unreachable"), OSError("v4")])
    error = OSError("cannot connect")
    error.__cause__ = inner
    assert error_chain(error) == "cannot connect: both addresses [v6: unreachable; v4]"
    nested = ExceptionGroup("outer", [ExceptionGroup("inner", [OSError("a")]), OSError("b")])
    assert error_chain(nested) == "outer [inner [a]; b]"


@pytest.mark.parametrize(
    ("texts", "line"),
    [
        (("same", "same"), "same"),
        (("failed: refused", "refused", "deeper"), "failed: refused: deeper"),
        (("a", "b", "a", "c"), "a: b: c"),
    ],
)
def test_L26_no_text_is_repeated(texts: tuple[str, ...], line: str) -> None:
    assert error_chain(raised_from(*texts)) == line


def test_L26_no_text_is_repeated_in_a_group() -> None:
    group = ExceptionGroup("all failed", [OSError("refused"), OSError("refused"), OSError("all failed")])
    assert error_chain(group) == "all failed [refused]"
    assert error_chain(ExceptionGroup("x", [OSError("x")])) == "x"


def test_L26_cycles_end() -> None:
    one, other = OSError("one"), OSError("other")
    one.__cause__, other.__cause__ = other, one
    assert error_chain(one) == "one: other"
    one.__cause__ = one
    assert error_chain(one) == "one"
    member = OSError("member")
    group = ExceptionGroup("group", [member])
    member.__cause__ = group
    assert error_chain(group) == "group [member]"


def test_L26_hostile_and_missing_texts_show_the_class() -> None:
    error = OSError("outer")
    error.__cause__ = Hostile()
    assert error_chain(error) == "outer: Hostile"
    assert error_chain(NoString()) == "NoString"
    assert error_chain(TimeoutError()) == "TimeoutError"
    assert error_chain(ValueError("  ")) == "ValueError"


def test_L26_a_long_chain_is_survived() -> None:
    assert error_chain(raised_from(*(f"e{index:05}" for index in range(2_000)))).endswith("e01999")


def test_L26_shows_codes() -> None:
    error = LlmError("no luck", "SERVER")
    error.__cause__ = OSError("pipe")
    assert error_chain(error) == "SERVER: no luck: pipe"
