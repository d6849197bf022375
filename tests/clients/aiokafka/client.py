"""aiokafka, told what to do by a plan; see rounds.py."""

import asyncio
import pathlib
import sys
from typing import Any

import aiokafka
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, TopicPartition
from aiokafka.admin import AIOKafkaAdminClient, NewTopic

sys.path.append(str(pathlib.Path(__file__).resolve().parents[1]))

from program import headers_in, main, record_out, to_bytes


def round_trips(bootstrap: str, plan: dict[str, Any]) -> dict[str, Any]:
    async def one_by_one() -> list[dict[str, Any]]:
        return [await round_trip(bootstrap, each) for each in plan["rounds"]]

    return {"rounds": asyncio.run(one_by_one())}


async def round_trip(bootstrap: str, asked: dict[str, Any]) -> dict[str, Any]:
    topic, partitions = asked["topic"], asked["partitions"]
    admin = AIOKafkaAdminClient(bootstrap_servers=bootstrap)
    await admin.start()
    await admin.create_topics([NewTopic(topic, partitions, 1)])
    await admin.close()
    sent = await produce(bootstrap, asked)
    return {"topic": topic, "sent": sent, **await consume(bootstrap, topic, partitions, len(sent))}


async def produce(bootstrap: str, asked: dict[str, Any]) -> list[list[int | None]]:
    producer = AIOKafkaProducer(
        bootstrap_servers=bootstrap,
        compression_type=None if asked["codec"] == "none" else asked["codec"],
        acks=asked["acks"] if asked["acks"] == "all" else int(asked["acks"]),
        enable_idempotence=asked["idempotent"],
        linger_ms=5,
    )
    await producer.start()
    futures = [
        await producer.send(
            asked["topic"],
            to_bytes(record["value"]),
            to_bytes(record["key"]),
            record["partition"],
            record["timestamp"],
            headers_in(record),
        )
        for record in asked["records"]
    ]
    done = await asyncio.wait_for(asyncio.gather(*futures), 30)
    await producer.stop()
    if asked["acks"] == "0":
        return [[record["partition"], None] for record in asked["records"]]
    return [[m.partition, m.offset] for m in done]


async def consume(bootstrap: str, topic: str, partitions: int, count: int) -> dict[str, Any]:
    consumer = AIOKafkaConsumer(
        bootstrap_servers=bootstrap, enable_auto_commit=False, auto_offset_reset="none"
    )
    await consumer.start()
    assigned = [TopicPartition(topic, p) for p in range(partitions)]
    consumer.assign(assigned)
    await consumer.seek_to_beginning(*assigned)
    read: list[dict[str, Any]] = []
    deadline = asyncio.get_running_loop().time() + 30
    while len(read) < count and asyncio.get_running_loop().time() < deadline:
        for records in (await consumer.getmany(timeout_ms=500)).values():
            read += [
                record_out((r.partition, r.offset), r.timestamp, r.key, r.value, r.headers)
                for r in records
            ]
    ends = {p.partition: end for p, end in (await consumer.end_offsets(assigned)).items()}
    await consumer.stop()
    return {"read": read, "ends": ends}


if __name__ == "__main__":
    main(f"aiokafka {aiokafka.__version__}", {"round_trips": round_trips})
