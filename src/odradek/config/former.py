"""Options of brokers that Kafka 0.8 to 2.8 had and 3.9 does not, and what to use instead."""

from collections.abc import Mapping
from typing import Final

_QUOTAS: Final = "kafka-configs --entity-type clients --entity-default --add-config "
# From books and old files. The second is "" where nothing took its place.
FORMER_OPTIONS: Final[Mapping[str, str]] = {
    "advertised.host.name": "advertised.listeners",
    "advertised.port": "advertised.listeners",
    "controller.message.queue.size": "",
    "host.name": "listeners",
    "log.cleanup.interval.mins": "log.retention.check.interval.ms",
    "log.delete.delay.ms": "log.segment.delete.delay.ms",
    "log.flush.interval.ms.per.topic": "flush.ms of the topic",
    "log.retention.bytes.per.topic": "retention.bytes of the topic",
    "log.retention.hours.per.topic": "retention.ms of the topic",
    "log.roll.hours.per.topic": "segment.ms of the topic",
    "log.segment.bytes.per.topic": "segment.bytes of the topic",
    "port": "listeners",
    "quota.consumer.default": _QUOTAS + "consumer_byte_rate=...",
    "quota.producer.default": _QUOTAS + "producer_byte_rate=...",
    "replica.lag.max.messages": "replica.lag.time.max.ms",
    "zookeeper.sync.time.ms": "",
}


def former_option(name: str) -> str | None:
    """What to say about an option of former versions; None if there was none of this name."""
    if name not in FORMER_OPTIONS:
        return None
    successor = FORMER_OPTIONS[name]
    return f"use {successor}" if successor else "nothing has taken its place"
