"""Makes a history fit what one provider accepts. Pure: the history itself is never changed.

Histories are cut by aborts, switch providers in the middle and hold what tools left behind. Every wire
refuses some of that, and refuses it again on each later request. What holds for all of them:

- The results of an assistant message's calls follow it at once, one for each call, in the order of
  the calls. A result pairs with the nearest assistant message before it that made the call.
- A message has content.

What differs is said by :class:`HistoryRules`. A message that needs no repair passes as the same
object, and the same history gives the same request each time, extended at its end or not, so that
prompt caches hold.
"""

from __future__ import annotations

import hashlib
import operator
import re
from collections.abc import Iterable, Iterator, Mapping
from itertools import groupby
from typing import Any, Literal

import attrs

from ..model.content import ContentBlock, ReasoningBlock, TextBlock, ToolCallBlock, ToolResultBlock
from ..model.identifiers import CallId, MessageId
from ..model.messages import Message, ModelSource, PluginSource, ReplayEnvelope, ToolSource
from .json_text import is_complete_json


def _accepts_digests(rules: HistoryRules, attribute: attrs.Attribute[Any], length: int) -> None:
    if not 8 <= length <= 64:
        raise ValueError(f"call_id_length lies between 8 and 64, not {length!r}")
    if rules.call_ids is not None and not all(
        rules.call_ids.fullmatch(digit * length) for digit in "0123456789abcdef"
    ):
        raise ValueError(f"call_ids does not match {length} hexadecimal digits")


@attrs.frozen(kw_only=True)
class HistoryRules:
    """What a provider accepts. The defaults suit a wire that takes any id and separates the roles itself.

    Attributes:
        call_ids: what the whole id of a call must match, such as ``[a-zA-Z0-9_-]{1,64}``. Others, and
            ids that come twice, are replaced by a digest, the same on every request and different
            for every call; replay state stays, as its entries belong to blocks by their place alone.
            None leaves all ids as they are.
        call_id_length: how many hexadecimal digits a replaced id has.
        missing_result: the text of the error result that stands in for a missing one; None takes
            the call out instead.
        broken_calls: whether a call whose arguments are no complete JSON text (it was cut) is taken
            out, with its result.
        orphan_results: whether a result without its call is taken out, or stays where it is.
        foreign_reasoning: what becomes of the thinking in an assistant message without replay
            state, as it came from elsewhere: it stays, is taken out, or becomes text.
        blank_text: whether text blocks without visible text are taken out.
        merge_roles: whether neighbours of one role become one message. An assistant message with
            replay state is never merged.
        after_results: the text of an assistant message to put between tool results and a user message,
            where the wire wants one.

    Raises:
        ValueError: ``call_ids`` does not match the ids that would replace others, or they would be
            too short to tell calls apart.
    """

    call_ids: re.Pattern[str] | None = None
    call_id_length: int = attrs.field(default=24, validator=_accepts_digests)
    missing_result: str | None = "No result: the call was interrupted."
    broken_calls: Literal["keep", "drop"] = "drop"
    orphan_results: Literal["keep", "drop"] = "drop"
    foreign_reasoning: Literal["keep", "drop", "text"] = "keep"
    blank_text: Literal["keep", "drop"] = "keep"
    merge_roles: bool = False
    after_results: str | None = None


def repair(messages: Iterable[Message], rules: HistoryRules) -> list[Message]:
    """The history as a provider with these rules accepts it."""
    pieces: Iterable[_Piece] = _paired(messages, rules)
    if rules.call_ids is not None:
        pieces = _renamed(pieces, rules.call_ids, rules.call_id_length)
    repaired = _wanted(_regrouped(pieces), rules)
    if rules.after_results is not None:
        repaired = _separated(repaired, rules.after_results)
    return _merged(repaired) if rules.merge_roles else repaired


@attrs.frozen(eq=False)
class _Piece:
    """A block and the message it came from, told apart by its place in the history.

    The work is done on these. Regrouping neighbours of one message gives the message back, as the
    same object where nothing about it changed.
    """

    place: int
    message: Message
    number: int  # of the block among those of its message, whatever becomes of it
    block: ContentBlock


@attrs.define(eq=False)
class _Turn:
    """The calls of an assistant message, and their results as they are found."""

    end: int  # how many pieces there are up to the end of the message
    calls: list[_Piece]
    ids: list[CallId]
    results: list[_Piece | None]

    def take(self, result: _Piece, call_id: CallId) -> bool:
        """Whether a result is wanted here: one call gets one, and equal ids take theirs in order."""
        for number, own in enumerate(self.ids):
            if own == call_id and self.results[number] is None:
                self.results[number] = result
                return True
        return False


def _paired(messages: Iterable[Message], rules: HistoryRules) -> list[_Piece]:
    """Every block, with the results moved behind their calls and both mended where one is missing."""
    pieces: list[_Piece] = []
    turns: list[_Turn] = []
    nearest: dict[CallId, _Turn] = {}
    broken: set[CallId] = set()  # ids whose nearest call was taken out
    for place, message in enumerate(messages):
        turn = _Turn(0, [], [], [])
        for number, block in enumerate(message.content):
            piece = _Piece(place, message, number, block)
            if isinstance(block, ToolCallBlock) and message.role == "assistant":
                if rules.broken_calls == "drop" and _is_broken(block):
                    broken.add(block.id)
                    nearest.pop(block.id, None)
                    continue
                turn.calls.append(piece)
                turn.ids.append(block.id)
            elif isinstance(block, ToolResultBlock) and message.role == "user":
                caller = nearest.get(block.tool_call_id)
                if caller is not None and caller.take(piece, block.tool_call_id):
                    continue
                orphan = caller is None and block.tool_call_id not in broken
                if not (orphan and rules.orphan_results == "keep"):
                    continue
            pieces.append(piece)
        if turn.calls:
            turn.end, turn.results = len(pieces), [None] * len(turn.calls)
            turns.append(turn)
            for call_id in turn.ids:
                nearest[call_id] = turn
    return list(_with_results(pieces, turns, rules.missing_result))


def _is_broken(call: ToolCallBlock) -> bool:
    return bool(call.arguments.strip()) and not is_complete_json(call.arguments)


def _with_results(pieces: list[_Piece], turns: list[_Turn], missing: str | None) -> Iterator[_Piece]:
    start = 0
    for turn in turns:
        answers = list(zip(turn.calls, turn.ids, turn.results, strict=True))
        taken_out = [call for call, _, result in answers if result is None and missing is None]
        yield from (
            piece for piece in pieces[start : turn.end] if not any(piece is call for call in taken_out)
        )
        for call, call_id, result in answers:
            if result is not None:
                yield result
            elif missing is not None:
                yield _stand_in(call, call_id, missing)
        start = turn.end
    yield from pieces[start:]


def _stand_in(call: _Piece, call_id: CallId, text: str) -> _Piece:
    block = ToolResultBlock(call_id, text, is_error=True)
    message_id = MessageId(f"{call.message.id}/{call_id}")
    return _Piece(call.place, Message(message_id, "user", (block,), ToolSource(call_id)), 0, block)


def _renamed(pieces: Iterable[_Piece], accepted: re.Pattern[str], length: int) -> Iterator[_Piece]:
    """Give calls ids that the provider accepts, and their results the same.

    An id depends on the calls before it alone, so a longer history renames no earlier call.
    """
    used: set[str] = set()
    waiting: dict[CallId, list[CallId]] = {}  # the new ids of the present turn's calls
    turn = -1
    for piece in pieces:
        block = piece.block
        if isinstance(block, ToolCallBlock) and piece.message.role == "assistant":
            if piece.place != turn:
                turn, waiting = piece.place, {}
            new = _fresh_id(block.id, accepted, length, used)
            used.add(new)
            waiting.setdefault(block.id, []).append(new)
            if new != block.id:
                piece = attrs.evolve(piece, block=attrs.evolve(block, id=new))
        elif isinstance(block, ToolResultBlock) and piece.message.role == "user":
            ids = waiting.get(block.tool_call_id)
            # An orphan that stays is renamed too, to an id that no call before it has.
            new = ids.pop(0) if ids else _fresh_id(block.tool_call_id, accepted, length, used)
            if new != block.tool_call_id:
                piece = attrs.evolve(piece, block=attrs.evolve(block, tool_call_id=new))
        yield piece


def _fresh_id(original: CallId, accepted: re.Pattern[str], length: int, used: set[str]) -> CallId:
    if original not in used and accepted.fullmatch(original):
        return original
    times = 0
    while True:
        text = original if times == 0 else f"{original}\0{times}"
        new = hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()[:length]
        if new not in used:
            return CallId(new)
        times += 1


def _wanted(messages: Iterable[Message], rules: HistoryRules) -> list[Message]:
    """The messages without the reasoning and the blank text that the rules do not keep."""
    kept = []
    for message in messages:
        foreign = _replay_state(message) is None
        content: dict[int, ContentBlock] = {}
        for number, block in enumerate(message.content):
            if isinstance(block, ReasoningBlock) and foreign and rules.foreign_reasoning != "keep":
                if rules.foreign_reasoning == "text" and block.text.strip():
                    content[number] = TextBlock(block.text)
            elif not (rules.blank_text == "drop" and isinstance(block, TextBlock) and not block.text.strip()):
                content[number] = block
        if content:
            kept.append(_with_content(message, content))
    return kept


def _replay_state(message: Message) -> ReplayEnvelope | None:
    return message.source.replay_state if isinstance(message.source, ModelSource) else None


def _regrouped(pieces: Iterable[_Piece]) -> list[Message]:
    messages = []
    for _, group in groupby(pieces, key=lambda piece: (piece.place, id(piece.message))):
        own = list(group)
        messages.append(_with_content(own[0].message, {piece.number: piece.block for piece in own}))
    return messages


def _with_content(message: Message, kept: Mapping[int, ContentBlock]) -> Message:
    """``message`` with these blocks, each by the number of the one it was: itself, if they are its own."""
    content = tuple(kept.values())
    if len(content) == len(message.content) and all(map(operator.is_, content, message.content)):
        return message
    source = message.source
    if isinstance(source, ToolSource):
        answered = [block.tool_call_id for block in content if isinstance(block, ToolResultBlock)]
        if answered and source.call_id not in answered:
            source = ToolSource(answered[0])
    elif isinstance(source, ModelSource) and source.replay_state is not None:
        source = attrs.evolve(source, replay_state=_pruned(source.replay_state, message, kept))
    return attrs.evolve(message, content=content, source=source)


def _pruned(envelope: ReplayEnvelope, message: Message, kept: Iterable[int]) -> ReplayEnvelope | None:
    """The envelope without the entries of blocks taken out; None where it never fitted."""
    if envelope.blocks is None:
        return envelope
    if len(envelope.blocks) != len(message.content):
        return None
    return attrs.evolve(envelope, blocks=[envelope.blocks[number] for number in kept])


def _separated(messages: Iterable[Message], text: str) -> list[Message]:
    """Put an assistant message wherever a user speaks after tool results."""
    out: list[Message] = []
    answered: Message | None = None  # the message of the last results, while nobody spoke since
    for message in messages:
        blocks = dict(enumerate(message.content))
        results = {number: block for number, block in blocks.items() if isinstance(block, ToolResultBlock)}
        others = {number: block for number, block in blocks.items() if number not in results}
        if message.role == "user" and results and others:
            parts = [_with_content(message, results), _with_content(message, others)]
        else:
            parts = [message]
        for part in parts:
            is_result = part.role == "user" and isinstance(part.content[0], ToolResultBlock)
            if part.role == "user" and not is_result and answered is not None:
                out.append(
                    Message(
                        MessageId(f"{answered.id}/after-results"), "assistant", text, PluginSource("history")
                    )
                )
            answered = part if is_result else None
            out.append(part)
    return out


def _merged(messages: Iterable[Message]) -> list[Message]:
    out: list[Message] = []
    for message in messages:
        last = out[-1] if out else None
        if last is None or last.role != message.role or _replay_state(last) or _replay_state(message):
            out.append(message)
        else:
            out[-1] = attrs.evolve(last, content=last.content + message.content)
    return out
