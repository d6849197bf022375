"""Compares bytes and verdicts of Apache Kafka 3.9's own classes with ours.

The files beside this one were made by `KafkaOracle.java`, which documents them.
"""

import pathlib

import pytest

import odradek.log.index.transactions as transaction_index
from odradek.log.checkpoints import decode_epochs, decode_offsets, encode_epochs, encode_offsets
from odradek.log.index.transactions import AbortedTransaction
from odradek.log.leader_epochs import LeaderEpochs
from odradek.log.producer_state import ProducerState
from odradek.model.errors import ApiError
from odradek.model.partition import TopicPartition
from odradek.record.batch import (
    PREFIX_BYTES,
    TimestampType,
    has_valid_crc,
    patched_prefix,
    read_header,
)
from odradek.record.compression import Codec, target_codec
from odradek.record.control import ControlType, Marker, build_marker, read_marker
from odradek.record.records import Record, build_batch, iter_records
from odradek.record.validate import (
    ValidationRules,
    validate_produced,
    validate_replicated,
)

HERE = pathlib.Path(__file__).parent
NOW = 1_700_000_000_000


def kafkas(name):
    return (HERE / name).read_bytes()


def records(count):
    """The records of `KafkaOracle.records`."""
    return [
        Record(
            key=None if i % 7 == 0 else b"key%d" % i,
            value=None
            if i % 11 == 0
            else b"value " + b"v" * (9000 if i == 5 else i % 90) + b"%d" % i,
            timestamp=NOW + (i * 3701) % 100_000,
            headers=() if i % 5 else ((f"h{i}", b"x%d" % i), ("n\u00fc", None)),
        )
        for i in range(count)
    ]


def without_offsets(read):
    return [record._replace(offset=-1) for record in read]


# ------------------------------------------------------------------------------- batches


@pytest.mark.parametrize("codec", list(Codec))
def test_batches_of_every_codec_are_read(codec):
    batch = kafkas(f"{codec.name.lower()}.batch")

    header = read_header(batch)
    read = list(iter_records(batch))

    assert (header.base_offset, header.leader_epoch, header.codec) == (5, 3, codec)
    assert has_valid_crc(memoryview(batch), 0, header)
    assert without_offsets(read) == records(150)
    assert [record.offset for record in read] == list(range(5, 155))


IDEMPOTENT = {
    "base_offset": 7,
    "producer_id": 4711,
    "producer_epoch": 3,
    "base_sequence": 12,
    "leader_epoch": 5,
}


@pytest.mark.parametrize(
    ("name", "count", "fields"),
    [
        ("none", 150, {"base_offset": 5, "leader_epoch": 3}),
        ("idempotent", 20, IDEMPOTENT),
        ("transactional", 20, {**IDEMPOTENT, "transactional": True}),
    ],
)
def test_batches_are_written_byte_for_byte(name, count, fields):
    assert build_batch(records(count), **fields) == kafkas(f"{name}.batch")


def test_all_records_of_a_log_append_time_batch_have_its_timestamp():
    batch = kafkas("append_time.batch")

    assert {record.timestamp for record in iter_records(batch)} == {NOW + 1}
    assert batch == build_batch(
        records(20),
        base_offset=9,
        timestamp_type=TimestampType.LOG_APPEND_TIME,
        append_time_ms=NOW + 1,
    )


@pytest.mark.parametrize("control_type", list(ControlType))
def test_markers_are_read_and_written_byte_for_byte(control_type):
    batch = kafkas(f"{control_type.name.lower()}.batch")
    marker = Marker(control_type, coordinator_epoch=17)

    assert read_marker(batch) == marker
    assert batch == build_marker(
        marker,
        producer_id=4711,
        producer_epoch=3,
        timestamp=NOW,
        base_offset=42,
        leader_epoch=6,
    )


# -------------------------------------------------------------------------------- verdicts

# Where we refuse what Kafka accepts, or answer with another code, and why.
STRICTER = {
    # Kafka reads any negative length as null.
    "key length + 1": "INVALID_RECORD",
    # Kafka reads past the end of its buffer.
    "length huge": "INVALID_RECORD",
}


def verdicts():
    lines = (HERE / "verdicts.txt").read_text().splitlines()
    return [pytest.param(*line.split("|"), id=line.split("0000", 1)[0]) for line in lines]


def rules_of(text, *, full):
    config = dict(item.split("=") for item in text.split(",") if item)
    rules = {}
    if "message.timestamp.type" in config:
        rules["timestamp_type"] = TimestampType.LOG_APPEND_TIME
    for end in ("before", "after"):
        if value := config.get(f"message.timestamp.{end}.max.ms"):
            rules[f"timestamp_{end}_max_ms"] = int(value)
    if value := config.get("max.message.bytes"):
        rules["message_bytes_max"] = int(value)
    return ValidationRules(
        **rules,
        compacted=config.get("cleanup.policy") == "compact",
        codec=target_codec(config.get("compression.type", "producer")),
        full=full,
    )


def judge(batch, rules, api_version, *, full):
    """Our verdict: the validated batch, or the raised error."""
    try:
        return validate_produced(
            memoryview(bytes.fromhex(batch)),
            rules_of(rules, full=full),
            wall_ms=NOW,
            api_version=int(api_version),
        )
    except ApiError as refused:
        return refused


@pytest.mark.parametrize(("name", "rules", "api_version", "batch", "error", "detail"), verdicts())
def test_verdicts_and_stored_bytes_are_kafkas(name, rules, api_version, batch, error, detail):
    verdict = judge(batch, rules, api_version, full=True)

    assert code_of(verdict) == STRICTER.get(name, error)
    if isinstance(verdict, ApiError):
        assert_refused_alike(verdict, detail)
    else:
        assert_stored_alike(verdict, bytes.fromhex(detail))


def code_of(verdict):
    return verdict.code.name if isinstance(verdict, ApiError) else "NONE"


def assert_refused_alike(refused, detail):
    numbers = [index for index, _ in getattr(refused, "record_errors", ())]
    assert not numbers or ",".join(map(str, numbers)) == detail


def assert_stored_alike(validated, stored):
    header = validated.header
    assert header == read_header(validated.view)
    ours = patched_prefix(0, header.length, 8) + validated.view[PREFIX_BYTES:]
    if ours == stored:
        return
    # A batch compressed again has the same records; its bytes depend on the library.
    theirs = read_header(stored)
    assert header.codec == theirs.codec != Codec.NONE
    assert has_valid_crc(memoryview(ours), 0, header)
    assert list(iter_records(ours)) == list(iter_records(stored))
    different = {"length": 0, "crc": 0, "leader_epoch": 8}
    assert header._replace(**different) == theirs._replace(**different)


def test_the_header_alone_gives_the_same_verdict_unless_the_records_are_at_fault():
    inside = ("key length", "record length", "wrong max timestamp", "count too")
    outside = [each.values for each in verdicts() if not each.values[0].startswith(inside)]
    for name, rules, api_version, batch, error, _ in outside:
        verdict = judge(batch, rules, api_version, full=False)
        assert code_of(verdict) == STRICTER.get(name, error), name


def test_batches_written_by_kafka_are_accepted_by_a_follower():
    batches = b"".join(
        kafkas(f"{name}.batch")
        for name in ("none", "commit")  # offsets 5-154, then 42
    )
    commit = build_marker(
        Marker(ControlType.COMMIT, 1), producer_id=1, producer_epoch=0, timestamp=5, base_offset=155
    )
    whole = kafkas("none.batch") + commit

    end, headers = validate_replicated(memoryview(whole + commit[:50]))

    assert end == len(whole)
    assert [header.base_offset for header in headers] == [5, 155]
    with pytest.raises(ApiError, match="155 was expected"):
        validate_replicated(memoryview(batches))


# ---------------------------------------------------------------------------- producer state


def test_producer_state_answers_as_kafkas_log_does():
    state, replica = ProducerState(), ProducerState()
    leo = high_watermark = 0
    aborted = []
    for line in (HERE / "producer_state.txt").read_text().splitlines():
        what, _, expected = line.partition(" -> ")
        verb, *words = what.split()
        if verb == "snapshot":
            assert_same_snapshot(state, replica, bytes.fromhex(words[0]))
            answer = ""
        elif verb == "txnindex":
            answer, expected = b"".join(entry.encode() for entry in aborted).hex(), words[0]
        else:
            numbers = words
            numbers = list(map(int, numbers))
            if verb == "hw":
                (high_watermark,) = numbers
                state.high_watermark_advanced(high_watermark)
                answer = "ok"
            else:
                batch = data_batch(*numbers) if verb == "data" else marker_batch(*numbers)
                answer, leo = append(state, replica, batch, leo, aborted)
            answer += f" ; {state.last_stable_offset(high_watermark)}"
        assert (what, answer) == (what, expected)


def data_batch(producer_id, epoch, sequence, count, transactional, timestamp):
    return build_batch(
        [Record(None, b"\0", timestamp)] * count,
        producer_id=producer_id,
        producer_epoch=epoch,
        base_sequence=sequence,
        transactional=bool(transactional),
    )


def marker_batch(producer_id, epoch, coordinator_epoch, commit, timestamp):
    return build_marker(
        Marker(ControlType(commit), coordinator_epoch),
        producer_id=producer_id,
        producer_epoch=epoch,
        timestamp=timestamp,
    )


def append(state, replica, batch, leo, aborted):
    """As a log does: check, append, record. The follower only records."""
    header = read_header(batch)
    try:
        if header.is_control:
            marker = read_marker(batch)
            state.check_marker(
                header.producer_id,
                producer_epoch=header.producer_epoch,
                coordinator_epoch=marker.coordinator_epoch,
            )
            completed = mark(state, replica, header, marker, leo)
            if completed and completed.aborted:
                aborted.append(AbortedTransaction._make(completed[:4]))
        else:
            if stored := state.check(header):
                return f"duplicate {stored.base_offset}", leo
            state.appended(header, leo)
            replica.appended(header, leo)
    except ApiError as refused:
        return refused.code.name, leo
    return f"ok {leo}", leo + header.last_offset_delta + 1


def mark(state, replica, header, marker, leo):
    completed = state.marker_appended(header, marker, leo)
    assert replica.marker_appended(header, marker, leo) == completed
    return completed


def assert_same_snapshot(state, replica, snapshot):
    loaded = ProducerState()
    loaded.load_snapshot(snapshot, wall_ms=NOW, expiration_ms=86_400_000)
    assert loaded.encode_snapshot() == snapshot
    assert sorted(loaded.active_producers()) == sorted(state.active_producers())
    assert sorted(loaded.active_producers()) == sorted(replica.active_producers())


# ------------------------------------------------------------------------- epochs and files


def test_leader_epochs_answer_as_kafkas_cache_does():
    epochs = LeaderEpochs()
    for line in (HERE / "leader_epochs.txt").read_text().splitlines():
        what, entries = line.split(" ;")
        match what.split():
            case "assign", epoch, offset:
                epochs.assign(int(epoch), int(offset))
            case "end", offset:
                epochs.truncate_from_end(int(offset))
            case "start", offset:
                epochs.truncate_from_start(int(offset))
            case "ask", epoch, leo, found, offset:
                answer = epochs.end_offset_for(int(epoch), int(leo))
                assert answer == (int(found), int(offset)), line
            case "at", offset, found:
                assert epochs.epoch_at(int(offset)) == int(found), line
        assert epochs.starts() == [
            tuple(map(int, entry.split(":"))) for entry in entries.split()
        ], line


def test_checkpoint_files_are_read_and_written_byte_for_byte():
    epochs = kafkas("leader-epoch-checkpoint")
    offsets = kafkas("replication-offset-checkpoint")

    assert decode_epochs(epochs) == [(0, 0), (3, 17), (4, 40_000_000_000)]
    assert encode_epochs(decode_epochs(epochs)) == epochs
    assert decode_offsets(offsets) == {
        TopicPartition("orders", 0): 1500,
        TopicPartition("a.b_c-d", 12): 40_000_000_000,
    }
    assert encode_offsets(decode_offsets(offsets)) == offsets


def test_transaction_indexes_are_read_and_written_byte_for_byte():
    index = kafkas("00000000000000000100.txnindex")
    entries = transaction_index.decode(index, base_offset=100)

    assert entries == [
        AbortedTransaction(7, 90, 110, 95),
        AbortedTransaction(9, 95, 120, 111),
        AbortedTransaction(11, 130, 140, 141),
    ]
    assert b"".join(entry.encode() for entry in entries) == index
