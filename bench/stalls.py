"""How long one client can delay all others.

    ./run bench stalls [WORDS ...] [--seconds 4] [--elements 100000]

One attack after the other, each on a broker of its own, repeated for some seconds: large requests
of every API, pipelined fetches whose responses are not read, connections that are reset, record
batches that decompress to a thousand times their size, messages of former formats. A correct client
writes and reads small records meanwhile. A line for each attack: the longest time for which the
broker's event loop was busy (`odradek_loop_busy_ms_max`), the other client's p99 beside that
without an attack, and the growth of the broker's resident memory. WORDS choose the attacks whose
names contain one of them.

`*` marks a stall above 50 ms or a p99 above twice the quiet one; the second is more than one event
loop can promise (docs/decisions.md, "What can one event loop promise to other clients?"). Both are
wall times, so a run counts on a machine without other work only. One JSON line is appended to
bench/results/stalls.jsonl.
"""

import contextlib
import pathlib
import socket
import struct
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from typing import Any, Final

import click
from kit import ROOT, machine
from kit.results import keep_result

sys.path.append(str(ROOT / "tests" / "cluster" / "support"))

from attack import Witness
from brokers import BrokerProcess
from peers import HungUpError, Peer, framed

from odradek.record.compression import Codec
from odradek.record.conversion import convert_down
from odradek.record.records import Record, build_batch
from odradek.wire.api_keys import APIS, ApiKey, request_class
from odradek.wire.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from odradek.wire.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from odradek.wire.messages.produce import (
    PartitionProduceData,
    ProduceRequest,
    TopicProduceData,
)
from odradek.wire.schema import Field, Message, MessageType

STALL_MS_MAX: Final = 50
TOPIC, BIG, COMPACTED, OLD = "t", "big", "compacted", "old"
BIG_BATCHES: Final = 56
MIB: Final = 1 << 20
FETCH_BY_NAME: Final = 12
PRODUCE_BY_NAME: Final = 12
PRODUCE_OLD, FETCH_OLD = 2, 3

Attack = Callable[[int], None]  # runs once against the broker on that port


# --------------------------------------------------------------------------- what is asked for


def crowded(message: MessageType, version: int, count: int, *, wide: bool) -> Any:
    """A request with `count` elements: `wide` in its outermost array, else in its innermost.

    Strings in an array are numbered; a single string is the name of an existing topic.
    """
    made = message()
    for field in message.SCHEMA.fields:
        if version not in field.versions:
            continue
        if field.kind == "array":
            inner = _has_array(field, version)
            here = count if wide or not inner else 1
            setattr(made, field.name, _elements(field, version, here, 1 if wide else count))
        elif field.kind == "string" and not field.default:
            setattr(made, field.name, TOPIC)
    return made


def _has_array(field: Field, version: int) -> bool:
    return isinstance(field.part, MessageType) and any(
        each.kind == "array" and version in each.versions for each in field.part.SCHEMA.fields
    )


def _elements(field: Field, version: int, count: int, below: int) -> list[Any]:
    if isinstance(field.part, MessageType):
        made = [crowded(field.part, version, below, wide=below == 1) for _ in range(count)]
        names = [each.name for each in field.part.SCHEMA.fields if each.kind == "string"][:1]
        numbers = [
            each.name
            for each in field.part.SCHEMA.fields
            if each.kind == "int32" and ("partition" in each.name or "index" in each.name)
        ]
        for number, each in enumerate(made):
            for name in names if count > 1 else ():
                setattr(each, name, f"name-{number}")
            for name in numbers:
                setattr(each, name, number)
        return made
    if field.part == "string":
        return [f"name-{number}" for number in range(count)]
    if field.part == "uuid":
        return [number.to_bytes(16, "big") for number in range(count)]
    return list(range(count))


def large_requests(elements: int) -> Iterator[tuple[str, Attack]]:
    """For every API of clients, both shapes of a request with many elements."""
    for key, api in APIS.items():
        if api.inter_broker or key == ApiKey.PRODUCE:
            continue
        message = request_class(key)
        arrays = [
            field
            for field in message.SCHEMA.fields
            if field.kind == "array" and api.last in field.versions
        ]
        for wide in (True, False):
            if not arrays or not (wide or any(_has_array(field, api.last) for field in arrays)):
                continue
            count = min(elements, 16_000) if key == ApiKey.FETCH else elements
            yield (
                f"{api.name} {'wide' if wide else 'deep'}",
                _asking(message, api.last, count, wide),
            )


def _asking(message: type[Message], version: int, count: int, wide: bool) -> Attack:
    kept: list[bytes] = []

    def ask(port: int) -> None:
        if not kept:
            request = crowded(message, version, count, wide=wide)
            kept.append(
                framed(request, min(version, FETCH_BY_NAME) if _is_fetch(message) else version)
            )
        with Peer(port) as peer, contextlib.suppress(HungUpError, ConnectionError):
            peer.send(kept[0])
            peer.frame()

    return ask


def _is_fetch(message: type[Message]) -> bool:
    return message is FetchRequest


def commit_80_mb(port: int) -> None:
    """20,000 committed offsets with 4 kB of metadata each."""
    metadata = "m" * 4096
    request = OffsetCommitRequest(
        group_id="g",
        topics=[
            OffsetCommitRequestTopic(
                name=TOPIC,
                partitions=[
                    OffsetCommitRequestPartition(
                        partition_index=number % 8, committed_offset=1, committed_metadata=metadata
                    )
                    for number in range(20_000)
                ],
            )
        ],
    )
    with Peer(port) as peer:
        peer.send(framed(request, 8))
        peer.frame()


def produce_many(partitions: int) -> Attack:
    """A produce request with many partitions, most of which do not exist."""
    batch = build_batch([Record(None, b"x")])
    request = ProduceRequest(
        acks=1,
        timeout_ms=30_000,
        topic_data=[
            TopicProduceData(
                name=TOPIC,
                partition_data=[
                    PartitionProduceData(index=number, records=batch)
                    for number in range(partitions)
                ],
            )
        ],
    )
    frame = framed(request, PRODUCE_BY_NAME)

    def ask(port: int) -> None:
        with Peer(port) as peer, contextlib.suppress(HungUpError, ConnectionError):
            peer.send(frame)
            peer.frame()

    return ask


def large_frame(port: int) -> None:
    """A frame of 100 MB that is not a request."""
    with Peer(port) as peer, contextlib.suppress(HungUpError, ConnectionError):
        peer.send(struct.pack(">ihhih", 100_000_000, 0, PRODUCE_BY_NAME, 1, -1))
        piece = bytes(MIB)
        for _ in range(95):
            peer.send(piece)
        peer.send(bytes(100_000_000 - 10 - 95 * MIB))
        peer.frame()


def fetching(topic: str, offset: int, *, max_wait_ms: int, max_bytes: int = 50 * MIB) -> bytes:
    """The frame of a fetch from one partition."""
    request = FetchRequest(
        max_wait_ms=max_wait_ms,
        min_bytes=1,
        max_bytes=max_bytes,
        session_epoch=-1,
        topics=[
            FetchTopic(
                topic=topic,
                partitions=[
                    FetchPartition(partition=0, fetch_offset=offset, partition_max_bytes=max_bytes)
                ],
            )
        ],
    )
    return framed(request, FETCH_BY_NAME)


def fetches_behind_a_waiting_one(port: int) -> None:
    """A fetch that waits at the log's end, 16 of 50 MB behind it; no response is read."""
    with Peer(port) as peer:
        end = peer.offset(TOPIC, 0)
        peer.send(
            fetching(TOPIC, end + 0, max_wait_ms=1_000) + fetching(BIG, 0, max_wait_ms=0) * 16
        )
        time.sleep(1.5)


def many_that_do_not_read(port: int) -> None:
    """A hundred connections that fetch 50 MB each and read nothing."""
    peers = [Peer(port) for _ in range(100)]
    for peer in peers:
        with contextlib.suppress(ConnectionError):
            peer.send(fetching(BIG, 0, max_wait_ms=0) * 4)
    time.sleep(3)
    for peer in peers:
        peer.socket.close()


def gone_with_fetches(count: int) -> Attack:
    """Pipelined fetches of 50 MB, then a reset of the connection."""

    def ask(port: int) -> None:
        peer = Peer(port)
        peer.send(fetching(BIG, 0, max_wait_ms=0) * count)
        peer.socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        peer.socket.close()
        time.sleep(0.3)

    return ask


def one_fetch(port: int) -> None:
    """A fetch of 50 MB that is read at once."""
    with Peer(port) as peer:
        peer.send(fetching(BIG, 0, max_wait_ms=0))
        peer.frame()


def bombs(codec: Codec, count: int, mib: int) -> Attack:
    """Small batches that decompress to large ones, to a compacted topic, in one write."""
    batch = build_batch([Record(b"k", bytes(mib * MIB))], codec=codec)
    frames = b"".join(
        framed(
            ProduceRequest(
                acks=1,
                timeout_ms=30_000,
                topic_data=[
                    TopicProduceData(
                        name=COMPACTED,
                        partition_data=[PartitionProduceData(index=0, records=batch)],
                    )
                ],
            ),
            PRODUCE_BY_NAME,
        )
        for _ in range(count)
    )

    def ask(port: int) -> None:
        with Peer(port) as peer, contextlib.suppress(HungUpError, ConnectionError):
            peer.send(frames)
            for _ in range(count):
                peer.frame()

    return ask


def old_messages(codec: Codec, count: int) -> Attack:
    """A set of messages of format v1 in Produce v2, which is converted to a batch."""
    batch = build_batch([Record(b"k%d" % n, b"x" * 100) for n in range(count)], codec=codec)
    messages = convert_down(memoryview(batch), 1, 0).messages
    request = ProduceRequest(
        acks=1,
        timeout_ms=30_000,
        topic_data=[
            TopicProduceData(
                name=TOPIC, partition_data=[PartitionProduceData(index=0, records=messages)]
            )
        ],
    )
    frame = framed(request, PRODUCE_OLD)

    def ask(port: int) -> None:
        with Peer(port) as peer:
            for _ in range(4):
                peer.send(frame)
                peer.frame()

    return ask


def old_fetches(port: int) -> None:
    """The records of others, read from the beginning as messages of format v1."""
    request = FetchRequest(
        max_wait_ms=0,
        min_bytes=1,
        max_bytes=50 * MIB,
        topics=[
            FetchTopic(
                topic=OLD,
                partitions=[
                    FetchPartition(partition=0, fetch_offset=0, partition_max_bytes=50 * MIB)
                ],
            )
        ],
    )
    frame = framed(request, FETCH_OLD)
    with Peer(port) as peer:
        for _ in range(4):
            peer.send(frame)
            peer.frame()


def attacks(elements: int) -> Iterator[tuple[str, Attack]]:
    """All attacks by name; the first does nothing, for comparison."""
    yield "nothing", lambda _port: time.sleep(1)
    yield "parked fetch, 16 of 50 MB behind it", fetches_behind_a_waiting_one
    yield "100 connections that do not read", many_that_do_not_read
    yield "20 fetches of 50 MB, then a reset", gone_with_fetches(20)
    yield "60 fetches of 50 MB, then a reset", gone_with_fetches(60)
    yield "fetch of 50 MB", one_fetch
    yield "frame of 100 MB", large_frame
    yield "OffsetCommit of 80 MB", commit_80_mb
    yield "Produce to 32,000 partitions", produce_many(32_000)
    yield from large_requests(elements)
    yield "bombs: 8 of gzip, 60 MiB", bombs(Codec.GZIP, 8, 60)
    yield "bombs: 8 of lz4, 60 MiB", bombs(Codec.LZ4, 8, 60)
    yield "bombs: 8 of zstd, 60 MiB", bombs(Codec.ZSTD, 8, 60)
    yield "bombs: 60 of zstd, 60 MiB", bombs(Codec.ZSTD, 60, 60)
    yield "Produce v2 of 8,000 messages", old_messages(Codec.NONE, 8_000)
    yield "Produce v2 of 8,000 messages, gzip", old_messages(Codec.GZIP, 8_000)
    yield "Fetch v3 of batches of 8,000 records, gzip", old_fetches


# ---------------------------------------------------------------------------------- the measure


def prepare(port: int) -> None:
    """Create the topics that the attacks use."""
    with Peer(port) as peer:
        peer.create_topic(TOPIC, 8)
        peer.create_topic(COMPACTED, 1, cleanup_policy="compact")
        peer.create_topic(BIG, 1)
        batch = build_batch([Record(None, bytes(MIB - 200))])
        for _ in range(BIG_BATCHES):
            assert peer.produce(BIG, 0, batch, acks=1).error_code == 0
        peer.produce(TOPIC, 0, build_batch([Record(None, b"x")]))
        peer.create_topic(OLD, 1)
        records = [Record(b"k%d" % n, b"x" * 100) for n in range(8_000)]
        for _ in range(8):
            peer.produce(OLD, 0, build_batch(records, codec=Codec.GZIP), acks=1)


def measured(home: pathlib.Path, attack: Attack, seconds: float) -> dict[str, Any]:
    """Run an attack on a broker of its own and measure it."""
    broker = BrokerProcess(home, {"auto.create.topics.enable": "false"}).start()
    try:
        prepare(broker.port)
        broker.stop()
        broker.start()  # the maximum before the attack is not counted
        with Peer(broker.port) as peer:
            for topic, partitions in ((TOPIC, 8), (COMPACTED, 1), (BIG, 1), (OLD, 1)):
                peer.wait_until_led(topic, partitions)
        with Witness(broker.port) as witness:
            time.sleep(seconds / 2)
            quiet = witness.end()
        before_mib = broker.rss_bytes / MIB
        times = 0
        with Witness(broker.port) as witness:
            until_s = time.monotonic() + seconds
            while times == 0 or time.monotonic() < until_s:
                attack(broker.port)
                times += 1
            seen = witness.end()
        return {
            "times": times,
            "stall_ms": round(broker.metric("odradek_loop_busy_ms_max"), 1),
            "p99_ms": round(seen.get("p99_ms", -1), 1),
            "quiet_p99_ms": round(quiet["p99_ms"], 1),
            "rss_growth_mib": round(broker.rss_max_bytes / MIB - before_mib),
            "is_up": broker.is_up and not broker.traces(),
            "error": seen.get("error"),
        }
    finally:
        broker.kill()


def is_bad(found: dict[str, Any]) -> bool:
    """Whether other clients were delayed."""
    felt = found["p99_ms"] > 2 * found["quiet_p99_ms"] or found["error"] is not None
    return felt or found["stall_ms"] > STALL_MS_MAX or not found["is_up"]


@click.command(help=(__doc__ or "").partition("\n")[0])
@click.argument("words", nargs=-1)
@click.option("--seconds", default=4.0, show_default=True, help="for each attack")
@click.option("--elements", default=100_000, show_default=True, help="of large requests")
def main(*, words: tuple[str, ...], seconds: float, elements: int) -> None:
    """Attack, append to the results, print."""
    results = {}
    print(f"{'':40} {'times':>5} {'stall':>8} {'p99':>7} {'quiet':>7} {'memory':>8}")
    for name, attack in attacks(elements):
        if words and not any(word.lower() in name.lower() for word in words):
            continue
        with tempfile.TemporaryDirectory(prefix="odradek-bench-") as folder:
            found = results[name] = measured(pathlib.Path(folder), attack, seconds)
        print(
            f"{name:40} {found['times']:5} {found['stall_ms']:5.0f} ms {found['p99_ms']:4.0f} ms "
            f"{found['quiet_p99_ms']:4.0f} ms {found['rss_growth_mib']:4} MiB"
            f"{' *' if is_bad(found) else ''}{'' if found['is_up'] else ' FAILED'}",
            flush=True,
        )
    line = {"elements": elements, "attacks": results, "machine": machine.describe()}
    keep_result("stalls", line)


if __name__ == "__main__":
    main()
