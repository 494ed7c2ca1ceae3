"""What holds for every test."""

import signal

from hypothesis import settings

# A shell's background job ignores SIGINT; tests that send themselves one want what a terminal gives.
signal.signal(signal.SIGINT, signal.default_int_handler)

# No deadline: how long an example takes says more of the machine than of the code.
settings.register_profile("default", deadline=None)
settings.register_profile("long", deadline=None, max_examples=5000)
settings.load_profile("default")
