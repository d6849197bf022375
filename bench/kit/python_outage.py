"""How long a producer or consumer in Python gets nothing: its own defaults, a record every 3 ms.

    python -m kit.python_outage aiokafka|kafka-python|librdkafka-consumer BOOTSTRAP TOPIC PARTITIONS

For the producers the gap is between two acknowledgements; for librdkafka's consumer, a member of a
group, between two records that librdkafka's producer has written. It prints `ready` when all
partitions have been reached, continues until its standard input ends, and then prints one line of
JSON: the longest gap of each partition.
"""

import asyncio
import json
import sys
import threading
import time
from collections.abc import Callable
from typing import Any

from kit.librdkafka_outage import PAUSE_S, gaps_ms

Note = Callable[[int], None]
VALUE = b"x" * 100


def aiokafka(bootstrap: str, topic: str, partitions: list[int], note: Note, over: Any) -> None:
    """Write with aiokafka's producer, with acks=all."""
    from aiokafka import AIOKafkaProducer  # noqa: PLC0415 - only where it is measured

    async def produce() -> None:
        async with AIOKafkaProducer(bootstrap_servers=bootstrap, acks="all") as producer:
            while not over.is_set():
                for partition in partitions:
                    sent = await producer.send(topic, VALUE, partition=partition)
                    sent.add_done_callback(
                        lambda done, partition=partition: done.exception() or note(partition)
                    )
                await asyncio.sleep(PAUSE_S)

    asyncio.run(produce())


def kafka_python(bootstrap: str, topic: str, partitions: list[int], note: Note, over: Any) -> None:
    """Write with kafka-python's producer, with acks=all."""
    from kafka import KafkaProducer  # noqa: PLC0415

    producer = KafkaProducer(bootstrap_servers=bootstrap, acks="all")
    while not over.is_set():
        for partition in partitions:
            sent = producer.send(topic, VALUE, partition=partition)
            sent.add_callback(lambda _, partition=partition: note(partition))
        time.sleep(PAUSE_S)
    producer.close(timeout=30)


def consumer(bootstrap: str, topic: str, partitions: list[int], note: Note, over: Any) -> None:
    """Read with librdkafka's consumer in a group what its producer writes."""
    from confluent_kafka import Consumer, Producer  # noqa: PLC0415

    producer: Any = Producer({"bootstrap.servers": bootstrap}, logger=None)
    group = {"bootstrap.servers": bootstrap, "group.id": "outage", "auto.offset.reset": "earliest"}
    reader = Consumer(group, logger=None)
    reader.subscribe([topic])

    def read() -> None:
        while not over.is_set():
            message = reader.poll(0.1)
            if message is not None and message.error() is None:
                note(message.partition())

    reading = threading.Thread(target=read)
    reading.start()
    while not over.is_set():
        for partition in partitions:
            producer.produce(topic, VALUE, partition=partition)
        producer.poll(PAUSE_S)
    reading.join()
    reader.close()
    producer.flush(30)


CLIENTS = {"aiokafka": aiokafka, "kafka-python": kafka_python, "librdkafka-consumer": consumer}


def main(client: str, bootstrap: str, topic: str, partitions: list[int]) -> None:
    """Run until the standard input ends."""
    times: dict[int, list[float]] = {partition: [] for partition in partitions}
    over = threading.Event()

    def note(partition: int) -> None:
        times[partition].append(time.monotonic())
        if not ready.is_set() and all(times.values()):
            ready.set()
            print("ready", flush=True)

    ready = threading.Event()
    threading.Thread(target=lambda: (sys.stdin.read(), over.set()), daemon=True).start()
    CLIENTS[client](bootstrap, topic, partitions, note, over)
    print(json.dumps({"gaps_ms": gaps_ms(times)}))


if __name__ == "__main__":
    main(*sys.argv[1:4], [int(part) for part in sys.argv[4].split(",")])
