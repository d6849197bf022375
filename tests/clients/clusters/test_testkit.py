"""The test kit with clients of other projects, and its examples in other languages."""

import asyncio
import gc
import os
import pathlib
import shutil
import subprocess
import sys
import warnings
from collections.abc import Iterator

import fetch
import pytest

from odradek.testkit import KafkaCluster

with warnings.catch_warnings():
    warnings.simplefilter("ignore")  # theirs, of functions that will be removed from Python
    from aiokafka import AIOKafkaConsumer, AIOKafkaProducer
    from confluent_kafka import Consumer, Producer
    from kafka import KafkaConsumer, KafkaProducer

EXAMPLES = pathlib.Path(__file__).parents[3] / "examples" / "testkit"
COUNT = 20

# kafka-python 3.0 never closes a socket whose connection was refused (kafka/net/inet.py,
# `create_connection`). The collector may find it in any later test; the address is then 0.0.0.0.
pytestmark = pytest.mark.filterwarnings(
    r"ignore:unclosed <socket\.socket .* laddr=\('0\.0\.0\.0', \d+\)>:ResourceWarning"
)


@pytest.fixture(autouse=True)
def no_socket_is_left_to_a_later_test() -> Iterator[None]:
    yield
    gc.collect()


@pytest.fixture(params=[False, True], ids=["in-process", "processes"], scope="module")
def three(request: pytest.FixtureRequest) -> Iterator[KafkaCluster]:
    """Three brokers, all of which run when a test begins."""
    with KafkaCluster(3, processes=request.param) as cluster:
        yield cluster


def values(first: int) -> list[str]:
    return [str(number) for number in range(first, first + COUNT)]


class Confluent:
    """Writes and reads with librdkafka."""

    def write(self, bootstrap: str, topic: str, texts: list[str]) -> None:
        producer = Producer({"bootstrap.servers": bootstrap, "enable.idempotence": True})
        for text in texts:
            producer.produce(topic, text)
        assert producer.flush(60) == 0

    def read(self, bootstrap: str, topic: str, group: str, count: int) -> list[str]:
        consumer = Consumer(
            {
                "bootstrap.servers": bootstrap,
                "group.id": group,
                "auto.offset.reset": "earliest",
                "enable.auto.commit": False,
            }
        )
        consumer.subscribe([topic])
        found: list[str] = []
        while len(found) < count:
            message = consumer.poll(60)
            assert message is not None
            assert message.error() is None
            found.append(message.value().decode())
        consumer.commit(asynchronous=False)
        consumer.close()
        return found


class KafkaPython:
    """Writes and reads with kafka-python."""

    def write(self, bootstrap: str, topic: str, texts: list[str]) -> None:
        producer = KafkaProducer(bootstrap_servers=bootstrap, acks="all")
        for text in texts:
            producer.send(topic, text.encode()).get(60)
        producer.close()

    def read(self, bootstrap: str, topic: str, group: str, count: int) -> list[str]:
        consumer = KafkaConsumer(
            topic,
            bootstrap_servers=bootstrap,
            group_id=group,
            auto_offset_reset="earliest",
            enable_auto_commit=False,
            consumer_timeout_ms=60_000,
        )
        found: list[str] = []
        for record in consumer:
            found.append(record.value.decode())
            if len(found) == count:
                break
        consumer.commit()
        consumer.close()
        return found


class AioKafka:
    """Writes and reads with aiokafka."""

    def write(self, bootstrap: str, topic: str, texts: list[str]) -> None:
        async def write() -> None:
            async with AIOKafkaProducer(
                bootstrap_servers=bootstrap, enable_idempotence=True
            ) as producer:
                for text in texts:
                    await producer.send_and_wait(topic, text.encode())

        asyncio.run(write())

    def read(self, bootstrap: str, topic: str, group: str, count: int) -> list[str]:
        async def read() -> list[str]:
            async with AIOKafkaConsumer(
                topic,
                bootstrap_servers=bootstrap,
                group_id=group,
                auto_offset_reset="earliest",
                enable_auto_commit=False,
            ) as consumer:
                found = [(await consumer.getone()).value.decode() for _ in range(count)]
                await consumer.commit()
                return found

        return asyncio.run(asyncio.wait_for(read(), 60))


CLIENTS = {"confluent-kafka": Confluent(), "kafka-python": KafkaPython(), "aiokafka": AioKafka()}


@pytest.mark.parametrize("name", CLIENTS)
def test_a_client_goes_on_when_its_leader_is_killed(three: KafkaCluster, name: str) -> None:
    client, topic, group = CLIENTS[name], f"{name}-topic", f"{name}-group"
    three.topic(topic)
    three.fail_next("Produce", "NOT_LEADER_OR_FOLLOWER")
    client.write(three.bootstrap, topic, values(0))
    leader = three.leader(topic)
    three.kill(leader)
    client.write(three.bootstrap, topic, values(COUNT))
    three.start(leader)

    three.assert_exactly_once(topic, values(0) + values(COUNT))
    assert client.read(three.bootstrap, topic, group, 2 * COUNT) == values(0) + values(COUNT)
    three.assert_committed(group, topic, 2 * COUNT)
    assert three.lag(topic, group) == 0


def run_example(folder: pathlib.Path, *command: str) -> None:
    """Run the tests of an example in a copy of its folder."""
    program = pathlib.Path(sys.executable).with_name("odradek")
    done = subprocess.run(
        command,
        cwd=folder,
        env={**os.environ, "ODRADEK": str(program)},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=600,
        check=False,
    )
    assert done.returncode == 0, done.stdout[-4000:] + done.stderr[-2000:]


@pytest.fixture
def copied(tmp_path: pathlib.Path) -> pathlib.Path:
    shutil.copytree(EXAMPLES, tmp_path / "testkit")
    return tmp_path / "testkit"


@pytest.mark.go
def test_the_example_in_go(copied: pathlib.Path) -> None:
    run_example(copied / "go", "go", "test", "-count=1", ".")


@pytest.mark.node
def test_the_example_in_javascript(copied: pathlib.Path) -> None:
    folder = copied / "javascript"
    (folder / "node_modules").symlink_to(fetch.node_modules(EXAMPLES / "javascript"))
    run_example(folder, "npm", "test")


@pytest.mark.jvm
def test_the_example_in_java(copied: pathlib.Path) -> None:
    run_example(copied / "java", "mvn", "-q", "-B", "test")
