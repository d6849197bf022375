"""Profiles of Hypothesis (the gate repeats itself, the night explores), and the order of tests."""

import gc
import os
import signal
from importlib.util import find_spec
from shutil import which

import pytest
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
    *(["page"] if find_spec("playwright") is None or which("chromium") is None else []),
]

# Tests that start brokers mostly wait: each part is run by one worker, one test after the other.
PARTS = {
    "tests/clients/": "brokers of clients and pages",
    "tests/cluster/security/": "brokers of clients and pages",
    "tests/cluster/testkit/": "brokers of clients and pages",
    "tests/cluster/web/": "brokers of clients and pages",
    "tests/cluster/": "brokers of clusters",  # but for the folders above
    "tests/documentation/": "brokers of clients and pages",
    "tests/operations/": "brokers of tools and Spark",
    "tests/page/": "brokers of clients and pages",
    "tests/recorded/test_calls.py": "brokers of tools and Spark",
    "tests/recorded/test_stories.py": "brokers of tools and Spark",
    "tests/spark/": "brokers of tools and Spark",
}
BUSY_NICENESS = 10  # of a worker that has begun with the other tests, which only compute
LONGEST = "tests/sim/test_clusters.py"


@pytest.hookimpl(wrapper=True)
def pytest_collection():
    """Nothing of what is collected is garbage, or becomes garbage: no collector looks at it."""
    gc.disable()
    try:
        return (yield)
    finally:
        gc.freeze()
        gc.enable()


def pytest_collection_modifyitems(items):
    """Begin with what takes longest, so that all workers end at about the same time."""
    items.sort(
        key=lambda item: (not item.nodeid.startswith(tuple(PARTS)), LONGEST not in item.nodeid)
    )


def pytest_runtest_setup(item):
    """Brokers and their clients have time limits: tests that only compute give way to them."""
    is_worker = hasattr(item.config, "workerinput")
    if is_worker and not item.nodeid.startswith(tuple(PARTS)):
        os.nice(max(0, BUSY_NICENESS - os.getpriority(os.PRIO_PROCESS, 0)))


@pytest.hookimpl(optionalhook=True)  # of pytest-xdist, which runs tests in several processes
def pytest_xdist_auto_num_workers():
    """Two more than processors, because three of them mostly wait."""
    return min(os.cpu_count() or 1, 4) + 2


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config, log):
    """A file is run by one worker, and so is each part of the tests that start brokers."""
    from xdist.scheduler import LoadFileScheduling  # noqa: PLC0415 - not loaded without workers

    class ByFile(LoadFileScheduling):
        def _split_scope(self, nodeid):
            parts = (part for folder, part in PARTS.items() if nodeid.startswith(folder))
            return next(parts, None) or super()._split_scope(nodeid)

    return ByFile(config, log)
