"""Test profiles: the gate repeats itself exactly, the night explores."""

import os
import signal
from importlib.util import find_spec

from hypothesis import settings

settings.register_profile("gate", derandomize=True, max_examples=200, deadline=None)
settings.register_profile("night", max_examples=20_000, deadline=None)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "gate"))

# A shell starts what is in the background with this ignored, and so would all be that tests start.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)

# The Arrow client and Spark are extras, which `./run test` installs and a bare checkout may lack.
collect_ignore_glob = [
    *(["*/test_arrow_*.py"] if find_spec("pyarrow") is None else []),
    *(["spark/*"] if find_spec("pyspark") is None else []),
]
