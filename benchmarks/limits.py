"""The process's limit of open files."""

from __future__ import annotations

import resource


def raise_file_limit() -> None:
    """Allow as many open files as this user may have: a thousand streams need more than the usual 1,024."""
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
