"""The verdict on a context window by usage: some providers truncate or stop without saying so."""

from __future__ import annotations

import attrs

from ..model import codes
from ..model.chunks import Error, Finish, MaxTokens, Stop, TokenUsage
from ..model.failures import LlmFailure


def review_window(finish: Finish, usage: TokenUsage | None, window: int) -> Finish:
    """The finish, or CONTEXT_WINDOW_EXCEEDED where usage proves that the input did not fit.

    That is input beyond the window on stop, and input that fills it on a length limit that
    left no output. Any other length limit stays what it is.

    Args:
        window: of the model, in tokens.
    """
    if usage is None:
        return finish
    reason, taken = finish.reason, usage.billed_input_tokens
    beyond = isinstance(reason, Stop) and taken > window
    filled = isinstance(reason, MaxTokens) and taken >= window and not usage.output_tokens
    if not beyond and not filled:
        return finish
    failure = LlmFailure(
        f"the input has {taken} tokens, the context window {window}", codes.CONTEXT_WINDOW_EXCEEDED
    )
    return attrs.evolve(finish, reason=Error(failure, raw=reason.raw), replay_state=None)
