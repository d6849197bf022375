"""Compares Apache Kafka 3.9.2's answer to each malformed batch with our leader's.

`answers.txt` was made by `record_answers.py`. Both checks of records, the compiled one where it is
installed and the plain one, have to give the same answers.
"""

import contextlib
import pathlib

import pytest
from tests.oracle.record.malformed import NOW_MS, cases

from odradek.model.errors import ApiError
from odradek.record.batch import TimestampType, read_header
from odradek.record.check import plain_check
from odradek.record.compression import target_codec
from odradek.record.records import iter_records
from odradek.record.validate import (
    RejectedBatchError,
    ValidationRules,
    validate_produced,
    validate_replicated,
)

CHECKS = [pytest.param(plain_check, id="plain")]
with contextlib.suppress(ImportError):
    import odradek_fast

    CHECKS.append(pytest.param(odradek_fast.check, id="compiled"))

INNER_KINDS = ("", "gzip: ", "lz4: ")
# Our answers where they differ from Kafka's, and why.
OURS = {
    # An internal error of Kafka's, with a stack trace in its log. It is the producer's error, and a
    # retry would fail again.
    "length 2147483647": "INVALID_RECORD",
    "gzip bit over plain records": "INVALID_RECORD",
    "gzip: checksum": "INVALID_RECORD",
    "record length in 6 bytes": "INVALID_RECORD",
    **{f"codec {number}": "UNSUPPORTED_COMPRESSION_TYPE" for number in (5, 6, 7)},
    **{
        f"{codec}: {what}": "INVALID_RECORD"
        for codec in ("gzip", "snappy", "lz4", "zstd")
        for what in (
            "garbage",
            "garbage behind the first bytes",
            "garbage after the data",
            "half of the data",
            "the last byte missing",
            "no data",
        )
        if (codec, what) not in {("lz4", "garbage after the data"), ("zstd", "no data")}
    },
    "gzip: a byte flipped": "INVALID_RECORD",
    "zstd: one byte after the data": "INVALID_RECORD",
    # Kafka accepts them, and a consumer then reads other records than were sent, or none.
    **{
        f"{kind}offset delta {what}": "INVALID_RECORD"
        for kind in INNER_KINDS
        for what in ("1 of the first", "-1", "repeated", "with a gap", "2^31-1")
    },
    **{
        f"{kind}record length {what}": "INVALID_RECORD"
        for kind in ("gzip: ", "lz4: ")
        for what in (
            "-1",
            "0",
            "one more",
            "one less",
            "one more, another follows",
            "2^31-1",
            "-2^31",
            "of 33 bits",
        )
    },
    # Kafka reads any negative length as null; other clients do not.
    **{
        f"{kind}{what}": "INVALID_RECORD"
        for kind in INNER_KINDS
        for what in (
            "key length -2",
            "key length -2^31",
            "value length -2",
            "header value length -2",
        )
    },
    # Their timestamp does not fit into 64 bits.
    **{
        f"{kind}timestamp delta {what}": "INVALID_RECORD"
        for kind in INNER_KINDS
        for what in ("greatest",)
    },
    # The bytes after the data are not in the codec's format; clients other than Java's fail.
    "gzip: one byte after the data": "INVALID_RECORD",
    "snappy: one byte after the data": "INVALID_RECORD",
    # Bits that a broker sets. Kafka clears or keeps the first, and reads a base timestamp as a
    # delete horizon because of the second.
    "append time bit": "INVALID_TIMESTAMP",
    "delete horizon bit": "INVALID_RECORD",
    # Refused by both; a broker checks the request's transactional id first.
    "transactional without producer id": "INVALID_RECORD",
    "control bit in a transaction": "INVALID_RECORD",
}


def recorded():
    """Name, configuration, version, batch, error, offsets, refused records; each case once."""
    lines = (pathlib.Path(__file__).parent / "answers.txt").read_text().splitlines()
    return {line.split("|", 1)[0]: line.split("|") for line in lines}


RECORDED = recorded()


def rules(config, **more):
    option, _, value = config.partition("=")
    return ValidationRules(
        compacted=option == "cleanup.policy",
        codec=target_codec(value) if option == "compression.type" else None,
        timestamp_type=TimestampType(option == "message.timestamp.type"),
        **({"timestamp_before_max_ms": int(value)} if option.endswith("max.ms") else {}),
        **more,
    )


def answer(fields, **more):
    """Our error code, and the batch if it is accepted."""
    _, config, api_version, batch, *_ = fields
    try:
        return "NONE", validate_produced(
            memoryview(bytes.fromhex(batch)),
            rules(config, **more),
            wall_ms=NOW_MS,
            api_version=int(api_version),
        )
    except ApiError as error:
        return error.code.name, error


def test_every_case_was_recorded():
    assert list(RECORDED) == [case.name for case in cases()]
    assert OURS.keys() <= RECORDED.keys()
    assert [name for name in OURS if OURS[name] == RECORDED[name][4]] == []


@pytest.mark.parametrize("check", CHECKS)
@pytest.mark.parametrize("name", RECORDED)
def test_the_answer_to_a_malformed_batch_is_kafkas(name, check):
    fields = RECORDED[name]

    error, verdict = answer(fields, check=check)

    assert error == OURS.get(name, fields[4]), verdict
    errors = verdict.record_errors if isinstance(verdict, RejectedBatchError) else ()
    assert ",".join(str(index) for index, _ in errors) == fields[6]


@pytest.mark.parametrize("check", CHECKS)
def test_an_accepted_batch_can_be_read_and_has_as_many_records_as_offsets(check):
    answered = [(fields[0], *answer(fields, check=check)) for fields in RECORDED.values()]
    accepted = {name: verdict.view for name, error, verdict in answered if error == "NONE"}
    counts = {name: len(list(iter_records(view))) for name, view in accepted.items()}

    assert counts == {name: read_header(view).record_count for name, view in accepted.items()}
    assert len(counts) > 40


@pytest.mark.parametrize("check", CHECKS)
def test_without_checks_of_records_a_count_that_the_bytes_cannot_hold_is_refused(check):
    for name in (name for name in RECORDED if "2^31-1 and its delta" in name):
        error, _ = answer(RECORDED[name], check=check, full=False)
        assert error == "INVALID_RECORD", name


@pytest.mark.parametrize("codec", ["gzip", "snappy", "lz4", "zstd"])
@pytest.mark.parametrize("what", ["garbage", "no data"])
def test_without_checks_of_records_a_body_in_another_format_is_refused(codec, what):
    error, _ = answer(RECORDED[f"{codec}: {what}"], check=plain_check, full=False)

    assert error == "INVALID_RECORD"


@pytest.mark.parametrize("name", ["offset delta with a gap", "zstd: garbage after the data"])
def test_a_follower_accepts_batches_that_a_leader_would_refuse_now(name):
    batch = bytes.fromhex(RECORDED[name][3])

    end, (header,) = validate_replicated(memoryview(batch))

    assert OURS[name] == "INVALID_RECORD"
    assert (end, header) == (len(batch), read_header(batch))
