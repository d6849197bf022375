"""librdkafka as producer and consumer, called by ctypes from confluent-kafka's wheel.

A produce() for each record from Python would measure Python. The C library inside the
wheel has calls for many records at once, so Python runs once in thousands of records and the
measurement is of librdkafka, as in a C program. Nothing is compiled.

    python -m kit.native produce BOOTSTRAP TOPIC PARTITIONS RECORDS RECORD_BYTES key=value...
    python -m kit.native consume BOOTSTRAP TOPIC PARTITIONS RECORDS key=value...
"""

import ctypes
import json
import pathlib
import resource
import sys
import time
from collections import deque
from typing import Any, Final

import confluent_kafka

_PRODUCER, _CONSUMER = 0, 1
_COPY, _BLOCK = 2, 4
_ANY_PARTITION: Final = -1
_BEGINNING: Final = -2
_AT_ONCE: Final = 1_000
_TIMEOUT_MS: Final = 60_000


class Message(ctypes.Structure):
    """The struct rd_kafka_message_t of librdkafka."""

    _fields_ = (
        ("err", ctypes.c_int),
        ("rkt", ctypes.c_void_p),
        ("partition", ctypes.c_int32),
        ("payload", ctypes.c_void_p),
        ("len", ctypes.c_size_t),
        ("key", ctypes.c_void_p),
        ("key_len", ctypes.c_size_t),
        ("offset", ctypes.c_int64),
        ("private", ctypes.c_void_p),
    )


def load() -> ctypes.CDLL:
    """Load the library in confluent-kafka's wheel."""
    package = pathlib.Path(confluent_kafka.__file__).parent
    folders = (package.with_name("confluent_kafka.libs"), package / ".dylibs")
    found = [path for folder in folders for path in folder.glob("librdkafka*")]
    if not found:
        raise RuntimeError("this build of confluent-kafka has no librdkafka beside it")
    library = ctypes.CDLL(str(found[0]))
    pointer, text, number = ctypes.c_void_p, ctypes.c_char_p, ctypes.c_int
    signatures: dict[str, tuple[Any, list[Any]]] = {
        "rd_kafka_conf_new": (pointer, []),
        "rd_kafka_conf_set": (number, [pointer, text, text, text, ctypes.c_size_t]),
        "rd_kafka_new": (pointer, [number, pointer, text, ctypes.c_size_t]),
        "rd_kafka_topic_new": (pointer, [pointer, text, pointer]),
        "rd_kafka_produce_batch": (
            number,
            [pointer, ctypes.c_int32, number, ctypes.POINTER(Message), number],
        ),
        "rd_kafka_flush": (number, [pointer, number]),
        "rd_kafka_outq_len": (number, [pointer]),
        "rd_kafka_query_watermark_offsets": (
            number,
            [pointer, text, ctypes.c_int32, *[ctypes.POINTER(ctypes.c_int64)] * 2, number],
        ),
        "rd_kafka_queue_new": (pointer, [pointer]),
        "rd_kafka_consume_start_queue": (
            number,
            [pointer, ctypes.c_int32, ctypes.c_int64, pointer],
        ),
        "rd_kafka_consume_batch_queue": (
            ctypes.c_ssize_t,
            [pointer, number, ctypes.POINTER(ctypes.c_void_p), ctypes.c_size_t],
        ),
        "rd_kafka_message_destroy": (None, [pointer]),
    }
    for name, (result, arguments) in signatures.items():
        function = getattr(library, name)
        function.restype, function.argtypes = result, arguments
    return library


class Handle:
    """A producer or consumer and its topic."""

    def __init__(self, kind: int, topic: str, options: dict[str, str]) -> None:
        self.library = load()
        self.topic_name = topic.encode()
        error = ctypes.create_string_buffer(512)
        conf = self.library.rd_kafka_conf_new()
        for key, value in options.items():
            if self.library.rd_kafka_conf_set(conf, key.encode(), value.encode(), error, 512):
                raise ValueError(error.value.decode())
        self.handle = self.library.rd_kafka_new(kind, conf, error, 512)
        if not self.handle:
            raise RuntimeError(error.value.decode())
        self.topic = self.library.rd_kafka_topic_new(self.handle, self.topic_name, None)

    def end_offset(self, partition: int) -> int:
        low, high = ctypes.c_int64(), ctypes.c_int64()
        error = self.library.rd_kafka_query_watermark_offsets(
            self.handle, self.topic_name, partition, low, high, _TIMEOUT_MS
        )
        if error:
            raise RuntimeError(f"librdkafka answers error {error} for partition {partition}")
        return high.value


def produce(
    topic: str, partitions: int, records: int, record_bytes: int, options: dict[str, str]
) -> float:
    """Produce and wait for every acknowledgement. Returns the seconds."""
    producer = Handle(_PRODUCER, topic, options)
    before = sum(producer.end_offset(p) for p in range(partitions))  # which also connects it
    payload = ctypes.create_string_buffer(b"x" * record_bytes, record_bytes)
    messages = (Message * _AT_ONCE)()
    for message in messages:
        message.payload = ctypes.addressof(payload)
        message.len = record_bytes
    send = producer.library.rd_kafka_produce_batch
    to = 0 if partitions == 1 else _ANY_PARTITION
    begun_s = time.perf_counter()
    left = records
    while left:
        count = min(left, _AT_ONCE)
        taken = send(producer.topic, to, _COPY | _BLOCK, messages, count)
        if taken != count:
            raise RuntimeError(f"librdkafka took {taken} of {count} records")
        left -= count
    if producer.library.rd_kafka_flush(producer.handle, _TIMEOUT_MS):
        raise RuntimeError("librdkafka could not deliver all records in time")
    seconds = time.perf_counter() - begun_s
    written = sum(producer.end_offset(p) for p in range(partitions)) - before
    if written != records:
        raise RuntimeError(f"{written} of {records} records are in the log")
    return seconds


def consume(topic: str, partitions: int, records: int, options: dict[str, str]) -> float:
    """Read `records` records from the beginning. Returns the seconds from start to last record.

    librdkafka's default waits a second with the next fetch when 100,000 records of a partition are
    in its queue. Both brokers fill it, so that the number of these pauses would be the result.
    """
    consumer = Handle(_CONSUMER, topic, {"fetch.queue.backoff.ms": "1", **options})
    library = consumer.library
    queue = library.rd_kafka_queue_new(consumer.handle)
    messages = (ctypes.c_void_p * _AT_ONCE)()
    destroy, fetch = library.rd_kafka_message_destroy, library.rd_kafka_consume_batch_queue
    begun_s = time.perf_counter()
    for partition in range(partitions):
        if library.rd_kafka_consume_start_queue(consumer.topic, partition, _BEGINNING, queue):
            raise RuntimeError(f"librdkafka does not start to read partition {partition}")
    read = 0
    while read < records:
        count = fetch(queue, 10_000, messages, _AT_ONCE)
        if count <= 0:
            raise RuntimeError(f"only {read} of {records} records came")
        first = Message.from_address(messages[0] or 0)
        if first.err:
            raise RuntimeError(f"librdkafka answers error {first.err} after {read} records")
        deque(map(destroy, messages[:count]), maxlen=0)
        read += count
    return time.perf_counter() - begun_s


def main() -> None:
    verb, bootstrap, topic, partitions, records, *rest = sys.argv[1:]
    record_bytes = int(rest.pop(0)) if verb == "produce" else 0
    options = {"bootstrap.servers": bootstrap, **dict(each.split("=", 1) for each in rest)}
    count = int(records)
    if verb == "produce":
        seconds = produce(topic, int(partitions), count, record_bytes, options)
    else:
        seconds = consume(topic, int(partitions), count, options)
    used = resource.getrusage(resource.RUSAGE_SELF)
    report = {
        "records_per_s": count / seconds,
        "seconds": seconds,
        "client_cpu_s": used.ru_utime + used.ru_stime,
    }
    print(json.dumps(report))


if __name__ == "__main__":
    main()
