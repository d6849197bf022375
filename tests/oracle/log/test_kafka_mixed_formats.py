"""Opens a log that Apache Kafka 3.9.2 wrote in formats v0, v1 and v2, and compares all records.

`kafka_3_9_mixed.zip` has a partition's directory twice: as kill -9 left it, and after Kafka's next
clean stop; and what Kafka's console consumer read of it. The broker had
inter.broker.protocol.version=2.8, so the topic's message.format.version counts: it was lowered and
raised nine times, between 2.8, 0.10.2 and 0.9.0, with all codecs and both timestamp types. The
topic: segment.bytes=1500, index.interval.bytes=300. Recovery point of the killed broker: 78.
"""

import pathlib
import re
import zipfile

import pytest
from tests.unit.log.conftest import DIRECTORY, World

from odradek.log.log_config import LogConfig
from odradek.record.records import iter_records

RECORDED = pathlib.Path(__file__).parent / "kafka_3_9_mixed.zip"
CONFIG = LogConfig(segment_bytes=1500, index_interval_bytes=300)
KAFKAS_LINE = re.compile(r"(\w+)(?::(\d+))?\tOffset:(\d+)\t(\w+)\t(.*)")
TIMESTAMP_TYPES = {"NO_TIMESTAMP": -1, "CreateTime": 0, "LogAppendTime": 1}
END = 92


def loaded(state, **checkpointed):
    world = World()
    world.config = CONFIG
    world.disk.mkdir(DIRECTORY)
    with zipfile.ZipFile(RECORDED) as archive:
        for name in archive.namelist():
            if name.startswith(f"{state}/"):
                file = world.disk.create(f"{DIRECTORY}/{name.partition('/')[2]}")
                file.write(0, (archive.read(name),))
    world.load(clean=state == "clean", high_watermark=END, **checkpointed)
    return world


def read_by_kafka():
    with zipfile.ZipFile(RECORDED) as archive:
        lines = archive.read("read.txt").decode().splitlines()
    found = []
    for line in lines:
        kind, timestamp, offset, key, value = KAFKAS_LINE.fullmatch(line).groups()
        stamp = int(timestamp) if timestamp else -1
        found.append((int(offset), TIMESTAMP_TYPES[kind], stamp, key.encode(), value.encode()))
    return found


def read(log):
    found = []
    for segment in log.segments:
        for position, header in segment.walk(0):
            kind = -1 if header.max_timestamp < 0 else int(header.timestamp_type)
            batch = bytes(segment.read(position, header.size_bytes, wait=True))
            found += [(r.offset, kind, r.timestamp, r.key, r.value) for r in iter_records(batch)]
    return found


@pytest.mark.parametrize(
    ("state", "checkpointed"),
    [("clean", {}), ("unclean", {"recovery_point": 78}), ("unclean", {})],
)
def test_every_record_is_read_as_kafka_reads_it(state, checkpointed):
    log = loaded(state, **checkpointed).log

    assert (log.log_start_offset, log.leo) == (0, END)
    assert read(log) == read_by_kafka()
    log.validate()


@pytest.mark.parametrize("state", ["clean", "unclean"])
def test_offsets_by_time_and_the_producers_are_those_of_kafka(state):
    log = loaded(state).log
    records = read_by_kafka()
    times = sorted({timestamp for _, _, timestamp, _, _ in records})

    for time in times:
        first = next(offset for offset, _, stamp, _, _ in records if stamp >= time)
        assert log.offset_for_timestamp(time).offset == first
    # One idempotent producer for each time that the format was 2.8.
    assert [producer.last_offset for producer in log.active_producers()] == [7, 33, 59, 79, 91]


def test_the_log_goes_on_and_is_loaded_again_without_another_search():
    world = loaded("clean")
    world.append(b"new", epoch=1)
    log = world.load(clean=False, recovery_point=END, format_2_below=END)

    assert log.leo == END + 1
    assert [offset for offset, *_ in read(log)] == list(range(END + 1))
