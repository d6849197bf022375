"""Apache Kafka's own classes read the batches that we build, with every codec and level."""

import pathlib
import subprocess

import fetch
import pytest

from odradek.record.compression import Codec, Levels
from odradek.record.records import Record, build_batch

ORACLE = pathlib.Path(__file__).parents[1] / "oracle" / "record" / "KafkaOracle.java"

RECORDS = [
    Record(
        key=None if i % 4 == 0 else b"k%d" % i,
        value=None if i % 9 == 0 else bytes(range(256)) * (i % 40) + b"v" * i * 30,
        timestamp=1_700_000_000_000 - i * 1000,
        headers=(("h", b"\x00\xff"), ("none", None)) if i % 3 else (),
    )
    for i in range(200)
]


def in_hex(data):
    return "null" if data is None else f"x{data.hex()}"


def as_the_oracle_prints(offset, record):
    headers = "".join(f" {key}={in_hex(value)}" for key, value in record.headers)
    return f"{offset} {record.timestamp} {in_hex(record.key)} {in_hex(record.value)}{headers}"


@pytest.mark.jvm
def test_kafka_reads_what_we_wrote_with_every_codec_and_level(tmp_path):
    levels = [Levels(), Levels(gzip=1, lz4=1, zstd=-5), Levels(gzip=9, lz4=17, zstd=22)]
    for codec in Codec:
        for number, level in enumerate(levels):
            batch = build_batch(RECORDS, base_offset=70, codec=codec, levels=level)
            (tmp_path / f"{codec.name}-{number}.batch").write_bytes(batch)

    command = fetch.java_class("3.9", ORACLE, "read", str(tmp_path))
    done = subprocess.run(command, capture_output=True, text=True, check=True, timeout=120)

    expected = [as_the_oracle_prints(70 + i, record) for i, record in enumerate(RECORDS)]
    read = done.stdout.split("# ")[1:]
    assert len(read) == len(Codec) * len(levels)
    for section in read:
        name, *lines = section.splitlines()
        assert lines == expected, name
