"""Test profiles: the gate repeats itself exactly, the night explores."""

import os

from hypothesis import settings

settings.register_profile("gate", derandomize=True, max_examples=200, deadline=None)
settings.register_profile("night", max_examples=20_000, deadline=None)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "gate"))
