"""Retry arithmetic: whether a policy tries again, and after how long. Pure."""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal, TypeAlias

import attrs

from ..model.failures import LlmFailure
from ..model.policy import NormalRetry, RetryPolicy

DelaySource: TypeAlias = Literal["backoff", "provider", "recovery"]
"""Who set a delay: the policy, the provider's own wish, or nobody, as a recovery needs none."""


@attrs.frozen
class Retry:
    """A retry that was decided on.

    Attributes:
        number: its place in its budget, from 1; 0 for one that a recovery asked for.
        delay_ms: how long to wait first, in milliseconds.
    """

    number: int
    delay_ms: float
    source: DelaySource


def backoff_ms(policy: RetryPolicy, number: int, random: Callable[[], float]) -> float:
    """The delay before retry ``number`` (from 1): doubled each time, capped, jittered, capped again.

    Args:
        random: gives numbers in [0, 1); 0.5 is no jitter.
    """
    # the exponent is bounded because 2.0 ** 1024 raises; an infinite product is capped
    delay = min(policy.initial_delay_ms * 2.0 ** min(number - 1, 1000), policy.max_delay_ms)
    jitter = 1 + policy.jitter_ratio * (2 * random() - 1)
    return min(delay * jitter, policy.max_delay_ms)


def policy_retry(
    policy: RetryPolicy, failure: LlmFailure, used: int, random: Callable[[], float]
) -> Retry | None:
    """What the policy does after a failure; None if it gives up.

    A delay the provider asks for is used verbatim up to the policy's maximum. Above it ``normal``
    gives up and ``always`` uses its own backoff.

    Args:
        used: how many retries of the same budget there were.
    """
    asked = failure.provider_retry_after_ms
    if isinstance(policy, NormalRetry):
        if failure.code not in policy.retryable_codes or used >= policy.max_retries:
            return None
        if asked is not None and asked > policy.max_delay_ms:
            return None
    if asked is not None and asked <= policy.max_delay_ms:
        return Retry(used + 1, asked, "provider")
    return Retry(used + 1, backoff_ms(policy, used + 1, random), "backoff")
