"""How long librdkafka's producer gets no acknowledgement: its own defaults, a record every 3 ms.

    python -m kit.librdkafka_outage BOOTSTRAP TOPIC PARTITION,PARTITION...

It prints `ready` when all partitions have been written to, continues until its standard input ends,
and then prints one line of JSON: the longest time between two acknowledgements, of each partition.
"""

import json
import sys
import threading
import time
from collections.abc import Callable, Hashable, Mapping
from itertools import pairwise
from typing import Any, Final, TypeVar

from confluent_kafka import KafkaError, Message, Producer

PAUSE_S: Final = 0.003
What = TypeVar("What", bound=Hashable)


def gaps_ms(acknowledged: Mapping[What, list[float]], until_s: float) -> dict[What, float]:
    """The longest time between two acknowledgements, by partition, or after the last one."""
    return {
        what: max((after - before) * 1000 for before, after in pairwise([*times, until_s]))
        for what, times in acknowledged.items()
    }


def main(bootstrap: str, topic: str, partitions: list[int]) -> None:
    """Produce until the standard input ends."""
    acknowledged: dict[int, list[float]] = {partition: [] for partition in partitions}
    ended = threading.Event()

    def delivered(partition: int) -> Callable[[KafkaError | None, Message], None]:
        def note(error: KafkaError | None, _: Message) -> None:
            if error is None:
                acknowledged[partition].append(time.monotonic())

        return note

    threading.Thread(target=lambda: (sys.stdin.read(), ended.set()), daemon=True).start()
    settings: dict[str, Any] = {"bootstrap.servers": bootstrap}
    producer = Producer(settings, logger=None)
    is_ready = False
    while not ended.is_set():
        for partition in partitions:
            producer.produce(
                topic, b"x" * 100, partition=partition, on_delivery=delivered(partition)
            )
        producer.poll(PAUSE_S)
        if not is_ready and all(acknowledged.values()):
            is_ready = True
            print("ready", flush=True)
    until_s = time.monotonic()
    producer.flush(30)
    print(json.dumps({"gaps_ms": gaps_ms(acknowledged, until_s)}))


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], [int(part) for part in sys.argv[3].split(",")])
