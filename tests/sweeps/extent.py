"""How much of the sweeps runs: a cross-section in the test suite, everything in ``nox -s sweep``."""

import os

FULL = os.environ.get("TRIO_LLM_SWEEP") == "full"
