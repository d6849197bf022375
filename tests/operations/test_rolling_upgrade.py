"""A cluster is upgraded broker by broker while clients write and read: nothing is lost.

The brokers begin with the code of the last tag or, before there is one, of a recorded commit. An
exported or shallow checkout does not have it.
"""

import asyncio
import contextlib
import json
import os
import pathlib
import subprocess
import sys

import pytest

from odradek.client.cluster import BootstrapError, Cluster
from odradek.client.consumer.consumer import Consumer
from odradek.client.consumer.settings import ConsumerSettings
from odradek.client.producer.producer import Producer
from odradek.client.producer.settings import ProducerSettings
from odradek.local.startable import free_ports

ROOT = pathlib.Path(__file__).parents[2]
# The first commit that may be upgraded from in this way.
BASE = "fb9c7ebfe0975fdfd37256b631a6d5fc530d61e0"
WITHIN_S = 60.0
WITHIN_MS = 60_000
BROKERS = (1, 2, 3)
PARTITIONS = 3


def git(*arguments):
    done = subprocess.run(["git", *arguments], cwd=ROOT, check=False, capture_output=True)
    return done.stdout if done.returncode == 0 else None


@pytest.fixture(scope="module")
def old_code(tmp_path_factory):
    """The source of the version before, from the history."""
    tag = git("describe", "--tags", "--abbrev=0", "--match", "v*")
    commit = tag.decode().strip() if tag else BASE
    archive = git("archive", commit, "src")
    if archive is None:
        pytest.skip(f"{commit} is not in the history of this checkout")
    directory = tmp_path_factory.mktemp("old")
    subprocess.run(["tar", "-x"], input=archive, cwd=directory, check=True)
    source = directory / "src"
    used = subprocess.check_output(
        [sys.executable, "-c", "import odradek; print(odradek.__file__)"],
        env={**os.environ, "PYTHONPATH": str(source)}, text=True,
    )  # fmt: skip
    assert used.startswith(str(source))
    return source


class Rolled:
    """Three brokers, of the old code or of the new."""

    def __init__(self, directory, ports):
        self.directory = directory
        self.ports = dict(zip(BROKERS, ports, strict=True))
        self.processes = {}

    @property
    def bootstrap(self):
        return ",".join(f"127.0.0.1:{port}" for port in self.ports.values())

    async def start(self, broker, source):
        """Start a broker with this source code."""
        options = {
            "broker.id": broker,
            "listeners": f"PLAINTEXT://127.0.0.1:{self.ports[broker]}",
            "log.dirs": self.directory / f"broker-{broker}",
            "odradek.store.path": self.directory / "coordination.db",
            "default.replication.factor": 3,
            "min.insync.replicas": 2,
            "num.partitions": PARTITIONS,
            "offsets.topic.replication.factor": 3,
            "offsets.topic.num.partitions": 3,
            "transaction.state.log.replication.factor": 3,
        }
        file = self.directory / f"{broker}.properties"
        file.write_text("".join(f"{key}={value}\n" for key, value in options.items()))
        environment = {**os.environ, "PYTHONPATH": str(source)}
        with (self.directory / f"{broker}.log").open("ab") as log:
            self.processes[broker] = await asyncio.create_subprocess_exec(
                sys.executable, "-m", "odradek", "server-start", str(file),
                stdout=log, stderr=log, env=environment,
            )  # fmt: skip

    async def stop(self, broker):
        process = self.processes.pop(broker)
        process.terminate()
        assert await asyncio.wait_for(process.wait(), WITHIN_S) == 0, self.log(broker)

    async def __aenter__(self):
        return self

    async def __aexit__(self, *_):
        for process in self.processes.values():
            process.kill()
            await process.wait()

    def log(self, broker):
        return (self.directory / f"{broker}.log").read_text()[-3000:]

    async def all_in_sync(self, topic):
        """Wait until every partition has all brokers in its ISR."""
        async with asyncio.timeout(WITHIN_S):
            while True:
                with contextlib.suppress(BootstrapError):
                    async with await Cluster.bootstrap(self.bootstrap, timeout_ms=2_000) as cluster:
                        await cluster.refresh([topic])
                        known = cluster.metadata.topics.get(topic)
                        isrs = (
                            [len(each.isr) for each in known.partitions.values()] if known else []
                        )
                        if isrs == [len(BROKERS)] * PARTITIONS:
                            return
                await asyncio.sleep(0.1)


class Clients:
    """A producer that counts what is acknowledged, and a consumer of a group."""

    def __init__(self, bootstrap):
        self.bootstrap = bootstrap
        self.acknowledged = []
        self._stopping = asyncio.Event()
        self._has_stopped = False  # nothing is acknowledged any more
        self._delivery = asyncio.Event()

    async def produce(self):
        settings = ProducerSettings.from_properties({"bootstrap.servers": self.bootstrap})
        async with await Producer.open(settings, wait_ms=WITHIN_MS) as producer:
            number, waiting = 0, []
            while not self._stopping.is_set():
                value = str(number).encode()
                delivery = await producer.send("orders", value, partition=number % PARTITIONS)
                number += 1
                waiting.append(asyncio.create_task(self._delivered(delivery, value)))
                await asyncio.sleep(0.005)
            await asyncio.gather(*waiting)
        self._has_stopped = True

    async def _delivered(self, delivery, value):
        await delivery
        self.acknowledged.append(value)
        self._delivery.set()

    async def consume(self, group):
        """Read as a group until everything acknowledged was read and the producer has stopped."""
        settings = ConsumerSettings.from_properties(
            {
                "bootstrap.servers": self.bootstrap,
                "group.id": group,
                "auto.offset.reset": "earliest",
                "auto.commit.interval.ms": "200",
            }
        )
        async with await Consumer.open(settings) as consumer:
            consumer.subscribe(["orders"])
            found = []
            while not self._has_stopped or not set(self.acknowledged) <= set(found):
                found += [record.value for record in await consumer.poll(200)]
        return found

    async def progress(self):
        """Wait until more is acknowledged."""
        self._delivery.clear()
        await self._delivery.wait()

    def stop(self):
        self._stopping.set()


async def upgraded(brokers, old_code):
    """Roll the brokers; what was acknowledged, and what two groups have read."""
    clients = Clients(brokers.bootstrap)
    async with brokers, asyncio.timeout(3 * WITHIN_S):
        for broker in BROKERS:
            await brokers.start(broker, old_code)
        producing = asyncio.create_task(clients.produce())
        await brokers.all_in_sync("orders")
        await clients.progress()
        reading = asyncio.create_task(clients.consume("readers"))
        for broker in BROKERS:
            await brokers.stop(broker)
            await brokers.start(broker, ROOT / "src")
            await brokers.all_in_sync("orders")
            await clients.progress()
        clients.stop()
        await producing
        read = await reading
        again = await clients.consume("others")
    return clients.acknowledged, read, again


def test_nothing_acknowledged_is_lost_when_brokers_are_upgraded_one_by_one(old_code, tmp_path):
    brokers = Rolled(tmp_path, free_ports("127.0.0.1", len(BROKERS)))
    acknowledged, read, again = asyncio.run(upgraded(brokers, old_code))

    assert set(acknowledged) <= set(read)
    assert sorted(again) == sorted(set(again)), "an idempotent producer writes nothing twice"
    assert set(acknowledged) <= set(again)
    logs = {broker: brokers.log(broker) for broker in BROKERS}
    assert not [broker for broker, text in logs.items() if "Traceback" in text], json.dumps(logs)
