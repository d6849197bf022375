"""The client program of kafka-python 1.4, driven by a plan; see old/rounds.py."""

import pathlib
import sys
import time
from typing import Any

import kafka
from kafka import KafkaConsumer, KafkaProducer, TopicPartition
from kafka.structs import OffsetAndMetadata

sys.path.append(str(pathlib.Path(__file__).resolve().parents[1]))

from program import headers_in, main, record_out, to_bytes

WITH_GROUPS = (0, 9)
WITH_TIMESTAMPS = (0, 10)
WITH_HEADERS = (0, 11)


def round_trips(bootstrap: str, plan: dict[str, Any]) -> dict[str, Any]:
    version = tuple(int(part) for part in plan["version"].split("."))
    return {"rounds": [round_trip(bootstrap, version, each) for each in plan["rounds"]]}


def round_trip(bootstrap: str, version: tuple[int, ...], asked: dict[str, Any]) -> dict[str, Any]:
    sent = produce(bootstrap, version, asked)
    first, total = asked["first"], asked["total"]
    assigned = [TopicPartition(asked["topic"], p) for p in range(asked["partitions"])]
    consumer = member(bootstrap, version, asked)
    records = poll(consumer, first)
    places = {TopicPartition(asked["topic"], r.partition): r.offset + 1 for r in records}
    consumer.commit({p: OffsetAndMetadata(offset, "") for p, offset in places.items()})
    consumer.close()
    consumer = member(bootstrap, version, asked)
    committed = {p.partition: consumer.committed(p) for p in assigned}
    records += poll(consumer, total - first)
    consumer.close()
    consumer = KafkaConsumer(bootstrap_servers=bootstrap, api_version=version)
    ends = {p.partition: end for p, end in consumer.end_offsets(assigned).items()}
    consumer.close()
    read = [
        record_out(
            (r.partition, r.offset),
            -1 if r.timestamp is None else r.timestamp,
            r.key,
            r.value,
            r.headers,
        )
        for r in records
    ]
    return {
        "topic": asked["topic"], "sent": sent, "read": read, "committed": committed, "ends": ends,
    }  # fmt: skip


def produce(
    bootstrap: str, version: tuple[int, ...], asked: dict[str, Any]
) -> list[list[int | None]]:
    producer = KafkaProducer(
        bootstrap_servers=bootstrap,
        api_version=version,
        compression_type=None if asked["codec"] == "none" else asked["codec"],
        acks=asked["acks"] if asked["acks"] == "all" else int(asked["acks"]),
        linger_ms=5,
    )
    futures = [
        producer.send(
            asked["topic"],
            to_bytes(record["value"]),
            to_bytes(record["key"]),
            headers_in(record) if version >= WITH_HEADERS else None,
            record["partition"],
            record["timestamp"] if version >= WITH_TIMESTAMPS else None,
        )
        for record in asked["records"]
    ]
    producer.flush(30)
    done = [future.get(30) for future in futures]
    producer.close()
    return [[m.partition, None if asked["acks"] == "0" else m.offset] for m in done]


def member(bootstrap: str, version: tuple[int, ...], asked: dict[str, Any]) -> Any:
    """A member of the group; before groups had members, a consumer of all partitions."""
    consumer = KafkaConsumer(
        bootstrap_servers=bootstrap,
        api_version=version,
        group_id=asked["group"],
        enable_auto_commit=False,
        auto_offset_reset="earliest",
        fetch_max_wait_ms=100,
    )
    if version >= WITH_GROUPS:
        consumer.subscribe([asked["topic"]])
    else:
        consumer.assign([TopicPartition(asked["topic"], p) for p in range(asked["partitions"])])
    return consumer


def poll(consumer: Any, count: int) -> list[Any]:
    """So many records, or those that arrive within thirty seconds."""
    found: list[Any] = []
    deadline = time.monotonic() + 30
    while len(found) < count and time.monotonic() < deadline:
        for records in consumer.poll(200, max_records=count - len(found)).values():
            found += records
    return found


if __name__ == "__main__":
    main(f"kafka-python {kafka.__version__}", {"round_trips": round_trips})
