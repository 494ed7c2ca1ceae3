"""The entry point of ``trio-llm``; it imports nothing of the ``cli`` extra before it knows it is there."""

from __future__ import annotations

import sys


def main() -> None:
    """Run the command line; ends the process."""
    try:
        import click  # noqa: F401
        import rich  # noqa: F401
    except ImportError as error:
        sys.exit(
            f"trio-llm's command line needs {error.name}, which is not installed.\n"
            "Install the extra that brings it:  pip install 'trio-llm[cli]'"
        )
    from .commands import trio_llm

    trio_llm(prog_name="trio-llm")
