"""Fetch v0-9: records are converted for consumers older than 0.11; codecs that they do not know."""

import pytest
from tests.unit.broker.live import Live, OwnSocket, fetch, part_of, play, produce, soon

from odradek.model.errors import ErrorCode
from odradek.record.compression import Codec
from odradek.record.control import ControlType
from odradek.record.conversion import SHORT_BYTES
from odradek.record.message_set import iter_messages, iter_records
from odradek.record.records import Record, build_batch
from odradek.wire.api_keys import ApiKey
from odradek.wire.messages.fetch import FetchPartition

T0 = ("t", 0)
T1 = ("t", 1)
TIME = 1_500_000_000_000
NEVER_MS = 600_000
CONVERTED = [0, 1, 2, 3]
IN_TRANSACTION = {"producer_id": 7, "producer_epoch": 0, "transactional": True}


def batch(*values, codec=Codec.NONE, **fields):
    headers = (("h", b"x"),)
    return build_batch(
        [Record(b"k", value, TIME + index, headers) for index, value in enumerate(values)],
        codec=codec,
        **fields,
    )


def send(live, offsets, version, **more):
    return live.peer().send(fetch(offsets, **{"max_wait_ms": 0, **more}), version)


async def read(live, offset, version, **more):
    part = part_of(await soon(send(live, {T0: offset}, version, **more)))
    return part.error_code, messages_in(part.records)


def messages_in(data):
    return list(iter_messages(bytes(data or b"")))


def records_in(messages):
    return [record for message in messages for record in iter_records(message)]


@pytest.mark.parametrize("version", CONVERTED)
@pytest.mark.parametrize("codec", [Codec.NONE, Codec.GZIP, Codec.SNAPPY, Codec.LZ4])
def test_batches_become_messages(version, codec):
    async def story(live: Live):
        await live.topic("t")
        live.append_batch(batch(b"first"))
        live.append_batch(batch(b"a", b"b", codec=codec))
        error, messages = await read(live, 0, version)

        magic = int(version >= 2)
        times = (TIME, TIME + 1) if magic else (-1, -1)
        assert error == ErrorCode.NONE
        assert {message.magic for message in messages} == {magic}
        assert [message.codec for message in messages[1:]] == ([codec] if codec else [0, 0])
        assert records_in(messages)[1:] == [
            Record(b"k", b"a", times[0], (), 1),
            Record(b"k", b"b", times[1], (), 2),
        ]

    play(story)


def test_records_before_the_offset_are_left_out_except_of_a_compressed_batch():
    async def story(live: Live):
        await live.topic("t")
        live.append_batch(batch(b"a", b"b", b"c"))
        live.append_batch(batch(b"d", b"e", b"f", codec=Codec.GZIP))

        _, plain = await read(live, 2, 3)
        _, compressed = await read(live, 4, 3)
        assert [record.offset for record in records_in(plain)] == [2, 3, 4, 5]
        assert [record.offset for record in records_in(compressed)] == [3, 4, 5]
        assert [message.offset for message in compressed] == [5]

    play(story)


def test_many_records_are_converted_in_memory_although_files_may_be_sent():
    async def story(live: Live):
        await live.topic("t", max_message_bytes=str(2 << 20))
        live.append(b"x" * 300_000)
        answer = await live.peer(own_socket=OwnSocket()).ask(fetch({T0: 0}, max_wait_ms=0), 1)
        records = records_in(messages_in(part_of(answer).records))
        assert [record.value for record in records] == [b"x" * 300_000]

    play(story)


def test_the_append_time_is_that_of_all_messages():
    async def story(live: Live):
        await live.topic("t", **{"message.timestamp.type": "LogAppendTime"})
        await live.peer().ask(produce({T0: batch(b"a", b"b", codec=Codec.GZIP)}))
        _, (message,) = await read(live, 0, 2)

        assert message.has_append_time
        assert {record.timestamp for record in records_in([message])} == {message.timestamp}

    play(story)


def test_transactions_are_read_without_their_markers():
    async def story(live: Live):
        await live.topic("t")
        live.append(b"aborted", base_sequence=0, **IN_TRANSACTION)
        live.mark(ControlType.ABORT, 7)
        live.append(b"committed", base_sequence=1, **IN_TRANSACTION)
        live.mark(ControlType.COMMIT, 7)
        _, messages = await read(live, 0, 2)

        assert [(message.offset, message.value) for message in messages] == [
            (0, b"aborted"),
            (2, b"committed"),
        ]

    play(story)


def test_a_fetch_at_a_marker_waits_for_the_records_after_it():
    async def story(live: Live):
        await live.topic("t")
        live.append(b"a", base_sequence=0, **IN_TRANSACTION)
        live.mark(ControlType.COMMIT, 7)
        answer = send(live, {T0: 1}, 2, max_wait_ms=NEVER_MS)
        assert not answer.done()
        live.append(b"b")

        part = part_of(await soon(answer))
        assert [message.offset for message in messages_in(part.records)] == [2]

    play(story)


def test_a_fetch_at_a_marker_ends_without_records_when_its_time_is_up():
    async def story(live: Live):
        await live.topic("t")
        live.append(b"a", base_sequence=0, **IN_TRANSACTION)
        live.mark(ControlType.COMMIT, 7)
        part = part_of(await soon(send(live, {T0: 1}, 2, max_wait_ms=20)))

        assert (part.error_code, part.high_watermark, bytes(part.records)) == (0, 2, b"")

    play(story)


@pytest.mark.parametrize("version", CONVERTED)
def test_the_first_batch_is_answered_as_a_whole_however_large(version):
    async def story(live: Live):
        await live.topic("t")
        live.append(b"x" * 3_000)
        live.append(b"y" * 3_000)
        _, messages = await read(
            live, FetchPartition(fetch_offset=0, partition_max_bytes=100), version
        )

        assert [message.value for message in messages] == [b"x" * 3_000]

    play(story)


def test_a_long_conversion_waits_for_the_worker_and_others_do_not():
    async def story(live: Live):
        await live.topic("t", 2)
        live.append(*[b"v" * 100] * (SHORT_BYTES // 100))
        live.append(b"other", index=1)
        waiting = send(live, {T0: 0}, 2)
        at_once = send(live, {T1: 0}, 2)

        assert not waiting.done()
        assert [each.value for each in messages_in(part_of(at_once.result(), "t", 1).records)] == [
            b"other"
        ]
        assert len(messages_in(part_of(await soon(waiting)).records)) == SHORT_BYTES // 100
        assert live.broker.purgatory.size == 0

    play(story)


def test_a_response_holds_about_a_mebibyte_and_partitions_take_turns_in_being_first():
    async def story(live: Live):
        await live.topic("t", 2)
        for index in (0, 1):
            for _ in range(3):
                live.append(bytes(700_000), index=index)
        firsts = set()
        peer = live.peer()
        for _ in range(20):
            answer = await soon(peer.send(fetch({T0: 0, T1: 0}, max_wait_ms=0), 2))
            (full,) = (
                part.partition_index
                for topic in answer.responses
                for part in topic.partitions
                if len(part.records) > 0
            )
            firsts.add(full)

        assert firsts == {0, 1}

    play(story)


@pytest.mark.parametrize("version", CONVERTED)
def test_conversion_can_be_disabled(version):
    async def story(live: Live):
        await live.topic("t", **{"message.downconversion.enable": "false"})
        live.append(b"a")

        assert await read(live, 0, version) == (ErrorCode.UNSUPPORTED_VERSION, [])
        part = part_of(await soon(send(live, {T0: 0}, 4)))
        assert (part.error_code, len(part.records) > 0) == (ErrorCode.NONE, True)

    play(story)


@pytest.mark.parametrize("version", [0, 3, 4, 9, 10])
def test_a_topic_with_zstd_is_refused_before_fetch_v10(version):
    async def story(live: Live):
        await live.topic("t", **{"compression.type": "zstd"})
        part = part_of(await soon(send(live, {T0: 0}, version)))

        refused = ErrorCode.UNSUPPORTED_COMPRESSION_TYPE
        assert part.error_code == (refused if version < 10 else ErrorCode.NONE)

    play(story)


def test_a_batch_in_zstd_cannot_be_converted():
    async def story(live: Live):
        await live.topic("t")
        live.append(b"a")
        live.append(b"b", codec=Codec.ZSTD)

        error, messages = await read(live, 0, 2)
        assert (error, [message.value for message in messages]) == (ErrorCode.NONE, [b"a"])
        assert await read(live, 1, 2) == (ErrorCode.UNSUPPORTED_COMPRESSION_TYPE, [])

    play(story)


def test_offsets_out_of_range_are_refused():
    async def story(live: Live):
        await live.topic("t")
        assert await read(live, 9, 0) == (ErrorCode.OFFSET_OUT_OF_RANGE, [])

    play(story)


def test_a_client_that_disconnects_ends_its_waiting_fetch():
    async def story(live: Live):
        await live.topic("t")
        live.append(*[b"v" * 100] * (SHORT_BYTES // 100))
        peers = [live.peer(), live.peer()]
        for peer, offset in zip(peers, (0, SHORT_BYTES // 100), strict=True):
            peer.send(fetch({T0: offset}, max_wait_ms=NEVER_MS), 2)
        for peer in peers:
            peer.hang_up()
        await live.until(lambda: live.broker.purgatory.size == 0)

    play(story)


def test_conversions_are_counted():
    async def story(live: Live):
        await live.topic("t")
        live.append(b"a", b"b")
        await read(live, 0, 2)
        await soon(send(live, {T0: 0}, 4))

        metrics = live.broker.metrics
        assert metrics.topics["t"].fetch_conversions == 2
        assert sum(metrics.conversions[ApiKey.FETCH].time_ms.counts) == 1

    play(story)
