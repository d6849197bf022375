"""Clients that try more than their quota, by librdkafka: what each of them gets.

    python -m kit.quota_clients ADDRESS SECONDS CLIENTS

CLIENTS is JSON: a list of clients, each with a `user`, a `client_id`, what it `does` ("produce" or
"consume"), and how many bytes a second it `tries`. All run at the same time. The address is that of
a SASL_PLAINTEXT listener with PLAIN. Prints the bytes a second that each got.
"""

import json
import sys
import threading
import time
from collections.abc import Callable
from typing import Any, Final

from confluent_kafka import Consumer, KafkaError, Message, Producer, TopicPartition

TOPICS: Final = {"produce": "written", "consume": "stream"}
RECORD_BYTES: Final = 10_000
# Between two looks at the clock.
_TURN_S: Final = 0.01


def password(user: str) -> str:
    """The password of each user of the brokers that are measured."""
    return f"{user}-secret"


def _settings(address: str, client: dict[str, Any]) -> dict[str, Any]:
    return {
        "bootstrap.servers": address,
        "client.id": client["client_id"],
        "security.protocol": "SASL_PLAINTEXT",
        "sasl.mechanism": "PLAIN",
        "sasl.username": client["user"],
        "sasl.password": password(client["user"]),
    }


def _produce(address: str, client: dict[str, Any], seconds: float) -> int:
    """The bytes that are acknowledged within the time."""
    buffered = {"queue.buffering.max.kbytes": 2_000, "linger.ms": 20, "acks": 1}
    producer = Producer({**_settings(address, client), **buffered})
    acknowledged = 0
    began_s = time.monotonic()

    def delivered(error: KafkaError | None, message: Message) -> None:
        nonlocal acknowledged
        if error is None and time.monotonic() - began_s < seconds:
            acknowledged += len(message.value() or b"")

    tried, record = 0, b"x" * RECORD_BYTES
    while (elapsed_s := time.monotonic() - began_s) < seconds:
        while tried < client["tries"] * elapsed_s:
            tried += RECORD_BYTES
            try:
                producer.produce(TOPICS["produce"], record, on_delivery=delivered)
            except BufferError:
                break
        producer.poll(_TURN_S)
    producer.purge()
    return acknowledged


def _consume(address: str, client: dict[str, Any], seconds: float) -> int:
    """The bytes that are read within the time."""
    fetched = {
        "group.id": "none",
        "enable.auto.commit": False,
        "queued.max.messages.kbytes": 256,
        "fetch.queue.backoff.ms": 10,
        "max.partition.fetch.bytes": 100_000,
    }
    consumer = Consumer({**_settings(address, client), **fetched})
    consumer.assign([TopicPartition(TOPICS["consume"], 0, 0)])
    read = 0
    began_s = time.monotonic()
    while (elapsed_s := time.monotonic() - began_s) < seconds:
        if read > client["tries"] * elapsed_s:
            time.sleep(_TURN_S)
            continue
        for message in consumer.consume(5, timeout=_TURN_S):
            if message.error():
                raise RuntimeError(str(message.error()))
            read += len(message.value() or b"")
    consumer.close()
    return read


_DOES: Final[dict[str, Callable[[str, dict[str, Any], float], int]]] = {
    "produce": _produce,
    "consume": _consume,
}


def run(address: str, seconds: float, clients: list[dict[str, Any]]) -> list[float]:
    """The bytes a second of each client."""
    found = [0.0] * len(clients)

    def one(place: int, client: dict[str, Any]) -> None:
        found[place] = _DOES[client["does"]](address, client, seconds) / seconds

    threads = [threading.Thread(target=one, args=each) for each in enumerate(clients)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return found


def main() -> None:
    address, seconds, clients = sys.argv[1:]
    rates = run(address, float(seconds), json.loads(clients))
    print(json.dumps({str(place): rate for place, rate in enumerate(rates)}))


if __name__ == "__main__":
    main()
