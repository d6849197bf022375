"""The client program of librdkafka that does not ask for a broker's versions; see old/rounds.py.

With `api.version.request=false` it uses the protocol of `broker.version.fallback`.
"""

import pathlib
import sys
import time
from typing import Any

import confluent_kafka
from confluent_kafka import (
    TIMESTAMP_NOT_AVAILABLE,
    Consumer,
    Message,
    Producer,
    TopicPartition,
)

sys.path.append(str(pathlib.Path(__file__).resolve().parents[1]))

from delivery import TIMEOUT_S, deliver
from program import main, record_out

WITHOUT_GROUPS = "0.8."


def round_trips(bootstrap: str, plan: dict[str, Any]) -> dict[str, Any]:
    servers = {
        "bootstrap.servers": bootstrap,
        "api.version.request": False,
        "broker.version.fallback": plan["version"],
        "log_level": 3,
    }
    return {"rounds": [round_trip(servers, each) for each in plan["rounds"]]}


def round_trip(servers: dict[str, Any], asked: dict[str, Any]) -> dict[str, Any]:
    sent = produce(servers, asked)
    first, total = asked["first"], asked["total"]
    assigned = [TopicPartition(asked["topic"], p) for p in range(asked["partitions"])]
    consumer = member(servers, asked)
    messages = poll(consumer, first)
    places = {m.partition(): m.offset() + 1 for m in messages}
    offsets = [TopicPartition(asked["topic"], p, offset) for p, offset in places.items()]
    consumer.commit(offsets=offsets, asynchronous=False)
    consumer.close()
    consumer = member(servers, asked)
    committed = {p.partition: p.offset for p in consumer.committed(assigned, TIMEOUT_S)}
    messages += poll(consumer, total - first)
    ends = {p.partition: consumer.get_watermark_offsets(p, TIMEOUT_S)[1] for p in assigned}
    consumer.close()
    read = [
        record_out((m.partition(), m.offset()), timestamp_ms(m), m.key(), m.value(), m.headers())
        for m in messages
    ]
    return {
        "topic": asked["topic"], "sent": sent, "read": read, "committed": committed, "ends": ends,
    }  # fmt: skip


def produce(servers: dict[str, Any], asked: dict[str, Any]) -> list[list[int | None]]:
    settings = {"compression.codec": asked["codec"], "acks": asked["acks"], "linger.ms": 5}
    return deliver(Producer({**servers, **settings}), asked)


def timestamp_ms(message: Message) -> int:
    kind, found_ms = message.timestamp()
    return -1 if kind == TIMESTAMP_NOT_AVAILABLE else found_ms


def member(servers: dict[str, Any], asked: dict[str, Any]) -> Consumer:
    """A member of the group; before groups had members, a consumer of all partitions."""
    settings = {
        "group.id": asked["group"],
        "enable.auto.commit": False,
        "auto.offset.reset": "earliest",
        "fetch.wait.max.ms": 50,
        "check.crcs": True,
    }
    consumer = Consumer({**servers, **settings})
    if servers["broker.version.fallback"].startswith(WITHOUT_GROUPS):
        assigned = [TopicPartition(asked["topic"], p) for p in range(asked["partitions"])]
        consumer.assign(assigned)
    else:
        consumer.subscribe([asked["topic"]])
    return consumer


def poll(consumer: Consumer, count: int) -> list[Message]:
    """So many records, or those that arrive within thirty seconds."""
    found: list[Message] = []
    deadline = time.monotonic() + TIMEOUT_S
    while len(found) < count and time.monotonic() < deadline:
        for message in consumer.consume(count - len(found), 0.1):
            if message.error():
                raise RuntimeError(str(message.error()))
            found.append(message)
    return found


if __name__ == "__main__":
    main(f"librdkafka {confluent_kafka.libversion()[0]}", {"round_trips": round_trips})
