"""Where the recorded provider streams and the cases from bug reports lie.

They are no part of the project. Tests that read them are marked with ``requires_recordings`` or
``requires_cases`` and skip where the data is absent.
"""

import os
from pathlib import Path

import pytest

_BESIDE = Path(__file__).resolve().parent.parent.parent / "shared"

RECORDINGS = Path(os.environ.get("TRIO_LLM_RECORDINGS", _BESIDE / "recordings"))
CASES = Path(os.environ.get("TRIO_LLM_CASES", _BESIDE / "cases"))

requires_recordings = pytest.mark.skipif(
    not RECORDINGS.is_dir(), reason="no recordings: set TRIO_LLM_RECORDINGS to their directory"
)
requires_cases = pytest.mark.skipif(
    not CASES.is_dir(), reason="no cases: set TRIO_LLM_CASES to their directory"
)
