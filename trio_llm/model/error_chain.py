"""One line of text for an exception and everything behind it."""

from __future__ import annotations


def error_chain(error: BaseException) -> str:
    """The texts of an exception and of its causes, outermost first.

    Causes follow after colons; the members of a group stand in brackets. A text that was shown
    already is not repeated. An exception without text, or whose ``__str__`` fails, shows the name of
    its class; a cycle ends where it closes. Never raises, and is never empty.
    """
    return _render(error, set(), []) or type(error).__name__


def _render(error: BaseException, seen: set[int], shown: list[str]) -> str:
    parts: list[str] = []
    current: BaseException | None = error
    while current is not None and id(current) not in seen:
        seen.add(id(current))
        text = _text(current)
        part = "" if any(text in earlier for earlier in shown) else text
        if part:
            shown.append(part)
        if isinstance(current, BaseExceptionGroup):
            members = [_render(member, seen, shown) for member in current.exceptions]
            inside = "; ".join(filter(None, members))
            if inside:
                part = f"{part} [{inside}]".lstrip()
        if part:
            parts.append(part)
        current = current.__cause__ or (None if current.__suppress_context__ else current.__context__)
    return ": ".join(parts)


def _text(error: BaseException) -> str:
    try:
        text = error.message if isinstance(error, BaseExceptionGroup) else str(error)
        return text.strip() or type(error).__name__
    except Exception:  # a hostile __str__ must not hide the failure that it belongs to
        return type(error).__name__
