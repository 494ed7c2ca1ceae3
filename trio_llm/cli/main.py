"""The entry point of ``trio-llm``; it imports nothing of the ``cli`` extra before it knows it is there."""

from __future__ import annotations

import io
import sys

FAILED = 1
INTERRUPTED = 130
"""What shells call a program that was ended by Ctrl-C."""


def main() -> None:
    """Run the command line; ends the process.

    Its status is 0 where all went well, 1 where something failed, 2 for wrong use, and 130 after Ctrl-C.
    """
    try:
        import click
        import rich  # noqa: F401
    except ImportError as error:
        sys.exit(
            f"trio-llm's command line needs {error.name}, which is not installed.\n"
            "Install the extra that brings it:  pip install 'trio-llm[cli]'"
        )
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors="replace")  # a model may write what the terminal's encoding has not
    try:
        from .commands import trio_llm

        sys.exit(trio_llm.main(prog_name="trio-llm", standalone_mode=False))
    except click.ClickException as error:
        error.show()
        sys.exit(error.exit_code)
    except (KeyboardInterrupt, click.Abort):
        sys.exit(INTERRUPTED)
