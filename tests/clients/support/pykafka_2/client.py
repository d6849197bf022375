"""The client program of pykafka, driven by a plan; see old/rounds.py."""

import pathlib
import sys
from typing import Any

import pykafka
from pykafka.common import CompressionType, OffsetType

sys.path.append(str(pathlib.Path(__file__).resolve().parents[1]))

from program import main, record_out, to_bytes

ACKS = {"0": 0, "1": 1, "all": -1}
CODECS = {
    "none": CompressionType.NONE,
    "gzip": CompressionType.GZIP,
    "snappy": CompressionType.SNAPPY,
}
TIMEOUT_MS = 30_000


def round_trips(bootstrap: str, plan: dict[str, Any]) -> dict[str, Any]:
    client = pykafka.KafkaClient(hosts=bootstrap, broker_version=plan["version"])
    return {"rounds": [round_trip(client, each) for each in plan["rounds"]]}


def round_trip(client: Any, asked: dict[str, Any]) -> dict[str, Any]:
    topic = client.topics[asked["topic"]]
    produce(topic, asked)
    first, total = asked["first"], asked["total"]
    consumer = member(topic, asked)
    messages = poll(consumer, first)
    consumer.commit_offsets()
    consumer.stop()
    consumer = member(topic, asked)
    committed = {partition: found.offset for partition, found in consumer.fetch_offsets()}
    messages += poll(consumer, total - first)
    consumer.stop()
    latest = topic.latest_available_offsets()
    return {
        "topic": asked["topic"],
        "sent": None,
        "read": [
            record_out((m.partition_id, m.offset), -1, m.partition_key, m.value, ())
            for m in messages
        ],
        "committed": committed,
        "ends": {partition: found.offset[0] for partition, found in latest.items()},
    }


def produce(topic: Any, asked: dict[str, Any]) -> None:
    wanted = 0
    with topic.get_producer(
        compression=CODECS[asked["codec"]],
        required_acks=ACKS[asked["acks"]],
        partitioner=lambda partitions, _: next(p for p in partitions if p.id == wanted),
        linger_ms=5,
        min_queued_messages=20,
        delivery_reports=True,
    ) as producer:
        for record in asked["records"]:
            wanted = record["partition"]
            producer.produce(to_bytes(record["value"]), to_bytes(record["key"]))
        for _ in asked["records"]:
            _, error = producer.get_delivery_report(timeout=TIMEOUT_MS / 1000)
            if error is not None:
                raise error


def member(topic: Any, asked: dict[str, Any]) -> Any:
    return topic.get_simple_consumer(
        consumer_group=asked["group"],
        consumer_timeout_ms=TIMEOUT_MS,
        auto_offset_reset=OffsetType.EARLIEST,
        fetch_wait_max_ms=100,
    )


def poll(consumer: Any, count: int) -> list[Any]:
    """So many messages, or those that arrive before thirty seconds without one."""
    found: list[Any] = []
    while len(found) < count and (message := consumer.consume()) is not None:
        found.append(message)
    return found


if __name__ == "__main__":
    main(f"pykafka {pykafka.__version__}", {"round_trips": round_trips})
