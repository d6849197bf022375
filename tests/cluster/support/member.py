"""A member of a group, in a process of its own that a test may kill at any moment.

    python member.py CLIENT BOOTSTRAP GROUP TOPIC FILE      CLIENT: ours or librdkafka

It reads with cooperative-sticky rebalancing, records what it has read, commits that, records the
commit, and so on until it is killed. Each note is a line of JSON in FILE, written at once;
`at` is the monotonic clock of the machine, which is the same for all processes.
"""

import asyncio
import json
import os
import sys
import time
from collections.abc import Iterable

STRATEGY = "cooperative-sticky"
SESSION_MS = 3_000


class Notes:
    """Records the events of this member."""

    def __init__(self, path: str) -> None:
        self._file = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT)

    def note(self, what: str, **more: object) -> None:
        line = {"at": time.monotonic_ns(), "what": what, **more}
        os.write(self._file, json.dumps(line).encode() + b"\n")

    def read(self, records: Iterable[tuple[int, int]]) -> dict[int, int]:
        """Note what was read, by partition; what to commit for it."""
        ends: dict[int, int] = {}
        for partition, offset in records:
            self.note("read", partition=partition, offset=offset)
            ends[partition] = offset + 1
        return ends


# ----------------------------------------------------------------------------------- ours


async def ours(bootstrap: str, group: str, topic: str, notes: Notes) -> None:
    from odradek.client.consumer.consumer import Consumer  # noqa: PLC0415 - one client or the other
    from odradek.client.consumer.settings import COOPERATIVE, ConsumerSettings  # noqa: PLC0415
    from odradek.client.group.offsets import OffsetAndMetadata  # noqa: PLC0415
    from odradek.model.errors import ApiError, OdradekError  # noqa: PLC0415
    from odradek.model.partition import TopicPartition  # noqa: PLC0415

    class Listener:
        async def revoked(self, partitions: Iterable[TopicPartition]) -> None:
            notes.note("revoked", partitions=[p.partition for p in partitions])

        async def assigned(self, partitions: Iterable[TopicPartition]) -> None:
            notes.note("assigned", partitions=[p.partition for p in partitions])

        async def lost(self, partitions: Iterable[TopicPartition]) -> None:
            notes.note("lost", partitions=[p.partition for p in partitions])

    settings = ConsumerSettings.from_properties(
        {
            "bootstrap.servers": bootstrap,
            "group.id": group,
            "enable.auto.commit": "false",
            "auto.offset.reset": "earliest",
            "partition.assignment.strategy": COOPERATIVE,
            "session.timeout.ms": str(SESSION_MS),
            "heartbeat.interval.ms": "500",
            "request.timeout.ms": "5000",
        }
    )
    async with await Consumer.open(settings, wait_ms=30_000) as consumer:
        consumer.subscribe([topic], Listener())
        while True:
            ends = notes.read((r.partition, r.offset) for r in await consumer.poll(500))
            if ends:
                offsets = {TopicPartition(topic, p): OffsetAndMetadata(o) for p, o in ends.items()}
                try:
                    await consumer.commit(offsets)
                except (ApiError, OdradekError) as error:
                    notes.note("refused", why=str(error))
                else:
                    notes.note("committed", ends=ends)


# ------------------------------------------------------------------------------ librdkafka


def librdkafka(bootstrap: str, group: str, topic: str, notes: Notes) -> None:
    from confluent_kafka import Consumer, KafkaException, TopicPartition  # noqa: PLC0415

    def noting(what: str):

        def assigned(consumer: object, partitions: list[TopicPartition]) -> None:
            notes.note(what, partitions=[p.partition for p in partitions])

        return assigned

    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": group,
            "enable.auto.commit": False,
            "auto.offset.reset": "earliest",
            "partition.assignment.strategy": STRATEGY,
            "session.timeout.ms": SESSION_MS,
            "heartbeat.interval.ms": 500,
            "reconnect.backoff.max.ms": 500,
        }
    )
    consumer.subscribe(
        [topic],
        on_assign=noting("assigned"),
        on_revoke=noting("revoked"),
        on_lost=noting("lost"),
    )
    while True:
        found = [each for each in consumer.consume(100, 0.5) if each.error() is None]
        ends = notes.read((each.partition(), each.offset()) for each in found)
        if ends:
            offsets = [TopicPartition(topic, p, o) for p, o in ends.items()]
            try:
                consumer.commit(offsets=offsets, asynchronous=False)
            except KafkaException as error:
                notes.note("refused", why=str(error))
            else:
                notes.note("committed", ends=ends)


if __name__ == "__main__":
    kind, *names, file = sys.argv[1:]
    if kind == "ours":
        asyncio.run(ours(*names, Notes(file)))
    else:
        librdkafka(*names, Notes(file))
