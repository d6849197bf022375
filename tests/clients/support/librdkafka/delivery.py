"""Sends a plan's records with a producer of confluent-kafka, for both programs here."""

from typing import Any

from confluent_kafka import Message, Producer
from program import headers_in, to_bytes

TIMEOUT_S = 30


def deliver(producer: Producer, asked: dict[str, Any]) -> list[list[int | None]]:
    """Send all records of a round, and wait. Returns partition and offset of each.

    The offset is None without acknowledgements. A negative timestamp is that of the present.

    Raises:
        RuntimeError: a record was not delivered.
    """
    records = asked["records"]
    sent: list[list[int | None]] = [[] for _ in records]
    for n, record in enumerate(records):

        def delivered(error: Any, message: Message, n: int = n) -> None:
            if error is not None:
                raise RuntimeError(f"record {n}: {error}")
            offset = message.offset()
            sent[n] = [message.partition(), None if asked["acks"] == "0" else offset]

        producer.produce(
            asked["topic"],
            to_bytes(record["value"]),
            to_bytes(record["key"]),
            partition=record["partition"],
            on_delivery=delivered,
            timestamp=max(record["timestamp"], 0),
            headers=headers_in(record),
        )
    if left := producer.flush(TIMEOUT_S):
        raise RuntimeError(f"{left} records were not delivered")
    return sent
