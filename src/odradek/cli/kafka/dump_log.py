"""`kafka-dump-log`: prints the contents of a broker's files, without a broker. Nothing is written.

Behaviour, flags and texts follow Kafka 3.9's `DumpLogSegments`; the differences, with
reasons, are in `tests/recorded/test_dump_log.py`. `odradek.files` reads the files.
"""

import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Final, NamedTuple

from odradek.cli.kafka.support.dump_log_decoders import Decoder, decoder_of
from odradek.cli.kafka.support.flags import Flags, Parser
from odradek.files import indexes, snapshots
from odradek.files.segments import FileBatch, FileFormatError, base_offset_of, batches
from odradek.log.index.transactions import ENTRY_BYTES as TRANSACTION_ENTRY_BYTES
from odradek.record.batch import NO_SEQUENCE, NO_TIMESTAMP, SEQUENCE_MAX, BatchHeader
from odradek.record.compression import Codec
from odradek.record.control import read_marker
from odradek.record.records import Record

_BYTES_UNLIMITED: Final = 0x7FFFFFFF
_MESSAGE_BYTES_MAX: Final = 5 * 1024 * 1024
_DECODERS: Final = (
    "offsets-decoder",
    "transaction-log-decoder",
    "cluster-metadata-decoder",
    "remote-log-metadata-decoder",
)
_TIMESTAMP_TYPES: Final = ("CreateTime", "LogAppendTime")


class DumpOptions(NamedTuple):
    """The options of the command line."""

    deep: bool
    decoder: Decoder | None  # None: contents are not printed
    metadata: bool
    bytes_max: int
    message_bytes_max: int
    sanity_only: bool
    verify_only: bool


class Complaints:
    """The errors found, by file; printed after all files have been read."""

    def __init__(self) -> None:
        self.offsets: dict[str, list[tuple[int, int]]] = {}
        self.timestamps: dict[str, list[tuple[int, int]]] = {}
        self.order: dict[str, list[tuple[int, int]]] = {}
        self.missing: dict[str, list[tuple[int, int]]] = {}
        self.gaps: dict[str, list[tuple[int, int]]] = {}

    def print(self) -> None:
        """On stderr, the last error of each file first, as Kafka prints them."""
        _print_errors(self.offsets, "Mismatches in :{}", "  Index offset: {}, log offset: {}")
        _print_errors(
            self.timestamps,
            "Found timestamp mismatch in :{}",
            "  Index timestamp: {}, log timestamp: {}",
        )
        _print_errors(
            self.order,
            "Found out of order timestamp in :{}",
            "  Index timestamp: {}, Previously indexed timestamp: {}",
        )
        _print_errors(
            self.missing,
            "The following indexed offsets are not found in the log.",
            "Indexed offset: {}, found log offset: {}",
        )
        _print_errors(self.gaps, "Non-consecutive offsets in {}", "  {} is followed by {}")


def _print_errors(found: Mapping[str, Sequence[tuple[int, int]]], head: str, line: str) -> None:
    for file, pairs in found.items():
        print(head.format(file), file=sys.stderr)
        for pair in reversed(pairs):
            print(line.format(*pair), file=sys.stderr)


def main(arguments: Sequence[str]) -> int:
    parser = command_line()
    flags = parser.begin(arguments)
    parser.require(flags, "files")
    names = flags.text("files").split(",")
    complaints = Complaints()
    for name in names:
        print(f"Dumping {name}")
        _dump(name, _options(flags), complaints)
    sys.stdout.flush()
    complaints.print()
    return 0


def command_line() -> Parser:
    parser = Parser(
        "This tool shows what is in a broker's files: batches, records, indexes, snapshots."
    )
    parser.value("files", metavar="file,file,...", help="REQUIRED: the files to show.")
    parser.flag("print-data-log", help="Show keys and values, too; implied by each decoder.")
    parser.flag("deep-iteration", help="Show every record; implied by --print-data-log.")
    parser.flag("skip-record-metadata", help="Show keys and values only, no record's metadata.")
    parser.flag(
        "index-sanity-check",
        help="Only check whether a start of the broker would rebuild an index.",
    )
    parser.flag("verify-index-only", help="Only show where an index and its log disagree.")
    parser.value(
        "max-message-size",
        metavar="bytes",
        help="The largest batch that is read at an index entry's position.",
    )
    parser.value("max-bytes", metavar="bytes", help="Read at most so many bytes of a log.")
    parser.optional("key-decoder-class", metavar="class", help="The decoder of keys.")
    parser.optional("value-decoder-class", metavar="class", help="The decoder of values.")
    parser.flag("offsets-decoder", help="Read __consumer_offsets.")
    parser.flag("transaction-log-decoder", help="Read __transaction_state.")
    parser.flag("cluster-metadata-decoder", help="KRaft metadata: not supported.")
    parser.flag("remote-log-metadata-decoder", help="Tiered storage: not supported.")
    parser.common()
    return parser


def _options(flags: Flags) -> DumpOptions:
    bytes_max = flags.integer("max-bytes")
    message_bytes_max = flags.integer("max-message-size")
    chosen = next((name for name in _DECODERS if flags.has(name)), None)
    prints = (
        flags.has("print-data-log")
        or chosen is not None
        or any(flags.has(name) for name in ("key-decoder-class", "value-decoder-class"))
    )
    decoder = None
    if prints:
        decoder = decoder_of(
            chosen, flags.value("key-decoder-class"), flags.value("value-decoder-class")
        )
    return DumpOptions(
        deep=prints or flags.has("deep-iteration"),
        decoder=decoder,
        metadata=not flags.has("skip-record-metadata"),
        bytes_max=_BYTES_UNLIMITED if bytes_max is None else bytes_max,
        message_bytes_max=_MESSAGE_BYTES_MAX if message_bytes_max is None else message_bytes_max,
        sanity_only=flags.has("index-sanity-check"),
        verify_only=flags.has("verify-index-only"),
    )


def _dump(name: str, options: DumpOptions, complaints: Complaints) -> None:
    suffix = Path(name).suffix
    dump = _DUMPERS.get(suffix)
    if dump is None:
        print(f"Ignoring unknown file {name}", file=sys.stderr)
        return
    try:
        dump(name, options, complaints)
    except FileNotFoundError as error:
        why = ""
        log = Path(name).with_suffix(".log")
        if suffix in (".index", ".timeindex") and log.exists():
            why = (
                ". A broker keeps the indexes of its active segment in memory, and writes them "
                f"when the segment is rolled or the broker stops; {log} can be dumped now"
            )
        raise FileFormatError(f"{error.filename}: there is no such file{why}") from None


# -------------------------------------------------------------------------------------- the log


def _dump_log(name: str, options: DumpOptions, complaints: Complaints) -> None:
    print(f"Log starting offset: {base_offset_of(name)}")
    gaps: list[tuple[int, int]] = []
    last_offset = -1
    end = 0
    whole = options.bytes_max == _BYTES_UNLIMITED
    for batch in batches(name, bytes_max=None if whole else options.bytes_max):
        print(_batch_line(batch))
        if options.deep:
            for record in batch.records():
                if last_offset not in (-1, record.offset - 1):
                    gaps.append((last_offset, record.offset))
                last_offset = record.offset
                _print_record(batch, record, options)
        end = batch.position + batch.header.size_bytes
    trailing = Path(name).stat().st_size - end
    if trailing > 0 and whole:
        print(f"Found {trailing} invalid bytes at the end of {Path(name).name}")
    if gaps:
        complaints.gaps[str(Path(name).absolute())] = gaps


def _batch_line(batch: FileBatch) -> str:
    header = batch.header
    horizon = header.delete_horizon_ms
    return (
        f"baseOffset: {header.base_offset} lastOffset: {header.last_offset} "
        f"count: {header.record_count} baseSequence: {header.base_sequence} "
        f"lastSequence: {header.last_sequence} producerId: {header.producer_id} "
        f"producerEpoch: {header.producer_epoch} partitionLeaderEpoch: {header.leader_epoch} "
        f"isTransactional: {_truth(header.is_transactional)} "
        f"isControl: {_truth(header.is_control)} deleteHorizonMs: {_optional(horizon)} "
        f"position: {batch.position} {_TIMESTAMP_TYPES[header.timestamp_type]}: "
        f"{header.max_timestamp} size: {header.size_bytes} magic: {header.magic} "
        f"compresscodec: {_codec(header)} crc: {header.crc} isvalid: {_truth(batch.is_valid)}"
    )


def _codec(header: BatchHeader) -> str:
    return Codec(header.codec).name.lower() if header.codec in list(Codec) else str(header.codec)


def _print_record(batch: FileBatch, record: Record, options: DumpOptions) -> None:
    header = batch.header
    write = sys.stdout.write
    prefix = "| "
    if options.metadata:
        names = ",".join(_shown(key) for key, _ in record.headers)
        write(
            f"| offset: {record.offset} {_TIMESTAMP_TYPES[header.timestamp_type]}: "
            f"{record.timestamp} keySize: {_size(record.key)} valueSize: {_size(record.value)} "
            f"sequence: {_sequence(header, record.offset)} headerKeys: [{names}]"
        )
        prefix = " "
        marker = read_marker(batch.data) if header.is_control else None
        if marker is not None:
            write(f" endTxnMarker: {marker.type.name} coordinatorEpoch: {marker.coordinator_epoch}")
    if options.decoder is not None and not header.is_control:
        key, payload = options.decoder(record)
        if key is not None:
            write(f"{prefix}key: {key}")
        if payload is not None:
            write(f" payload: {payload}")
    write("\n")


def _sequence(header: BatchHeader, offset: int) -> int:
    if header.base_sequence == NO_SEQUENCE:
        return NO_SEQUENCE
    return (header.base_sequence + offset - header.base_offset) & SEQUENCE_MAX


def _shown(header_key: str) -> str:
    return header_key.encode("utf-8", "surrogateescape").decode("utf-8", "replace")


def _size(data: bytes | None) -> int:
    return -1 if data is None else len(data)


def _truth(value: bool) -> str:
    return "true" if value else "false"


def _optional(value: int | None) -> str:
    return "OptionalLong.empty" if value is None else f"OptionalLong[{value}]"


# ---------------------------------------------------------------------------------- its indexes


def _dump_index(name: str, options: DumpOptions, complaints: Complaints) -> None:
    base_offset = base_offset_of(name)
    found = _log_beside(name)
    entries = indexes.offset_entries(name)
    if not Path(name).stat().st_size:
        print(f"{name} is empty.")
        return
    if options.sanity_only:
        indexes.check_sanity(name)
        print(f"{name} passed sanity check.")
        return
    for number, entry in enumerate(entries):
        if number and entry.offset == base_offset:
            return  # the rest of the file is preallocated
        batch = _batch_at(found, entry.position, options.message_bytes_max)
        if batch.header.last_offset != entry.offset:
            file = str(Path(name).absolute())
            pair = (entry.offset, batch.header.last_offset)
            complaints.offsets.setdefault(file, []).append(pair)
        if not options.verify_only:
            print(f"offset: {entry.offset} position: {entry.position}")


def _dump_time_index(name: str, options: DumpOptions, complaints: Complaints) -> None:
    base_offset = base_offset_of(name)
    found = _log_beside(name)
    if options.sanity_only:
        indexes.check_sanity(name)
        print(f"{name} passed sanity check.")
        return
    file = str(Path(name).absolute())
    before = NO_TIMESTAMP
    for number, entry in enumerate(indexes.time_entries(name)):
        if number and entry.offset == base_offset:
            return  # the rest of the file is preallocated
        batch = _first_reaching(found, entry.offset)
        if batch is None or batch.header.last_offset != entry.offset:
            last_offset = -1 if batch is None else batch.header.last_offset
            complaints.missing.setdefault(file, []).append((entry.offset, last_offset))
        else:
            largest = max((r.timestamp for r in batch.records()), default=NO_TIMESTAMP)
            if largest != entry.timestamp:
                complaints.timestamps.setdefault(file, []).append((entry.timestamp, largest))
            if before >= entry.timestamp:
                complaints.order.setdefault(file, []).append((entry.timestamp, before))
        if not options.verify_only:
            print(f"timestamp: {entry.timestamp} offset: {entry.offset}")
        before = entry.timestamp


def _dump_transaction_index(name: str, options: DumpOptions, complaints: Complaints) -> None:
    del options, complaints
    if Path(name).stat().st_size < TRANSACTION_ENTRY_BYTES:
        return
    for version, entry in indexes.aborted_transactions(name):
        print(
            f"version: {version} producerId: {entry.producer_id} "
            f"firstOffset: {entry.first_offset} lastOffset: {entry.last_offset} "
            f"lastStableOffset: {entry.last_stable_offset}"
        )


def _dump_snapshot(name: str, options: DumpOptions, complaints: Complaints) -> None:
    del options, complaints
    try:
        rows = snapshots.producers(name)
    except FileFormatError as error:
        print(error, file=sys.stderr)
        return
    for row in rows:
        first = row.transaction_first_offset
        line = (
            f"producerId: {row.producer_id} producerEpoch: {row.producer_epoch} "
            f"coordinatorEpoch: {row.coordinator_epoch} "
            f"currentTxnFirstOffset: {_optional(None if first < 0 else first)} "
            f"lastTimestamp: {row.timestamp} "
        )
        if row.last_offset >= 0:
            line += (
                f"firstSequence: {row.first_sequence} lastSequence: {row.last_sequence} "
                f"lastOffset: {row.last_offset} offsetDelta: {row.offset_delta} "
                f"timestamp: {row.timestamp}"
            )
        print(line)


def _log_beside(name: str) -> Path:
    log = Path(name).absolute().with_suffix(".log")
    if not log.exists():
        raise FileFormatError(f"{log}: there is no such file, and {name} points into it")
    return log


def _batch_at(log: Path, position: int, bytes_max: int) -> FileBatch:
    batch = next(batches(log, start=position), None)
    if batch is None or batch.header.size_bytes > bytes_max:
        raise FileFormatError(
            f"{log}: no batch of at most {bytes_max} bytes at position {position}"
        )
    return batch


def _first_reaching(log: Path, offset: int) -> FileBatch | None:
    """The first batch with a last offset at or above `offset`, by the offset index."""
    index = log.with_suffix(".index")
    start = 0
    for entry in indexes.offset_entries(index) if index.exists() else ():
        if entry.offset <= offset and entry.position >= start:
            start = entry.position
    return next((b for b in batches(log, start=start) if b.header.last_offset >= offset), None)


_DUMPERS: Final[Mapping[str, Callable[[str, DumpOptions, Complaints], None]]] = {
    ".log": _dump_log,
    ".index": _dump_index,
    ".timeindex": _dump_time_index,
    ".txnindex": _dump_transaction_index,
    ".snapshot": _dump_snapshot,
}
