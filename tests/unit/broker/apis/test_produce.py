"""Produce: what is appended, when it is answered, and the error of each refusal."""

import asyncio
from functools import partial

import pytest
from tests.unit.broker.live import LOG_DIRS, fetch, fetched, part_of, play, produce, produced, soon

from odradek.broker.serving.session import AllowAll
from odradek.model.acl import AclOperation, ResourceType
from odradek.model.errors import ErrorCode
from odradek.record.batch import read_header, sign
from odradek.record.compression import Codec
from odradek.record.control import ControlType, Marker, build_marker
from odradek.record.records import Record, build_batch
from odradek.sim.world.disk import DiskFault
from odradek.wire.messages.fetch import FetchPartition
from odradek.wire.messages.stop_replica import (
    StopReplicaPartitionState,
    StopReplicaRequest,
    StopReplicaTopicState,
)

T0 = ("t", 0)
NEVER_MS = 600_000


class Denying(AllowAll):
    def __init__(self, *denied):
        self.denied = denied

    def authorize(self, session, operation, resource_type, name, *, is_logged=True):
        return (operation, resource_type, name) not in self.denied


def only(response):
    (topic,) = response.responses
    (part,) = topic.partition_responses
    return part


# ---------------------------------------------------------------------------- acknowledgement


def test_acks_1_is_answered_by_the_leader_alone():
    async def story(live):
        await live.order()
        answer = live.peer().send(produce(live.batch(b"a", b"b"), acks=1))

        assert answer.done(), "nothing to wait for"
        part = only(answer.result())
        assert (part.error_code, part.base_offset, part.log_start_offset) == (0, 0, 0)
        assert part.log_append_time_ms == -1, "the producer's stamps stand"
        assert (live.log().leo, live.log().high_watermark) == (2, 0)

    play(story)


def test_batches_that_are_committed_together_are_answered_in_one_write_to_each_producer():
    async def story(live):
        await live.order(replicas=(0, 2))
        writes = []
        answers = []
        for name in ("one", "other"):
            peer = live.peer()
            received = peer.data_received
            peer.data_received = lambda data, name=name, received=received: (
                writes.append(name), received(data)
            )  # fmt: skip
            answers += [peer.send(produce(live.batch(b"a"), acks=-1)) for _ in range(3)]
        assert writes == []
        await live.peer().ask(
            fetch({T0: FetchPartition(fetch_offset=6, partition_max_bytes=1)}, replica_id=2), 12
        )

        assert [only(answer.result()).base_offset for answer in answers] == [0, 1, 2, 3, 4, 5]
        assert writes == ["one", "other"]

    play(story)


def test_acks_0_is_appended_and_never_answered():
    async def story(live):
        await live.topic("t")
        peer = live.peer()
        peer.send(produce(live.batch(b"a"), acks=0), answered=False)
        second = await peer.ask(produce(live.batch(b"b"), acks=1))

        assert produced(second) == {T0: 1}
        assert not peer.closed

    play(story)


def test_acks_0_that_fails_ends_the_connection():
    async def story(live):
        peer = live.peer()
        peer.send(produce(live.batch(b"a"), "absent", acks=0), answered=False)

        assert peer.closed

    play(story)


def test_acks_all_waits_until_every_replica_in_sync_has_it():
    async def story(live):
        await live.order()
        answer = live.peer().send(produce(live.batch(b"a"), acks=-1, timeout_ms=NEVER_MS))
        follower = live.peer()
        for replica in (2, 3):
            assert not answer.done()
            request = fetch({T0: 1}, replica_id=replica, max_wait_ms=0)
            await follower.ask(request, 12)

        assert produced(await soon(answer)) == {T0: 0}

    play(story)


def test_acks_all_on_a_single_replica_is_answered_at_once():
    async def story(live):
        await live.topic("t")
        answer = live.peer().send(produce(live.batch(b"a"), acks=-1))

        assert answer.done()
        assert produced(answer.result()) == {T0: 0}

    play(story)


def test_a_waiting_produce_does_not_hold_up_the_next_ones_and_answers_keep_their_order():
    async def story(live):
        await live.order()
        peer = live.peer()
        waiting = peer.send(produce(live.batch(b"a"), acks=-1, timeout_ms=NEVER_MS))
        behind = peer.send(produce(live.batch(b"b"), acks=1))

        assert live.log().leo == 2, "it was read and appended meanwhile"
        assert not behind.done()
        for replica in (2, 3):
            request = fetch({T0: 1}, replica_id=replica, max_wait_ms=0)
            await live.peer().ask(request, 12)
        assert produced(await soon(waiting)) == {T0: 0}
        assert produced(await soon(behind)) == {T0: 1}

    play(story)


def test_a_produce_waits_for_all_its_partitions():
    async def story(live):
        await live.order(partitions=2, replicas=(0, 2))
        both = {T0: live.batch(b"a"), ("t", 1): live.batch(b"b")}
        answer = live.peer().send(produce(both, acks=-1, timeout_ms=NEVER_MS))
        await live.peer().ask(fetch({("t", 1): 1}, replica_id=2, max_wait_ms=0), 12)
        assert not answer.done()

        await live.peer().ask(fetch({T0: 1}, replica_id=2, max_wait_ms=0), 12)
        assert produced(await soon(answer)) == {T0: 0, ("t", 1): 0}

    play(story)


def test_the_time_is_up():
    async def story(live):
        await live.order()
        started = live.loop.time()
        answer = await live.peer().ask(produce(live.batch(b"a"), acks=-1, timeout_ms=250))

        assert produced(answer) == {T0: ErrorCode.REQUEST_TIMED_OUT}
        assert 0.25 <= live.loop.time() - started < 0.27
        assert live.log().leo == 1, "it stays appended"

    play(story)


def test_a_request_that_timed_out_is_removed():
    async def story(live):
        await live.order()
        for _ in range(20):
            await live.peer().ask(produce(live.batch(b"a"), acks=-1, timeout_ms=10))
        assert len(live.partition()._produces) == 1

    play(story)


# ------------------------------------------------------------------------- waiting requests


async def waiting_produce(live, partitions=1):
    await live.order(partitions=partitions)
    batches = {("t", n): live.batch(b"a") for n in range(partitions)}
    answer = live.peer().send(produce(batches, acks=-1, timeout_ms=NEVER_MS))
    assert not answer.done()
    return answer


def test_leadership_lost_while_waiting():
    async def story(live):
        answer = await waiting_produce(live)
        await live.order(leader=2, leader_epoch=1)

        assert produced(await soon(answer)) == {T0: ErrorCode.NOT_LEADER_OR_FOLLOWER}
        assert live.broker.purgatory.size == 0

    play(story)


def test_a_newer_epoch_of_the_same_leader_does_not_end_the_waiting():
    async def story(live):
        answer = await waiting_produce(live)
        await live.order(leader_epoch=1)
        assert not answer.done()
        await live.order(leader_epoch=2, isr=(0,))

        assert produced(await soon(answer)) == {T0: 0}, "the others are not in sync any longer"

    play(story)


def test_the_isr_shrank_below_what_is_needed_while_waiting():
    async def story(live):
        answer = await waiting_produce(live)
        live.broker.settings.set_topic("t", {"min.insync.replicas": "2"})
        await live.order(leader_epoch=1, isr=(0,))
        assert not answer.done(), "the high watermark does not move with too few in sync"

        live.broker.settings.set_topic("t", {"min.insync.replicas": "1"})
        assert produced(await soon(answer)) == {T0: 0}

    play(story)


def test_the_topic_deleted_while_waiting():
    async def story(live):
        answer = await waiting_produce(live)
        gate = live.broker.controller_requests
        await gate.stop_replica(
            StopReplicaRequest(
                controller_epoch=gate.controller_epoch,
                broker_epoch=gate.broker_epoch,
                topic_states=[
                    StopReplicaTopicState(
                        topic_name="t",
                        partition_states=[
                            StopReplicaPartitionState(
                                partition_index=0, leader_epoch=-2, delete_partition=True
                            )
                        ],
                    )
                ],
            )
        )

        assert produced(await soon(answer)) == {T0: ErrorCode.UNKNOWN_TOPIC_OR_PARTITION}

    play(story)


def test_the_broker_stops_while_waiting():
    async def story(live):
        answer = await waiting_produce(live)
        await live.broker.stop()

        assert produced(answer.result()) == {T0: ErrorCode.NOT_LEADER_OR_FOLLOWER}

    play(story)


def test_the_directory_fails_while_waiting():
    async def story(live):
        answer = await waiting_produce(live, partitions=2)
        lost = live.broker.logs.directory_of(live.log())
        live.disk.lose(lost)
        await live.peer().ask(produce(live.batch(b"b"), acks=1))
        assert not answer.done(), "the other partition is in the other directory"
        for replica in (2, 3):
            request = fetch({("t", 1): 1}, replica_id=replica, max_wait_ms=0)
            await live.peer().ask(request, 12)

        assert produced(await soon(answer)) == {T0: ErrorCode.KAFKA_STORAGE_ERROR, ("t", 1): 0}

    play(story)


def test_a_peer_that_went_away_is_not_answered_and_not_kept():
    async def story(live):
        await live.order()
        peer = live.peer()
        peer.send(produce(live.batch(b"a"), acks=-1, timeout_ms=NEVER_MS))
        assert live.broker.purgatory.size == 1
        peer.hang_up()
        await asyncio.sleep(0.01)
        assert live.broker.purgatory.size == 0
        for replica in (2, 3):  # what it wrote is committed all the same
            await live.peer().ask(fetch({T0: 1}, replica_id=replica, max_wait_ms=0), 12)

        assert live.log().high_watermark == 1

    play(story)


# ------------------------------------------------------------------------------- refusals


def test_each_partition_succeeds_or_fails_on_its_own():
    async def story(live):
        await live.topic("t", 2)
        await live.order("followed", leader=2)
        answer = await live.peer().ask(
            produce(
                {
                    T0: live.batch(b"a"),
                    ("t", 1): b"\0" * 80,
                    ("t", 7): live.batch(b"a"),
                    ("absent", 0): live.batch(b"a"),
                    ("followed", 0): live.batch(b"a"),
                }
            )
        )

        assert produced(answer) == {
            T0: 0,
            ("t", 1): ErrorCode.CORRUPT_MESSAGE,
            ("t", 7): ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
            ("absent", 0): ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
            ("followed", 0): ErrorCode.NOT_LEADER_OR_FOLLOWER,
        }

    play(story)


@pytest.mark.parametrize("acks", [2, -2, 32_767])
def test_acks_that_mean_nothing(acks):
    async def story(live):
        await live.topic("t")
        answer = await live.peer().ask(produce(live.batch(b"a"), acks=acks))

        assert produced(answer) == {T0: ErrorCode.INVALID_REQUIRED_ACKS}
        assert live.log().leo == 0

    play(story)


def test_too_few_in_sync_and_nothing_is_appended():
    async def story(live):
        await live.order(isr=(0,))
        live.broker.settings.set_topic("t", {"min.insync.replicas": "2"})
        peer = live.peer()

        assert produced(await peer.ask(produce(live.batch(b"a"), acks=-1))) == {
            T0: ErrorCode.NOT_ENOUGH_REPLICAS
        }
        assert live.log().leo == 0
        assert produced(await peer.ask(produce(live.batch(b"a"), acks=1))) == {T0: 0}

    play(story)


def test_a_batch_too_large():
    async def story(live):
        await live.topic("t", max_message_bytes=200)
        peer = live.peer()
        part = only(await peer.ask(produce(live.batch(b"x" * 300))))

        assert part.error_code == ErrorCode.MESSAGE_TOO_LARGE
        assert "max.message.bytes=200" in part.error_message
        assert produced(await peer.ask(produce(live.batch(b"x" * 10)))) == {T0: 0}

    play(story)


def test_a_bad_checksum():
    async def story(live):
        await live.topic("t")
        batch = bytearray(live.batch(b"a"))
        batch[-1] ^= 1

        part = only(await live.peer().ask(produce(bytes(batch))))
        assert part.error_code == ErrorCode.CORRUPT_MESSAGE
        assert live.log().leo == 0

    play(story)


def test_no_batch_and_two_batches():
    async def story(live):
        await live.topic("t")
        peer = live.peer()
        two = live.batch(b"a") + live.batch(b"b")

        for records in (b"", two):
            part = only(await peer.ask(produce(records)))
            assert part.error_code == ErrorCode.INVALID_RECORD
        part = only(await peer.ask(produce(None)))
        assert part.error_code == ErrorCode.INVALID_RECORD
        assert live.log().leo == 0

    play(story)


def test_a_compacted_topic_blames_the_records_without_a_key():
    async def story(live):
        await live.topic("t", cleanup_policy="compact")
        batch = build_batch(
            [
                Record(b"k", b"a", 1),
                Record(None, b"b", 1),
                Record(b"k", b"c", 1),
                Record(None, b"d", 1),
            ]
        )
        part = only(await live.peer().ask(produce(batch)))

        assert part.error_code == ErrorCode.INVALID_RECORD
        assert [error.batch_index for error in part.record_errors] == [1, 3]
        assert "key" in part.record_errors[0].batch_index_error_message
        assert live.log().leo == 0

    play(story)


def test_records_stamped_too_far_ahead_are_blamed():
    async def story(live):
        await live.topic("t", message_timestamp_after_max_ms=1000)
        now_ms = live.clock.wall_ms()
        batch = build_batch([Record(None, b"a", now_ms), Record(None, b"b", now_ms + 1001)])
        part = only(await live.peer().ask(produce(batch)))

        assert part.error_code == ErrorCode.INVALID_TIMESTAMP
        assert [error.batch_index for error in part.record_errors] == [1]

    play(story)


def test_log_append_time_is_the_brokers():
    async def story(live):
        await live.topic("t", message_timestamp_type="LogAppendTime")
        await asyncio.sleep(3.0)
        now_ms = live.clock.wall_ms()
        peer = live.peer()
        part = only(await peer.ask(produce(build_batch([Record(None, b"a", 5)]))))
        found = part_of(await peer.ask(fetch({T0: 0}), 12))

        assert part.log_append_time_ms == now_ms
        assert read_header(found.records).max_timestamp == now_ms

    play(story)


def test_internal_topics_are_not_for_clients_to_write():
    async def story(live):
        await live.topic("__consumer_offsets")
        peer = live.peer()
        batch = build_batch([Record(b"k", b"v", 1)])
        name = ("__consumer_offsets", 0)

        assert produced(await peer.ask(produce(batch, *name))) == {
            name: ErrorCode.INVALID_TOPIC_EXCEPTION
        }
        peer.client_id = "__admin_client"
        assert produced(await peer.ask(produce(batch, *name))) == {name: 0}

    play(story)


def test_markers_are_not_for_clients_to_write():
    async def story(live):
        await live.topic("t")
        marker = build_marker(
            Marker(ControlType.COMMIT, 0), producer_id=1, producer_epoch=0, timestamp=1
        )
        answer = await live.peer().ask(produce(marker, transactional_id="x"))

        assert produced(answer) == {T0: ErrorCode.INVALID_RECORD}

    play(story)


def test_zstd_only_in_versions_that_have_it():
    async def story(live):
        await live.topic("t")
        peer = live.peer()
        batch = live.batch(b"a" * 100, codec=Codec.ZSTD)

        assert produced(await peer.ask(produce(batch), 6)) == {
            T0: ErrorCode.UNSUPPORTED_COMPRESSION_TYPE
        }
        assert produced(await peer.ask(produce(batch), 7)) == {T0: 0}

    play(story)


def test_a_broken_body_where_the_records_have_to_be_seen():
    async def story(live):
        await live.topic("t", cleanup_policy="compact")
        batch = bytearray(build_batch([Record(b"k", b"v" * 200, 1)], codec=Codec.GZIP))
        batch[80] ^= 0xFF
        sign(batch)
        answer = await live.peer().ask(produce(bytes(batch)))

        assert produced(answer)[T0] in (ErrorCode.CORRUPT_MESSAGE, ErrorCode.INVALID_RECORD)
        assert live.log().leo == 0

    play(story)


# -------------------------------------------------------------------------- authorization


def test_a_topic_that_may_not_be_written_fails_alone():
    async def story(live):
        await live.topic("t")
        await live.topic("secret")
        live.authorizer.chosen = Denying(
            (AclOperation.WRITE, ResourceType.TOPIC, "secret"),
            (AclOperation.WRITE, ResourceType.TOPIC, "absent"),
        )
        answer = await live.peer().ask(
            produce(
                {
                    T0: live.batch(b"a"),
                    ("secret", 0): live.batch(b"a"),
                    ("absent", 0): live.batch(b"a"),
                }
            )
        )

        assert produced(answer) == {
            T0: 0,
            ("secret", 0): ErrorCode.TOPIC_AUTHORIZATION_FAILED,
            ("absent", 0): ErrorCode.TOPIC_AUTHORIZATION_FAILED,
        }, "whether it exists does not show"
        assert live.log("secret").leo == 0

    play(story)


def test_a_transactional_id_that_may_not_be_used_fails_the_whole_request():
    async def story(live):
        await live.topic("t")
        live.authorizer.chosen = Denying((AclOperation.WRITE, ResourceType.TRANSACTIONAL_ID, "x"))
        batch = live.batch(
            b"a", producer_id=5, producer_epoch=0, base_sequence=0, transactional=True
        )
        peer = live.peer()
        answer = await peer.ask(produce(batch, transactional_id="x"))

        assert produced(answer) == {T0: ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED}
        assert live.log().leo == 0

    play(story)


def test_a_transactional_batch_gets_in_with_its_id():
    async def story(live):
        await live.topic("t")
        batch = live.batch(
            b"a", producer_id=5, producer_epoch=0, base_sequence=0, transactional=True
        )
        answer = await live.peer().ask(produce(batch, transactional_id="x"), 11)
        assert produced(answer) == {T0: 0}
        assert live.log().last_stable_offset == 0

    play(story, transaction_partition_verification_enable="false")


def test_a_transactional_batch_does_not_get_in_without_its_id():
    async def story(live):
        await live.topic("t")
        batch = live.batch(
            b"a", producer_id=5, producer_epoch=0, base_sequence=0, transactional=True
        )
        answer = await live.peer().ask(produce(batch))

        assert produced(answer) == {T0: ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED}
        assert live.log().leo == 0

    play(story)


# ------------------------------------------------------------------- idempotent producers


def sequenced(live, sequence, count=1, epoch=0):
    return live.batch(*[b"x"] * count, producer_id=7, producer_epoch=epoch, base_sequence=sequence)


def test_a_batch_sent_again_is_answered_with_its_offset_and_not_appended():
    async def story(live):
        await live.topic("t")
        peer = live.peer()
        for sequence in (0, 3, 6):
            await peer.ask(produce(sequenced(live, sequence, 3), acks=-1))

        assert produced(await peer.ask(produce(sequenced(live, 3, 3), acks=-1))) == {T0: 3}
        assert live.log().leo == 9

    play(story)


def test_a_duplicate_waits_for_its_own_commit():
    async def story(live):
        await live.order()
        peer = live.peer()
        first = peer.send(produce(sequenced(live, 0), acks=-1, timeout_ms=100))
        assert produced(await first) == {T0: ErrorCode.REQUEST_TIMED_OUT}
        again = peer.send(produce(sequenced(live, 0), acks=-1, timeout_ms=NEVER_MS))
        assert not again.done()
        for replica in (2, 3):
            await live.peer().ask(fetch({T0: 1}, replica_id=replica, max_wait_ms=0), 12)

        assert produced(await soon(again)) == {T0: 0}
        assert live.log().leo == 1

    play(story)


def test_a_gap_in_the_sequence_and_an_older_epoch():
    async def story(live):
        await live.topic("t")
        peer = live.peer()
        await peer.ask(produce(sequenced(live, 0)))

        assert produced(await peer.ask(produce(sequenced(live, 2)))) == {
            T0: ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
        }
        assert produced(await peer.ask(produce(sequenced(live, 0, epoch=1)))) == {T0: 1}
        assert produced(await peer.ask(produce(sequenced(live, 1, epoch=0)))) == {
            T0: ErrorCode.INVALID_PRODUCER_EPOCH
        }

    play(story)


def set_min_isr(live, count):
    live.broker.settings.set_topic("t", {"min.insync.replicas": str(count)})


@pytest.mark.parametrize("has_closed", [True, False])
def test_a_batch_behind_one_that_was_refused_for_the_moment_is_refused_alike(has_closed):
    """The ISR grows between two batches in flight; the producer sends both again, in order."""

    async def story(live):
        await live.order(isr=(0,))
        peer, other = live.peer(), live.peer()
        ask = partial(answer_to, live, peer)
        assert await ask(0) == 0
        set_min_isr(live, 2)
        assert await ask(1) is ErrorCode.NOT_ENOUGH_REPLICAS
        set_min_isr(live, 1)
        assert await ask(2) is ErrorCode.NOT_ENOUGH_REPLICAS
        assert await answer_to(live, other, 2) is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
        assert await ask(3) is ErrorCode.NOT_ENOUGH_REPLICAS
        again = (1, 2) if has_closed else ()
        assert [await ask(sequence) for sequence in again] == list(again)
        await asyncio.sleep(0 if has_closed else 10)
        assert await ask(4) is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER

    play(story)


def test_a_lasting_gap_is_answered_as_out_of_order_after_a_while():
    async def story(live):
        await live.order(isr=(0,))
        peer = live.peer()
        assert await answer_to(live, peer, 0) == 0
        set_min_isr(live, 2)
        assert await answer_to(live, peer, 1) is ErrorCode.NOT_ENOUGH_REPLICAS
        set_min_isr(live, 1)
        answers = set()
        for _ in range(11):
            answers.add(await answer_to(live, peer, 2))
            await asyncio.sleep(1)
        assert answers == {
            ErrorCode.NOT_ENOUGH_REPLICAS, ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
        }  # fmt: skip

    play(story)


async def answer_to(live, peer, sequence):
    return produced(await peer.ask(produce(sequenced(live, sequence), acks=-1)))[T0]


# ----------------------------------------------------------------------------- the disk


def test_a_disk_that_fails_takes_its_partitions_and_no_others():
    async def story(live):
        await live.topic("t", 4)
        held = {n: live.broker.logs.directory_of(live.log(index=n)) for n in range(4)}
        assert set(held.values()) == set(LOG_DIRS)
        lost = held[0]
        live.disk.faults.append(DiskFault("write", f"{lost}/t-0/"))
        peer = live.peer()
        answer = await peer.ask(produce({("t", n): live.batch(b"a") for n in range(4)}))

        storage = ErrorCode.KAFKA_STORAGE_ERROR
        assert produced(answer) == {
            ("t", n): storage if path == lost else 0 for n, path in held.items()
        }
        assert live.broker.logs.is_offline(lost)
        assert produced(await peer.ask(produce(live.batch(b"a")))) == {T0: storage}
        assert not peer.closed
        assert not live.fatal

    play(story)


def test_a_disk_that_fails_the_second_partition_of_a_request_that_waits_for_the_first():
    async def story(live):
        await live.order(partitions=3, replicas=(0, 2))
        lost = live.broker.logs.directory_of(live.log())
        assert lost == live.broker.logs.directory_of(live.log(index=2))
        live.disk.faults.append(DiskFault("write", f"{lost}/t-2/"))
        batches = {("t", n): live.batch(b"a") for n in (0, 2)}
        answer = live.peer().send(produce(batches, acks=-1, timeout_ms=NEVER_MS))

        storage = ErrorCode.KAFKA_STORAGE_ERROR
        assert produced(answer.result()) == {T0: storage, ("t", 2): storage}
        assert live.broker.purgatory.size == 0

    play(story)


def test_a_full_disk_is_a_failing_disk():
    async def story(live):
        await live.topic("t")
        live.disk.capacity_bytes = 0
        answer = await live.peer().ask(produce(live.batch(b"a" * 5000)))

        assert produced(answer) == {T0: ErrorCode.KAFKA_STORAGE_ERROR}
        live.disk.capacity_bytes = 1 << 40

    play(story)


def test_with_the_last_directory_the_broker_gives_up():
    async def story(live):
        await live.topic("t", 2)
        for path in LOG_DIRS:
            live.disk.lose(path)
        answer = await live.peer().ask(produce({("t", n): live.batch(b"a") for n in range(2)}))

        assert set(produced(answer).values()) == {ErrorCode.KAFKA_STORAGE_ERROR}
        assert live.fatal
        assert "the last of log.dirs has failed: /data/" in live.fatal[0]
        live.disk.faults.clear()

    play(story)


def test_what_was_refused_for_the_disk_is_not_read_by_others():
    async def story(live):
        await live.topic("t")
        peer = live.peer()
        await peer.ask(produce(live.batch(b"a")))
        live.disk.faults.append(DiskFault("write", "t-0/"))
        await peer.ask(produce(live.batch(b"b")))

        assert fetched(await peer.ask(fetch({T0: 0}), 12)) == {T0: ErrorCode.KAFKA_STORAGE_ERROR}

    play(story)
