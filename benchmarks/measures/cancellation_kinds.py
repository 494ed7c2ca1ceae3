"""When and how a stream is cancelled: what the plan and the measure agree on."""

PHASES = {
    "connecting": "tiny",
    "headers": "no-headers",
    "silent": "silent",
    "flowing": "flow",
    "flooded": "flood",
}
"""When the cancel comes, and the scenario that brings it about."""

WAYS = ("scope", "deadline", "abort", "leave")
"""How: the enclosing scope is cancelled, its deadline passes, the stream's own abort, leaving the loop."""
