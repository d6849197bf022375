"""A cluster for the client tests, which are skipped where their language is not installed.

    ODRADEK_BOOTSTRAP=host:port   test that Kafka instead of an Odradek broker (the tests
                                  themselves are checked by running them on Apache Kafka)
    ODRADEK_CLIENTS=1             also run what needs Java, Go or node; `./run clients` sets it

The folder itself is on the import path, because its modules (fetch, rounds) are shared by
tests, client programs and benchmarks without being a package of the product.
"""

import json
import os
import pathlib
import shutil
import sys
from collections.abc import Iterator

import pytest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent / "support"))

import apache
from harness import Cluster, odradek

LANGUAGES = {
    "jvm": ("java", "mvn"),
    "go": ("go",),
    "node": ("node", "npm"),
    "rust": ("cargo", "make", "c++"),
}


def pytest_configure(config: pytest.Config) -> None:
    for name, tools in LANGUAGES.items():
        config.addinivalue_line("markers", f"{name}: needs {' and '.join(tools)}")


def pytest_runtest_setup(item: pytest.Item) -> None:
    for name, tools in LANGUAGES.items():
        if item.get_closest_marker(name) is None:
            continue
        if os.environ.get("ODRADEK_CLIENTS") != "1":
            pytest.skip(f"needs {' and '.join(tools)}: run by `./run clients`")
        missing = [tool for tool in tools if shutil.which(tool) is None]
        if missing:
            pytest.skip(f"not installed: {', '.join(missing)}")


@pytest.fixture(scope="session")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """One Odradek broker for the whole session, or the Kafka of ODRADEK_BOOTSTRAP."""
    if given := os.environ.get("ODRADEK_BOOTSTRAP"):
        yield Cluster(given, ours=False)
        return
    data = tmp_path_factory.mktemp("cluster")
    # As in Kafka's own server.properties: a group's first rebalance is not delayed.
    odradek("up", "--dir", str(data), "--detach", "--", "group.initial.rebalance.delay.ms=0")
    try:
        status = json.loads(odradek("status", "--dir", str(data), "--json"))
        yield Cluster(status["bootstrap"], ours=True)
    finally:
        odradek("down", "--dir", str(data))


@pytest.fixture(scope="module", params=["ours", "3.9", "4"])
def each_cluster(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Cluster]:
    """`cluster`, and then Apache Kafka of two lines: for what must work with all of them."""
    if request.param == "ours":
        yield request.getfixturevalue("cluster")
        return
    if "ODRADEK_BOOTSTRAP" in os.environ:
        pytest.skip("ODRADEK_BOOTSTRAP names the one that is wanted")
    with apache.running(request.param, tmp_path_factory.mktemp("kafka"), 1) as brokers:
        yield Cluster(brokers[0].address, ours=False)
