"""The plans for clients of former years, and the checks of their reports.

Each round is a topic that a client of today has written to, in record format v2 with headers. The
old client appends its own records, and reads everything in two runs of one group: the first run
commits in the middle, the second one continues at the committed offsets.

    PROGRAM BOOTSTRAP SCENARIO FILE     as in rounds.py

The plan is `{"version": ..., "zookeeper": ..., "rounds": [round...]}`: `version` is the version
of Kafka whose protocol the client is configured for, if it can be. A round has the fields of
rounds.py, and `group`, `total` (the number of records in the topic at the end) and `first` (how
many of them the first run reads). A report's round has `sent`, `read` and `ends` of rounds.py, and

    committed    the committed offsets that the second run fetches, of each partition; of one from
                 which the first run has read nothing any number

A client that has no timestamps reports -1, one that has no headers none, and one that is not sent
the offsets of its records null.
"""

import json
import random
import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any, Final

import rounds
from confluent_kafka import (
    OFFSET_BEGINNING,
    TIMESTAMP_NOT_AVAILABLE,
    Consumer,
    Producer,
    TopicPartition,
)
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic
from program import to_text
from rounds import PARTITIONS, Record, Round

MANY: Final = 3000
NO_TIMESTAMP: Final = -1


@dataclass(frozen=True, slots=True, kw_only=True)
class Abilities:
    """What a client and the protocol that it uses can do."""

    codecs: tuple[str, ...] = ("none", "gzip", "snappy", "lz4")
    timestamps: bool = True
    headers: bool = False
    offsets: bool = True  # it reports the offsets of what it has sent
    null_header_values: bool = True


def old_rounds(prefix: str, able: Abilities) -> list[Round]:
    """Each codec with acks=all, each acks without a codec, and one round with many records."""
    kinds = [(codec, "all") for codec in able.codecs] + [("none", "1"), ("none", "0")]
    asked = [
        Round(
            topic=f"{prefix}-{codec}-{acks}",
            codec=codec,
            acks=acks,
            idempotent=False,
            records=tuple(_sendable(number, able)),
            there=tuple(
                rounds.usual_records(100 + number, null_header_values=able.null_header_values)
            ),
        )
        for number, (codec, acks) in enumerate(kinds)
    ]
    codec = "gzip" if "gzip" in able.codecs else able.codecs[-1]
    return [*asked, replace(asked[0], topic=f"{prefix}-many", codec=codec, records=_many(able))]


def _sendable(seed: int, able: Abilities) -> Iterator[Record]:
    for record in rounds.usual_records(seed, null_header_values=able.null_header_values):
        yield _as_kept(record, able)


def _many(able: Abilities) -> tuple[Record, ...]:
    chance = random.Random(MANY)
    now_ms = int(time.time() * 1000) - 60_000
    return tuple(
        _as_kept(Record(n % PARTITIONS, now_ms + n, b"%d" % n, chance.randbytes(n % 90), ()), able)
        for n in range(MANY)
    )


def _as_kept(record: Record, able: Abilities) -> Record:
    """As a record is after the client has sent it or read it."""
    return record._replace(
        timestamp_ms=record.timestamp_ms if able.timestamps else NO_TIMESTAMP,
        headers=record.headers if able.headers else (),
    )


def write_beforehand(bootstrap: str, asked: list[Round]) -> None:
    """Create the topics, and write what a client of today has written to them."""
    admin = AdminClient({"bootstrap.servers": bootstrap})
    for future in admin.create_topics(
        [NewTopic(each.topic, PARTITIONS, 1) for each in asked]
    ).values():
        future.result(60)
    for each in asked:
        codec = {"compression.codec": each.codec, "linger.ms": 5, "partitioner": "consistent"}
        producer = Producer({"bootstrap.servers": bootstrap, **codec})
        for record in each.there:
            producer.produce(
                each.topic, record.value, record.key, record.partition,
                timestamp=record.timestamp_ms, headers=list(record.headers),
            )  # fmt: skip
        assert producer.flush(60) == 0


def plan(asked: list[Round], version: str, zookeeper: str) -> str:
    """The JSON that a program is given."""
    made = json.loads(rounds.plan(asked))
    for each, item in zip(asked, made["rounds"], strict=True):
        total = len(each.there) + len(each.records)
        item |= {"group": f"{each.topic}-group", "total": total, "first": total * 2 // 3}
    return json.dumps({**made, "version": version, "zookeeper": zookeeper})


def problems(asked: Round, seen: dict[str, Any], able: Abilities) -> Iterator[str]:
    """The faults in a program's report on a round; empty if there are none."""
    wanted = replace(asked, there=tuple(_as_kept(record, able) for record in asked.there))
    if not able.offsets:
        wanted = replace(wanted, acks="0")
    yield from rounds.problems(wanted, seen)
    first = (len(asked.there) + len(asked.records)) * 2 // 3
    counts = Counter(item["partition"] for item in seen["read"][:first])
    committed = {str(partition): count for partition, count in counts.items()}
    found = {partition: seen["committed"][partition] for partition in committed}
    if found != committed:
        yield f"committed offsets: {found}, not {committed}"


def read_afterwards(bootstrap: str, asked: Round) -> dict[str, Any]:
    """The report that a client of today gives of the whole topic."""
    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": "today",
            "enable.auto.commit": False,
            "enable.partition.eof": True,
            "check.crcs": True,
        }
    )
    consumer.assign([TopicPartition(asked.topic, p, OFFSET_BEGINNING) for p in range(PARTITIONS)])
    read, ends = [], 0
    while ends < PARTITIONS:
        message = consumer.poll(60)
        assert message is not None
        if message.error() is not None:
            ends += 1
            continue
        kind, timestamp_ms = message.timestamp()
        read.append(
            {
                "partition": message.partition(),
                "offset": message.offset(),
                "timestamp": NO_TIMESTAMP if kind == TIMESTAMP_NOT_AVAILABLE else timestamp_ms,
                "key": to_text(message.key()),
                "value": to_text(message.value()),
                "headers": [[name, to_text(data)] for name, data in message.headers() or ()],
            }
        )
    consumer.close()
    ends_of = Counter(str(item["partition"]) for item in read)
    return {"sent": None, "read": read, "ends": ends_of}


def problems_afterwards(asked: Round, seen: dict[str, Any]) -> Iterator[str]:
    """What a client of today reads must be what it and the old client have sent."""
    yield from rounds.problems(replace(asked, acks="0"), seen)
