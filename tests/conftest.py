"""What holds for every test."""

from hypothesis import settings

# No deadline: how long an example takes says more of the machine than of the code.
settings.register_profile("default", deadline=None)
settings.register_profile("long", deadline=None, max_examples=5000)
settings.load_profile("default")
