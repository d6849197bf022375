"""Produce v0-2: messages of formats v0 and v1 are converted when they are appended."""

import time
from itertools import count

import pytest
from tests.unit.broker.live import Live, fetch, part_of, play, produce, produced, soon

from odradek.model.errors import ErrorCode
from odradek.record.batch import iter_batches
from odradek.record.compression import Codec
from odradek.record.conversion import SHORT_BYTES
from odradek.record.message_set import write_messages
from odradek.record.records import Record, iter_records
from odradek.wire.api_keys import ApiKey

T0 = ("t", 0)
TIME = 1_500_000_000_000
VERSIONS = [0, 1, 2]
MAGICS = [0, 1]


def messages(*values, magic=1, codec=Codec.NONE, key=b"k", **fields):
    records = [Record(key, value, TIME, (), offset) for offset, value in enumerate(values)]
    return bytes(write_messages(records, magic=magic, codec=codec, **fields))


async def log_of(live):
    """The batches of the log, and their records."""
    part = part_of(await live.peer().ask(fetch({T0: 0}, max_wait_ms=0), 12))
    data = bytes(part.records)
    headers = [header for _, header in iter_batches(data)]
    records = [
        record
        for position, header in iter_batches(data)
        for record in iter_records(data[position:])
    ]
    return headers, records


def answer_of(response):
    return response.responses[0].partition_responses[0]


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("magic", MAGICS)
def test_messages_are_appended_as_one_batch(version, magic):
    async def story(live: Live):
        await live.topic("t")
        live.append(b"earlier")
        data = messages(b"a", b"b", b"c", magic=magic)
        answer = live.peer().send(produce({T0: data}), version)

        assert answer.done()
        assert produced(answer.result()) == {T0: 1}
        headers, records = await log_of(live)
        stamped = TIME if magic else -1
        assert [(header.magic, header.record_count) for header in headers] == [(2, 1), (2, 3)]
        assert records[1:] == [
            Record(b"k", value, stamped, (), offset)
            for offset, value in enumerate((b"a", b"b", b"c"), 1)
        ]
        assert headers[1].max_timestamp == stamped

    play(story)


@pytest.mark.parametrize("codec", [Codec.GZIP, Codec.SNAPPY, Codec.LZ4])
@pytest.mark.parametrize("magic", MAGICS)
def test_compressed_messages_keep_their_codec(codec, magic):
    async def story(live: Live):
        await live.topic("t")
        data = messages(b"a", b"b", magic=magic, codec=codec)
        assert produced(await soon(live.peer().send(produce({T0: data}), 2))) == {T0: 0}

        (header,), records = await log_of(live)
        assert header.codec == codec
        assert [record.value for record in records] == [b"a", b"b"]

    play(story)


def test_the_topics_codec_and_timestamp_type_are_applied():
    async def story(live: Live):
        await live.topic(
            "t", **{"compression.type": "lz4", "message.timestamp.type": "LogAppendTime"}
        )
        response = await live.peer().ask(produce({T0: messages(b"a", b"b")}), 2)

        answer = answer_of(response)
        (header,), records = await log_of(live)
        assert header.codec == Codec.LZ4
        assert answer.log_append_time_ms == header.max_timestamp == records[0].timestamp > TIME

    play(story)


@pytest.mark.parametrize(
    ("options", "data", "error"),
    [
        ({"cleanup.policy": "compact"}, messages(b"a", key=None), ErrorCode.INVALID_RECORD),
        ({"message.timestamp.before.max.ms": "1000"}, messages(b"a"), ErrorCode.INVALID_TIMESTAMP),
        ({"message.timestamp.before.max.ms": "1000"}, messages(b"a", magic=0), ErrorCode.NONE),
        ({"message.timestamp.type": "LogAppendTime"}, messages(b"a", append_time_ms=1),
         ErrorCode.INVALID_TIMESTAMP),
        ({}, messages(b"a", append_time_ms=1), ErrorCode.NONE),
        ({"max.message.bytes": "200"}, messages(bytes(300)), ErrorCode.MESSAGE_TOO_LARGE),
        ({"max.message.bytes": "200"}, messages(bytes(100)) * 2, ErrorCode.MESSAGE_TOO_LARGE),
        ({"max.message.bytes": "200"}, messages(bytes(9_000), codec=Codec.GZIP), ErrorCode.NONE),
        ({}, messages(b"a") + messages(b"b", magic=0), ErrorCode.INVALID_RECORD),
        ({}, messages(b"a", codec=Codec.GZIP) * 2, ErrorCode.INVALID_RECORD),
        ({}, messages(b"a")[:-1] + b"b", ErrorCode.CORRUPT_MESSAGE),
    ],
)  # fmt: skip
def test_the_rules_of_the_topic_are_kafkas(options, data, error):
    async def story(live: Live):
        await live.topic("t", **options)
        assert answer_of(await soon(live.peer().send(produce({T0: data}), 2))).error_code == error

    play(story)


@pytest.mark.parametrize("data", [b"", bytes(11), messages(b"a")[:-1]])
def test_a_set_without_whole_messages_gets_no_error_and_no_offset(data):
    async def story(live: Live):
        await live.topic("t")
        answer = answer_of(await live.peer().ask(produce({T0: data}), 2))

        assert (answer.error_code, answer.base_offset) == (ErrorCode.NONE, -1)
        assert live.log().leo == 0

    play(story)


def test_a_long_conversion_waits_for_the_worker_and_later_requests_stay_behind_it():
    async def story(live: Live):
        await live.topic("t", 2)
        peer = live.peer()
        long = messages(*[b"v" * 100] * (SHORT_BYTES // 100))
        first = peer.send(produce({T0: long}), 2)
        second = peer.send(produce({T0: messages(b"b")}), 2)
        other = live.peer().send(produce({("t", 1): messages(b"c")}), 2)

        assert [each.done() for each in (first, second, other)] == [False, False, True]
        assert produced(await soon(first)) == {T0: 0}
        assert produced(await soon(second)) == {T0: SHORT_BYTES // 100}

    play(story)


def test_what_waits_for_the_worker_does_not_depend_on_how_busy_the_machine_is(monkeypatch):
    clock = count(step=10_000_000)  # each conversion seems to take 10 ms
    monkeypatch.setattr(time, "perf_counter_ns", lambda: next(clock))

    async def story(live: Live):
        await live.topic("t")
        peer = live.peer()
        answers = [peer.send(produce({T0: messages(b"a")}), 2) for _ in range(3)]
        assert [each.done() for each in answers] == [True, True, True]

    play(story)


def test_without_acknowledgement_nothing_is_answered():
    async def story(live: Live):
        await live.topic("t")
        peer = live.peer()
        peer.send(produce({T0: messages(b"a")}, acks=0), 1, answered=False)
        assert produced(await peer.ask(produce({T0: messages(b"b")}), 1)) == {T0: 1}

    play(story)


def test_conversions_are_counted():
    async def story(live: Live):
        await live.topic("t")
        await live.peer().ask(produce({T0: messages(b"a", b"b", b"c")}), 2)
        await live.peer().ask(produce({T0: live.batch(b"d")}))

        metrics = live.broker.metrics
        assert metrics.topics["t"].produce_conversions == 3
        assert sum(metrics.conversions[ApiKey.PRODUCE].time_ms.counts) == 1

    play(story)
