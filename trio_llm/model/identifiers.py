"""Names for the strings that identify things, so that a checker keeps them apart."""

from typing import NewType

CallId = NewType("CallId", str)
"""Identifies one tool call inside a conversation."""

MessageId = NewType("MessageId", str)
"""Identifies one message; kept across every boundary."""

ProviderRequestId = NewType("ProviderRequestId", str)
"""The provider's own id of one request, as its support staff ask for it."""

ReasoningEffortId = NewType("ReasoningEffortId", str)
"""An opaque id of a reasoning effort, as an adapter's catalogue lists it (not the wire's spelling)."""

SessionId = NewType("SessionId", str)
"""Groups calls that belong to one conversation; an adapter may map or ignore it."""
