"""The plans for client programs, and the checks of their reports.

A *round* is one topic written with one codec and one acks, and read back by assigned
partitions. The rounds are defined here once, as JSON, and passed to programs in five languages; a
program carries out its plan and reports, this module checks the report. So a program only has to
use its client library.

    PROGRAM BOOTSTRAP SCENARIO FILE [SECURITY]
                                         FILE: the plan, as JSON
                                         SECURITY: how round trips connect, as JSON
                                         stdout: one JSON line, the report

The plan of scenario `round_trips` is `{"rounds": [round...]}` with a round's fields as in
`Round`; bytes are base64, null stays null. The report is

    {"client": "name version", "rounds": [{"topic": ...,
        "sent": [[partition, offset], ...],     in the plan's order; null with acks=0
        "read": [record...],                    as in the plan, and "offset"
        "ends": {"0": end offset, ...}}, ...]}

SECURITY is an object with `protocol`, and what it needs of: `mechanism`, `user`, `password`,
`token` (a file with a bearer token), `ca` and `certificate` (PEM files: the authority that the
program trusts; its own key and certificate).
"""

import base64
import json
import random
import time
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

CODECS = ("none", "gzip", "snappy", "lz4", "zstd")
ACKS = ("0", "1", "all")
PARTITIONS = 3


class Record(NamedTuple):
    """One record, as sent and as read."""

    partition: int
    timestamp_ms: int
    key: bytes | None
    value: bytes | None
    headers: tuple[tuple[str, bytes | None], ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Round:
    """One topic: how it is written, and with what."""

    topic: str
    codec: str
    acks: str
    idempotent: bool
    records: tuple[Record, ...]
    there: tuple[Record, ...] = ()  # what the topic holds already; it is created if nothing

    def __str__(self) -> str:
        return f"{self.codec}-acks_{self.acks}{'-idempotent' if self.idempotent else ''}"


def continued(rounds: list[Round]) -> list[Round]:
    """The same rounds again, on the topics that they have created."""
    return [replace(each, there=each.there + each.records) for each in rounds]


def all_rounds(prefix: str, *, null_header_values: bool = True) -> list[Round]:
    """Each codec with each acks, and once more idempotent (which needs acks=all)."""
    kinds = [(codec, acks, False) for codec in CODECS for acks in ACKS]
    kinds += [(codec, "all", True) for codec in CODECS]
    return [
        Round(
            topic=f"{prefix}-{codec}-{acks}{'-idempotent' if idempotent else ''}",
            codec=codec,
            acks=acks,
            idempotent=idempotent,
            records=tuple(usual_records(seed, null_header_values=null_header_values)),
        )
        for seed, (codec, acks, idempotent) in enumerate(kinds)
    ]


def usual_records(seed: int, *, null_header_values: bool) -> Iterator[Record]:
    """Sixty records: null, empty, binary, compressible and random; timestamps, headers."""
    chance = random.Random(seed)
    # Recent enough for retention, old enough not to be in the future of any clock.
    first_ms = int(time.time() * 1000) - 3_600_000
    pairs: list[tuple[bytes | None, bytes | None]] = [
        (None, b""),
        (b"", b"empty key"),
        (b"tombstone", None),
        (b"\x00\xff\xfe", b"\x80" * 17),
        (None, chance.randbytes(150_000)),
        (b"compressible", b"odradek " * 40_000),
    ]
    pairs += [(b"key-%d" % n, b"value %d " % n + chance.randbytes(n)) for n in range(54)]
    nothing = None if null_header_values else b""
    headers: list[tuple[tuple[str, bytes | None], ...]] = [
        (),
        (("trace", b"\x00\x01\x02"),),
        (("same", b"first"), ("same", b"second"), ("none", nothing), ("empty", b"")),
        (("näme", "wert €".encode()),),
    ]
    for n, (key, value) in enumerate(pairs):
        # Timestamps decrease now and then, as a producer may send them.
        timestamp_ms = first_ms + n * 10 - (500 if n % 7 == 0 else 0)
        yield Record(n % PARTITIONS, timestamp_ms, key, value, headers[n % len(headers)])


def plan(rounds: list[Round]) -> str:
    """The JSON that a program is given."""
    return json.dumps(
        {
            "rounds": [
                {
                    "topic": r.topic,
                    "partitions": PARTITIONS,
                    "codec": r.codec,
                    "acks": r.acks,
                    "idempotent": r.idempotent,
                    "there": len(r.there),
                    "records": [_record_json(record) for record in r.records],
                }
                for r in rounds
            ]
        }
    )


def problems(asked: Round, seen: dict[str, Any]) -> Iterator[str]:
    """The faults in a program's report on a round; empty if there are none."""
    wanted: dict[int, list[Record]] = defaultdict(list)
    for record in asked.there:
        wanted[record.partition].append(record)
    offsets = []
    for record in asked.records:
        offsets.append([record.partition, len(wanted[record.partition])])
        wanted[record.partition].append(record)
    if asked.acks != "0" and seen["sent"] != offsets:
        yield f"acknowledged offsets: {_difference(offsets, seen['sent'])}"
    found: dict[int, list[Record]] = defaultdict(list)
    for item in seen["read"]:
        record = _record(item)
        before = found[record.partition]
        if item["offset"] != len(before):
            yield f"partition {record.partition}: offset {item['offset']}, not {len(before)}"
        before.append(record)
    for partition, records in sorted(wanted.items()):
        if found[partition] != records:
            yield f"partition {partition}: {_difference(records, found[partition])}"
        if (end := seen["ends"][str(partition)]) != len(records):
            yield f"partition {partition} ends at {end}, not {len(records)}"


def _difference(wanted: list[Any], found: list[Any]) -> str:
    for n, (left, right) in enumerate(zip(wanted, found, strict=False)):
        if left != right:
            return f"entry {n} is {_short(right)}, not {_short(left)}"
    return f"{len(found)} entries, not {len(wanted)}"


def _short(thing: object) -> str:
    text = repr(thing)
    return text if len(text) < 300 else f"{text[:300]}... ({len(text)} characters)"


def _record_json(record: Record) -> dict[str, Any]:
    return {
        "partition": record.partition,
        "timestamp": record.timestamp_ms,
        "key": _text(record.key),
        "value": _text(record.value),
        "headers": [[name, _text(value)] for name, value in record.headers],
    }


def _record(item: dict[str, Any]) -> Record:
    headers = tuple((name, _bytes(value)) for name, value in item["headers"])
    return Record(
        item["partition"], item["timestamp"], _bytes(item["key"]), _bytes(item["value"]), headers
    )


def _text(data: bytes | None) -> str | None:
    return None if data is None else base64.b64encode(data).decode()


def _bytes(text: str | None) -> bytes | None:
    return None if text is None else base64.b64decode(text)
