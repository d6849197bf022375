"""How fast logs are cleaned, and the effect on the latency of the broker's clients.

    ./run bench cleaner [--megabytes 50] [--keys 100000] [--seconds 10]

First one round over a log of records of 100 bytes, without a broker, for each codec: megabytes of
log and records a second. Then a broker with a dirty log: the latency of sequential requests of one
record on another topic; with the cleaner idle, and while it cleans.

One JSON line is appended to bench/results/cleaner.jsonl.
"""

import pathlib
import random
import statistics
import tempfile
import time
from typing import Any

import click
from kit import machine, raw
from kit.results import keep_result
from kit.small_requests import ACKS_ALL, error_of, receive_frame, request
from kit.targets import Odradek

from odradek.cli.main import run as odradek
from odradek.log.cleaning.round import CleaningJob, CleaningOutcome, SourceSegment, cleaning
from odradek.log.system.disk import RealDisk
from odradek.record.compression import Codec
from odradek.record.records import Record, build_batch
from odradek.wire.codec import encoder
from odradek.wire.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData

RECORD_BYTES, RECORDS_A_BATCH = 80, 150
SEGMENT_BYTES = 10_000_000
CODECS = (Codec.NONE, Codec.LZ4, Codec.ZSTD)


def batches(size_bytes: int, keys: int, codec: Codec) -> Any:
    """Batches with uniformly random keys, up to this size."""
    rng, offset, written = random.Random(1), 0, 0
    while written < size_bytes:
        records = [
            Record(b"key-%08d" % rng.randrange(keys), rng.randbytes(8) * (RECORD_BYTES // 8), 1)
            for _ in range(RECORDS_A_BATCH)
        ]
        batch = bytes(build_batch(records, base_offset=offset, codec=codec))
        yield batch
        offset += RECORDS_A_BATCH
        written += len(batch)


def clean_alone(directory: pathlib.Path, size_bytes: int, keys: int, codec: Codec) -> Any:
    """One round: megabytes and records a second, and the share that was kept."""
    disk = RealDisk(call_soon=lambda callback, *arguments: callback(*arguments))
    log = directory / f"{0:020d}.log"
    data = b"".join(batches(size_bytes, keys, codec))
    log.write_bytes(data)
    job = CleaningJob(
        directory=str(directory), segments=(SourceSegment(0, len(data)),), first_dirty_offset=0,
        end_offset=1 << 40, aborted=(), producers={}, wall_ms=1, delete_retention_ms=0,
        segment_bytes=1 << 30, segment_index_bytes=10 << 20, index_interval_bytes=4096,
        map_bytes=120_000_000,
    )  # fmt: skip
    begun_s = time.monotonic()
    steps = cleaning(job, disk)
    while True:
        try:
            next(steps)
        except StopIteration as stop:
            outcome: CleaningOutcome = stop.value
            break
    took_s = time.monotonic() - begun_s
    return {
        "mb_s": len(data) / took_s / 1e6,
        "records_s": outcome.counts.records_read / took_s,
        "kept": outcome.counts.records_kept / outcome.counts.records_read,
    }


def latencies_ms(address: str, until: Any) -> list[float]:
    """The latencies of sequential requests of one record, until `until` is set."""
    frame = request("small", 0, ACKS_ALL)
    found = []
    with raw.connect(address) as connection:
        while not until():
            begun_s = time.perf_counter()
            connection.sendall(frame)
            if error_code := error_of(receive_frame(connection), "small"):
                raise RuntimeError(f"the broker answers error {error_code}")
            found.append((time.perf_counter() - begun_s) * 1000)
    return found


def broker_meanwhile(size_bytes: int, keys: int, seconds: float) -> dict[str, float]:
    """The latencies with the cleaner idle, and while it cleans."""
    with tempfile.TemporaryDirectory(prefix="odradek-bench-") as folder:
        home = pathlib.Path(folder) / "odradek"
        target = Odradek(home, properties={"log.cleaner.backoff.ms": "100"})
        target.start()
        try:
            address = target.bootstrap
            raw.create_topic(address, "small", 1)
            options = ["--bootstrap-server", address]
            configs = ["cleanup.policy=compact", f"segment.bytes={SEGMENT_BYTES}",
                       "min.cleanable.dirty.ratio=1"]  # fmt: skip
            given = [part for config in configs for part in ("--config", config)]
            odradek(["topics", *options, "--create", "--topic", "dirty", *given])
            fill(address, size_bytes, keys)
            begun_s = time.monotonic()
            idle = latencies_ms(address, lambda: time.monotonic() - begun_s > seconds)
            odradek(["configs", *options, "--alter", "--entity-type", "topics", "--entity-name",
                     "dirty", "--add-config", "min.cleanable.dirty.ratio=0.01"])  # fmt: skip
            begun_s = time.monotonic()
            busy = latencies_ms(address, lambda: is_clean(home) or time.monotonic() - begun_s > 120)
            return {
                "idle_p50_ms": statistics.median(idle),
                "idle_p99_ms": statistics.quantiles(idle, n=100)[98],
                "cleaning_p50_ms": statistics.median(busy),
                "cleaning_p99_ms": statistics.quantiles(busy, n=100)[98],
                "cleaning_max_ms": max(busy),
                "cleaning_s": time.monotonic() - begun_s,
            }
        finally:
            target.end()


def fill(address: str, size_bytes: int, keys: int) -> None:
    """Write a log that has to be cleaned."""
    encode = encoder(ProduceRequest, 8)
    with raw.connect(address) as connection:
        for batch in batches(size_bytes, keys, Codec.NONE):
            fresh = b"\0" * 8 + batch[8:]
            data = TopicProduceData(
                name="dirty",
                partition_data=[PartitionProduceData(index=0, records=memoryview(fresh))],
            )
            message = ProduceRequest(acks=1, timeout_ms=30_000, topic_data=[data])
            connection.sendall(raw.frame(0, 8, encode(message)))
            receive_frame(connection)


def is_clean(home: pathlib.Path) -> bool:
    """Whether the cleaner's checkpoint covers the log."""
    found = list(home.rglob("cleaner-offset-checkpoint"))
    return any("dirty 0 " in path.read_text() for path in found)


@click.command(help=(__doc__ or "").partition("\n")[0])
@click.option("--megabytes", default=50, show_default=True, help="Of the log that is cleaned.")
@click.option("--keys", default=100_000, show_default=True, help="How many different ones.")
@click.option("--seconds", default=10.0, show_default=True, help="Of requests without cleaning.")
def main(*, megabytes: int, keys: int, seconds: float) -> None:
    """Measure, append to the results, print."""
    result: dict[str, Any] = {
        "machine": machine.describe(),
        "megabytes": megabytes,
        "keys": keys,
    }
    for codec in CODECS:
        with tempfile.TemporaryDirectory(prefix="odradek-bench-") as folder:
            figures = clean_alone(pathlib.Path(folder), megabytes * 1_000_000, keys, codec)
        result[codec.name.lower()] = {key: round(value, 3) for key, value in figures.items()}
        print(f"{codec.name.lower():5} {figures['mb_s']:7.1f} MB/s {figures['records_s']:10,.0f} "
              f"records/s, {figures['kept']:.0%} kept")  # fmt: skip
    meanwhile = broker_meanwhile(megabytes * 1_000_000, keys, seconds)
    result |= {key: round(value, 3) for key, value in meanwhile.items()}
    for key, value in meanwhile.items():
        name, _, unit = key.rpartition("_")
        print(f"{name.replace('_', ' '):14} {value:8.2f} {unit}")
    keep_result("cleaner", result)


if __name__ == "__main__":
    main()
