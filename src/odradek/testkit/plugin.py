"""The pytest plugin: the fixtures `kafka`, `kafka_cluster` and `kafka_simulation`.

pytest loads it in every run of an environment in which Odradek is installed. Without one of its
fixtures it does nothing, and imports nothing but pytest.

    def test_orders(kafka):                     # one broker for all tests of this process
        topic = kafka.topic("orders")           # with a prefix of this test
        ...

    def test_a_leader_dies(kafka_cluster):      # a factory
        with kafka_cluster(brokers=3) as cluster:
            ...

    @kafka_simulation(seeds=200)                # of odradek.testkit.simulation
    def test_no_order_is_lost(sim):             # in simulated time, docs/simulation.md
        ...
"""

import re
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from odradek.testkit.cluster import KafkaCluster
    from odradek.testkit.shared import SharedKafka
    from odradek.testkit.simulation.fixture import KafkaSimulation


def pytest_addoption(parser: pytest.Parser) -> None:
    """The options of simulations."""
    group = parser.getgroup("kafka", "programs in simulated time (Odradek)")
    group.addoption(
        "--kafka-seed",
        action="append",
        default=[],
        metavar="SEED",
        help="simulate this seed alone, as a failing test prints it: 17, or 17:3,5",
    )
    group.addoption(
        "--kafka-seeds", type=int, metavar="N", help="simulate so many seeds in each test"
    )
    group.addoption(
        "--kafka-jobs", type=int, metavar="N", help="seeds side by side; the default is all cores"
    )


@pytest.fixture(scope="session")
def _odradek_kafka() -> "Iterator[KafkaCluster]":
    """One broker for all tests of this process; with pytest-xdist each worker has its own."""
    from odradek.testkit.cluster import KafkaCluster  # noqa: PLC0415 - when it is used

    with KafkaCluster() as cluster:
        yield cluster


@pytest.fixture
def kafka(
    _odradek_kafka: "KafkaCluster", request: pytest.FixtureRequest
) -> "Iterator[SharedKafka]":
    """A broker that other tests use, too, with names of topics and groups for this test alone."""
    from odradek.testkit.shared import SharedKafka  # noqa: PLC0415

    name = re.sub(r"[^A-Za-z0-9_-]+", "-", request.node.name).strip("-")
    yield SharedKafka(_odradek_kafka, name)
    _odradek_kafka.heal()


@pytest.fixture
def kafka_cluster() -> "Iterator[Callable[..., KafkaCluster]]":
    """A factory of clusters, which are context managers.

    It takes the arguments of `odradek.testkit.KafkaCluster`. Clusters that a test leaves open are
    closed after it.
    """
    from odradek.testkit.cluster import KafkaCluster  # noqa: PLC0415

    made: list[KafkaCluster] = []

    def make(brokers: int = 3, **options: object) -> KafkaCluster:
        __tracebackhide__ = True
        made.append(KafkaCluster(brokers, **options))  # type: ignore[arg-type]
        return made[-1]

    yield make
    for cluster in made:
        cluster.close()


@pytest.fixture
def kafka_simulation(request: pytest.FixtureRequest) -> "KafkaSimulation":
    """Simulate a program from many seeds: `kafka_simulation(plan, seeds=200)`."""
    from odradek.testkit.simulation.fixture import KafkaSimulation  # noqa: PLC0415

    return KafkaSimulation(request)
