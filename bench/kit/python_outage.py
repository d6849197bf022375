"""How long a producer or consumer in Python gets nothing: its own defaults, a record every 3 ms.

    python -m kit.python_outage CLIENT BOOTSTRAP TOPIC PARTITION,PARTITION... [GROUP]

For the producers the gap is between two acknowledgements. The consumers are members of a group and
commit every 50 ms; their gaps are those between two records of a partition, and between two commits
(`commits`). It prints `ready` when all of these have been reached, continues until its standard
input ends, and then prints one line of JSON: the longest gaps.
"""

import asyncio
import json
import sys
import threading
import time
from collections.abc import Callable
from typing import Any, Final, NamedTuple

from kit.librdkafka_outage import PAUSE_S, gaps_ms

COMMITS: Final = "commits"
COMMIT_S: Final = 0.05
VALUE = b"x" * 100


class Load(NamedTuple):
    """What to produce or consume, and where to note each acknowledgement, record and commit."""

    bootstrap: str
    topic: str
    partitions: list[int]
    group: str
    note: Callable[[int | str], None]
    over: threading.Event


def aiokafka(load: Load) -> None:
    """Write with aiokafka's producer, with acks=all."""
    from aiokafka import AIOKafkaProducer  # noqa: PLC0415 - only where it is measured

    async def produce() -> None:
        async with AIOKafkaProducer(bootstrap_servers=load.bootstrap, acks="all") as producer:
            while not load.over.is_set():
                for partition in load.partitions:
                    sent = await producer.send(load.topic, VALUE, partition=partition)
                    sent.add_done_callback(
                        lambda done, partition=partition: done.exception() or load.note(partition)
                    )
                await asyncio.sleep(PAUSE_S)

    asyncio.run(produce())


def kafka_python(load: Load) -> None:
    """Write with kafka-python's producer, with acks=all."""
    from kafka import KafkaProducer  # noqa: PLC0415

    producer = KafkaProducer(bootstrap_servers=load.bootstrap, acks="all")
    while not load.over.is_set():
        for partition in load.partitions:
            sent = producer.send(load.topic, VALUE, partition=partition)
            sent.add_callback(lambda _, partition=partition: load.note(partition))
        time.sleep(PAUSE_S)
    producer.close(timeout=30)


def librdkafka_consumer(load: Load) -> None:
    """Read with librdkafka's consumer."""
    from confluent_kafka import Consumer  # noqa: PLC0415

    def committed(error: Any, _: Any) -> None:
        if error is None:
            load.note(COMMITS)

    settings: dict[str, Any] = {
        "bootstrap.servers": load.bootstrap,
        "group.id": load.group,
        "auto.offset.reset": "earliest",
        "enable.auto.commit": False,
        "on_commit": committed,
    }
    reader = Consumer(settings, logger=None)
    reader.subscribe([load.topic])
    committed_s = 0.0
    while not load.over.is_set():
        message = reader.poll(0.01)
        if message is not None and message.error() is None:
            load.note(message.partition())
            if time.monotonic() - committed_s > COMMIT_S:
                committed_s = time.monotonic()
                reader.commit(asynchronous=True)
    reader.close()


def aiokafka_consumer(load: Load) -> None:
    """Read with aiokafka's consumer."""
    from aiokafka import AIOKafkaConsumer  # noqa: PLC0415
    from aiokafka.errors import KafkaError  # noqa: PLC0415

    async def commit(reader: Any) -> None:
        while not load.over.is_set():
            await asyncio.sleep(COMMIT_S)
            try:
                await reader.commit()
            except KafkaError:
                continue
            load.note(COMMITS)

    async def read() -> None:
        async with AIOKafkaConsumer(
            load.topic,
            bootstrap_servers=load.bootstrap,
            group_id=load.group,
            auto_offset_reset="earliest",
            enable_auto_commit=False,
        ) as reader:
            committing = asyncio.create_task(commit(reader))
            while not load.over.is_set():
                for partition, messages in (await reader.getmany(timeout_ms=10)).items():
                    for _ in messages:
                        load.note(partition.partition)
            await committing

    asyncio.run(read())


def kafka_python_consumer(load: Load) -> None:
    """Read with kafka-python's consumer."""
    from kafka import KafkaConsumer  # noqa: PLC0415

    reader = KafkaConsumer(
        load.topic,
        bootstrap_servers=load.bootstrap,
        group_id=load.group,
        auto_offset_reset="earliest",
        enable_auto_commit=False,
    )

    def committed(_: Any, answer: Any) -> None:
        if not isinstance(answer, Exception):
            load.note(COMMITS)

    committed_s = 0.0
    while not load.over.is_set():
        found = reader.poll(timeout_ms=10)
        for partition, messages in found.items():
            for _ in messages:
                load.note(partition.partition)
        if found and time.monotonic() - committed_s > COMMIT_S:
            committed_s = time.monotonic()
            reader.commit_async(callback=committed)
    reader.close()


CLIENTS = {
    "aiokafka": aiokafka,
    "kafka-python": kafka_python,
    "librdkafka-consumer": librdkafka_consumer,
    "aiokafka-consumer": aiokafka_consumer,
    "kafka-python-consumer": kafka_python_consumer,
}


def main(client: str, bootstrap: str, topic: str, partitions: list[int], group: str = "") -> None:
    """Run until the standard input ends."""
    times: dict[int | str, list[float]] = {partition: [] for partition in partitions}
    if group:
        times[COMMITS] = []
    over, until_s = threading.Event(), []

    def wait() -> None:
        sys.stdin.read()
        until_s.append(time.monotonic())
        over.set()

    def note(what: int | str) -> None:
        times[what].append(time.monotonic())
        if not ready.is_set() and all(times.values()):
            ready.set()
            for seen in times.values():
                del seen[:-1]  # the first requests include the start
            print("ready", flush=True)

    ready = threading.Event()
    threading.Thread(target=wait, daemon=True).start()
    CLIENTS[client](Load(bootstrap, topic, partitions, group, note, over))
    print(json.dumps({"gaps_ms": gaps_ms(times, until_s[0])}))


if __name__ == "__main__":
    main(*sys.argv[1:4], [int(part) for part in sys.argv[4].split(",")], *sys.argv[5:])
