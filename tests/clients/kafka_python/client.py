"""kafka-python, told what to do by a plan; see rounds.py."""

import pathlib
import sys
import time
from typing import Any

import kafka
from kafka import KafkaAdminClient, KafkaConsumer, KafkaProducer, TopicPartition
from kafka.admin import NewTopic

sys.path.append(str(pathlib.Path(__file__).resolve().parents[1]))

from program import headers_in, main, record_out, to_bytes


def round_trips(bootstrap: str, plan: dict[str, Any]) -> dict[str, Any]:
    return {"rounds": [round_trip(bootstrap, each) for each in plan["rounds"]]}


def round_trip(bootstrap: str, asked: dict[str, Any]) -> dict[str, Any]:
    topic, partitions = asked["topic"], asked["partitions"]
    admin = KafkaAdminClient(bootstrap_servers=bootstrap)
    admin.create_topics([NewTopic(topic, partitions, 1)])
    admin.close()
    sent = produce(bootstrap, asked)
    return {"topic": topic, "sent": sent, **consume(bootstrap, topic, partitions, len(sent))}


def produce(bootstrap: str, asked: dict[str, Any]) -> list[list[int | None]]:
    producer = KafkaProducer(
        bootstrap_servers=bootstrap,
        compression_type=None if asked["codec"] == "none" else asked["codec"],
        acks=asked["acks"] if asked["acks"] == "all" else int(asked["acks"]),
        enable_idempotence=asked["idempotent"],
        linger_ms=5,
    )
    futures = [
        producer.send(
            asked["topic"],
            to_bytes(record["value"]),
            to_bytes(record["key"]),
            headers_in(record),
            record["partition"],
            record["timestamp"],
        )
        for record in asked["records"]
    ]
    producer.flush(30)
    done = [future.get(30) for future in futures]
    producer.close()
    return [[m.partition, None if asked["acks"] == "0" else m.offset] for m in done]


def consume(bootstrap: str, topic: str, partitions: int, count: int) -> dict[str, Any]:
    consumer = KafkaConsumer(
        bootstrap_servers=bootstrap, enable_auto_commit=False, auto_offset_reset="none"
    )
    assigned = [TopicPartition(topic, p) for p in range(partitions)]
    consumer.assign(assigned)
    consumer.seek_to_beginning(*assigned)
    read: list[dict[str, Any]] = []
    deadline = time.monotonic() + 30
    while len(read) < count and time.monotonic() < deadline:
        for records in consumer.poll(500).values():
            read += [
                record_out((r.partition, r.offset), r.timestamp, r.key, r.value, r.headers)
                for r in records
            ]
    ends = {p.partition: end for p, end in consumer.end_offsets(assigned).items()}
    consumer.close()
    return {"read": read, "ends": ends}


if __name__ == "__main__":
    main(f"kafka-python {kafka.__version__}", {"round_trips": round_trips})
