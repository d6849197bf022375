"""The replicas of a broker: which requests change their roles, and the errors for others."""

import asyncio
import errno
import logging
from dataclasses import replace

import pytest
from tests.unit.broker.live import LOG_DIRS, fetch, fetched, play, produce, produced, soon

from odradek.broker.replication.replica_manager import LeaderAndIsrPartition, StopReplicaPartition
from odradek.log.checkpoints import HIGH_WATERMARK_FILE, decode_offsets
from odradek.model.errors import ErrorCode
from odradek.model.partition import LEADER_DURING_DELETE, RECOVERING, LeaderAndIsr, TopicPartition
from odradek.sim.world.disk import DiskFault
from odradek.wire.messages.update_metadata import (
    UpdateMetadataPartitionState,
    UpdateMetadataTopicState,
)

T0 = ("t", 0)
DURING_DELETE = -2


def role(
    index=0,
    *,
    leader=0,
    leader_epoch=0,
    partition_epoch=0,
    replicas=(0,),
    topic_id=b"i" * 16,
    is_new=True,
    name="t",
):
    return LeaderAndIsrPartition(
        topic_partition=TopicPartition(name, index),
        topic_id=topic_id,
        state=LeaderAndIsr(
            leader=leader, leader_epoch=leader_epoch, isr=replicas, partition_epoch=partition_epoch
        ),
        controller_epoch=1,
        replicas=replicas,
        is_new=is_new,
    )


async def take(live, *states):
    outcome = await live.broker.replicas.take_roles(states)
    return list(outcome.values()) if len(states) > 1 else outcome[states[0].topic_partition]


async def stop(live, index=0, *, leader_epoch=0, delete=True, name="t"):
    order = StopReplicaPartition(TopicPartition(name, index), leader_epoch, delete)
    return (await live.broker.replicas.stop([order]))[order.topic_partition]


# --------------------------------------------------------------------------------- roles


def test_each_change_of_role_is_one_line_of_the_state_change_log(caplog):
    ends = "log end 0, high watermark 0"
    leads = f"leader, ISR 0, leader epoch 0, partition epoch 0, {ends}"
    follows = f"follower of 2, leader epoch 1, partition epoch 1, {ends}"

    async def story(live):
        caplog.set_level(logging.DEBUG, "odradek.state_change")
        caplog.clear()
        await take(live, role())
        await take(live, role(leader=2, leader_epoch=1, partition_epoch=1, replicas=(2, 0)))
        await stop(live, leader_epoch=2, delete=False)
        await stop(live, leader_epoch=2)
        assert [r.message for r in caplog.records if r.name == "odradek.state_change"] == [
            f"t-0: new -> {leads}",
            f"t-0: {leads} -> {follows}",
            f"t-0: {follows} -> stopped",
            f"t-0: {follows} -> deleted",
        ]

    play(story)


def test_a_leader_from_outside_the_isr_warns_of_what_is_lost(caplog):
    async def story(live):
        order = role(leader_epoch=3)
        unclean = replace(order.state, leader_recovery_state=RECOVERING)
        await take(live, order._replace(state=unclean))
        await take(live, order._replace(state=replace(unclean, partition_epoch=1)))
        warned = [r.message for r in caplog.records if r.levelno == logging.WARNING]
        (text,) = [each for each in warned if "from outside the ISR" in each]
        assert text.startswith("t-0 is led here from outside the ISR, in leader epoch 3")

    play(story)


def test_the_state_change_log_of_replicas_is_silent_unless_it_is_asked_for(caplog):
    async def story(live):
        caplog.set_level(logging.INFO, "odradek.state_change")
        caplog.clear()
        await take(live, role())
        assert [r for r in caplog.records if r.message.startswith("t-0: new")] == []

    play(story)


def test_a_leader_leads_and_a_follower_does_not():
    async def story(live):
        assert await take(live, role(0), role(1, leader=2, replicas=(0, 2))) == [ErrorCode.NONE] * 2
        replicas = live.broker.replicas

        assert replicas.find_led("t", 0) is live.partition()
        assert live.partition().leader_id == 0
        assert replicas.find_led("t", 1) == ErrorCode.NOT_LEADER_OR_FOLLOWER
        assert replicas.find("t", 1) is live.partition(index=1)
        assert live.partition(index=1).leader_id == 2

    play(story)


@pytest.mark.parametrize(
    ("epochs", "is_obeyed"),
    [
        pytest.param((5, 3), False, id="the same again"),
        pytest.param((5, 2), False, id="an older partition epoch"),
        pytest.param((4, 9), False, id="an older leader epoch"),
        pytest.param((5, 4), True, id="another ISR in the same leader epoch"),
        pytest.param((6, 0), True, id="a newer leader epoch"),
    ],
)
def test_only_newer_epochs_change_the_role(epochs, is_obeyed):
    async def story(live):
        replicas = (0, 2)
        await take(live, role(leader_epoch=5, partition_epoch=3, replicas=replicas))
        leader_epoch, partition_epoch = epochs
        order = role(
            leader=2, leader_epoch=leader_epoch, partition_epoch=partition_epoch, replicas=replicas
        )
        error = await take(live, order)

        assert error == (ErrorCode.NONE if is_obeyed else ErrorCode.STALE_CONTROLLER_EPOCH)
        assert live.partition().leader_id == (2 if is_obeyed else 0)

    play(story)


def test_a_new_leader_epoch_begins_at_the_log_end():
    async def story(live):
        await take(live, role(leader_epoch=3))
        live.append(b"a")
        live.append(b"b")
        await take(live, role(leader_epoch=3, partition_epoch=1))
        await take(live, role(leader_epoch=7))
        live.append(b"c")

        assert live.log().epochs.starts() == [(3, 0), (7, 2)]

    play(story)


def test_back_from_following_it_leads_on():
    async def story(live):
        await take(live, role(leader_epoch=0, replicas=(0, 2)))
        live.append(b"a")
        await take(live, role(leader=2, leader_epoch=1, replicas=(0, 2)))
        peer = live.peer()
        not_leader = {T0: ErrorCode.NOT_LEADER_OR_FOLLOWER}
        assert produced(await peer.ask(produce(live.batch(b"b")))) == not_leader
        await take(live, role(leader_epoch=2))

        assert produced(await peer.ask(produce(live.batch(b"b")))) == {T0: 1}
        assert fetched(await peer.ask(fetch({T0: 0}), 12)) == {T0: [b"a", b"b"]}

    play(story)


def strays(live):
    return [
        f"{path}/{entry.name}"
        for path in LOG_DIRS
        for entry in live.disk.list(path)
        if entry.name.endswith("-stray")
    ]


def test_another_topic_of_the_name_takes_the_place_of_the_former_whose_log_is_set_aside(caplog):
    async def story(live):
        await take(live, role(topic_id=b"1" * 16, leader_epoch=9, replicas=(0, 2)))
        waiting = live.peer().send(produce(live.batch(b"a"), acks=-1))
        before, log = live.partition(), live.log()
        # The log of the new topic has no epochs yet.
        assert await take(live, role(topic_id=b"2" * 16)) == ErrorCode.NONE

        assert produced(await soon(waiting)) == {T0: ErrorCode.UNKNOWN_TOPIC_OR_PARTITION}
        assert before.is_removed
        assert live.partition().topic_id == b"2" * 16
        assert live.log().leo == 0
        assert live.log().topic_id == b"2" * 16
        assert live.broker.replicas.topic_name(b"2" * 16) == "t"
        assert live.broker.replicas.topic_name(b"1" * 16) is None
        assert strays(live) == [log.directory]
        (warning,) = [r for r in caplog.records if "are set aside" in r.getMessage()]
        assert warning.levelno == logging.WARNING
        assert log.directory in warning.getMessage()
        assert "t-0: the records from offset 0 to 0 are set aside" in warning.getMessage()

    play(story)


def test_checkpoints_do_not_name_the_log_of_an_earlier_topic_when_the_next_is_created():
    async def story(live):
        await take(live, role(topic_id=b"1" * 16))
        live.append(b"a")
        path = live.broker.logs.directory_of(live.log())

        def checkpointed():
            return decode_offsets(live.disk.read_file(f"{path}/{HIGH_WATERMARK_FILE}") or b"")

        live.broker.logs.checkpoint_high_watermarks()
        await live.until(lambda: checkpointed() == {T0: 1})
        await take(live, role(topic_id=b"2" * 16))
        assert checkpointed() == {}

    play(story)


def test_a_log_on_disk_of_another_topic_is_set_aside_and_logged_at_each_start(caplog):
    async def story(live):
        caplog.set_level(logging.INFO)
        await live.topic("t")
        live.append(b"a")
        del live.broker.replicas._partitions["t", 0]  # as after a restart, before LeaderAndIsr
        assert await take(live, role(topic_id=b"2" * 16, is_new=False)) == ErrorCode.NONE
        assert live.log().leo == 0
        assert len(strays(live)) == 1
        await live.restart()
        (text,) = [r.message for r in caplog.records if "names end in -stray" in r.message]
        assert text.startswith(f"1 logs in {strays(live)[0].rpartition('/')[0]} are set aside")

    play(story)


def test_a_log_without_an_id_is_of_the_topic_that_is_ordered_unless_its_replica_is_new():
    async def story(live):
        for is_new in False, True:
            await take(live, role(topic_id=b"1" * 16))
            live.append(b"a")
            live.log().topic_id = None  # written before topics had ids, or lost in a power failure
            del live.broker.replicas._partitions["t", 0]
            assert await take(live, role(topic_id=b"1" * 16, is_new=is_new)) == ErrorCode.NONE
            assert live.log().topic_id == b"1" * 16
            assert live.log().leo == (0 if is_new else 1)
            assert len(strays(live)) == (1 if is_new else 0)

    play(story)


def test_a_request_for_a_topic_id_that_was_replaced_is_refused():
    async def story(live):
        former, present = role(topic_id=b"1" * 16), role(topic_id=b"2" * 16)
        late = role(topic_id=b"1" * 16, leader_epoch=99)
        await take(live, former)
        live.append(b"a")
        await take(live, present)
        log = live.log()
        assert await take(live, late) == ErrorCode.INCONSISTENT_TOPIC_ID
        assert live.log() is log
        await stop(live, leader_epoch=DURING_DELETE)
        assert await take(live, late) == ErrorCode.INCONSISTENT_TOPIC_ID
        assert live.partition() is None

    play(story)


def test_topics_without_ids_do_not_replace_others():
    async def story(live):
        await take(live, role(0), role(0, name="u"))
        log, no_topic = live.log(), bytes(16)
        for name in "t", "u":
            order = role(topic_id=no_topic, leader_epoch=9, name=name)
            assert await take(live, order) == ErrorCode.INCONSISTENT_TOPIC_ID
        assert live.log() is log
        assert await take(live, role(leader_epoch=9)) == ErrorCode.NONE

    play(story)


# --------------------------------------------------------------------------------- stop


def test_a_stopped_replica_stays_on_disk_and_serves_no_client():
    async def story(live):
        await take(live, role())
        live.append(b"a")
        assert await stop(live, delete=False) == ErrorCode.NONE
        answer = await live.peer().ask(produce(live.batch(b"a")))
        assert produced(answer) == {T0: ErrorCode.NOT_LEADER_OR_FOLLOWER}
        assert await take(live, role(leader_epoch=1)) == ErrorCode.NONE

        assert live.log().leo == 1

    play(story)


def test_a_deleted_replica_is_removed_and_can_be_created_again():
    async def story(live):
        await take(live, role())
        live.append(b"a")
        before = live.partition()
        assert await stop(live) == ErrorCode.NONE
        assert live.partition() is None
        assert before.is_removed
        assert len(live.broker.logs) == 0
        assert live.broker.replicas.topic_name(b"i" * 16) is None

        assert await take(live, role(leader_epoch=0)) == ErrorCode.NONE
        assert live.log().leo == 0

    play(story)


@pytest.mark.parametrize(
    ("leader_epoch", "error"),
    [
        (4, ErrorCode.FENCED_LEADER_EPOCH),
        (5, ErrorCode.NONE),
        (6, ErrorCode.NONE),
        (-1, ErrorCode.NONE),
        (DURING_DELETE, ErrorCode.NONE),
    ],
)
def test_epochs_fence_the_stop(leader_epoch, error):
    async def story(live):
        await take(live, role(leader_epoch=5))
        assert await stop(live, leader_epoch=leader_epoch) == error
        assert (live.partition() is None) is (error is ErrorCode.NONE)

    play(story)


def test_what_is_not_held_is_stopped_already():
    async def story(live):
        assert await stop(live, 7) == ErrorCode.NONE
        assert await stop(live, 7, delete=False) == ErrorCode.NONE

    play(story)


def test_a_topic_keeps_its_name_while_any_of_its_partitions_is_held():
    async def story(live):
        await take(live, role(0), role(1))
        await stop(live, 0)
        assert live.broker.replicas.topic_name(b"i" * 16) == "t"
        await stop(live, 1)
        assert live.broker.replicas.topic_name(b"i" * 16) is None

    play(story)


def update(*, leader_epoch, replicas, topic_id=b"i" * 16, leader=2):
    state = UpdateMetadataPartitionState(
        leader=leader, leader_epoch=leader_epoch, isr=list(replicas), replicas=list(replicas)
    )
    return UpdateMetadataTopicState(topic_name="t", topic_id=topic_id, partition_states=[state])


def test_a_replica_that_others_hold_in_a_newer_leader_epoch_is_not_served_and_stays_on_disk():
    async def story(live):
        replicas = live.broker.replicas
        await take(live, role(leader_epoch=5, replicas=(0, 2)))
        live.append(b"a")
        for of_no_concern in (
            update(leader_epoch=5, replicas=(2, 3)),
            update(leader_epoch=6, replicas=(0, 2)),
            update(leader_epoch=6, replicas=(2, 3), topic_id=b"o" * 16),
            update(leader_epoch=6, replicas=(2, 3), leader=LEADER_DURING_DELETE),
        ):
            replicas.metadata_updated([of_no_concern])
            assert replicas.find_led("t", 0) is live.partition()
        replicas.metadata_updated([update(leader_epoch=6, replicas=(2, 3))])

        answer = await live.peer().ask(produce(live.batch(b"b")))
        assert produced(answer) == {T0: ErrorCode.NOT_LEADER_OR_FOLLOWER}
        assert live.log().leo == 1
        assert await take(live, role(leader_epoch=7, replicas=(2, 3, 0))) == ErrorCode.NONE
        assert live.log().leo == 1
        assert replicas.find_led("t", 0) is live.partition()

    play(story)


def test_a_partition_outside_the_controllers_topics_is_not_led_any_longer():
    """The topic was deleted while this broker was down and no longer a replica."""

    async def story(live):
        await take(live, role(leader_epoch=5, replicas=(0, 2)))
        live.append(b"a")
        live.broker.replicas.topic_deleted(live.partition())

        answer = await live.peer().ask(produce(live.batch(b"b")))
        assert produced(answer) == {T0: ErrorCode.NOT_LEADER_OR_FOLLOWER}
        assert live.log().leo == 1
        assert await take(live, role(leader_epoch=6, replicas=(0, 2))) == ErrorCode.NONE

    play(story)


# ------------------------------------------------------------------------- failed directories


async def lose(live, path):
    live.disk.faults.append(DiskFault("", f"{path}/", times=1 << 30))
    for log in list(live.broker.logs):
        if live.broker.logs.directory_of(log) == path:
            name = log.partition
            await live.peer().ask(produce(live.batch(b"a"), *name))
            break
    assert live.broker.logs.is_offline(path)


def test_a_lost_directory_takes_its_partitions_and_only_these():
    async def story(live):
        await take(live, *(role(n) for n in range(4)))
        held = {n: live.broker.logs.directory_of(live.log(index=n)) for n in range(4)}
        await lose(live, LOG_DIRS[0])
        partitions = {n: live.partition(index=n) for n in held}
        lost = {n for n, path in held.items() if path == LOG_DIRS[0]}
        assert {n: live.broker.replicas.find_led("t", n) for n in held} == {
            n: ErrorCode.KAFKA_STORAGE_ERROR if n in lost else partitions[n] for n in held
        }
        assert {n for n, partition in partitions.items() if partition.log is None} == lost
        assert lost

    play(story)


def test_a_replica_without_a_log_starts_empty_while_all_directories_work():
    async def story(live):
        assert await take(live, role(is_new=False)) == ErrorCode.NONE
        assert live.log().leo == 0

    play(story)


def test_with_a_lost_directory_only_a_new_replica_is_made():
    async def story(live):
        await take(live, role())
        await lose(live, live.broker.logs.directory_of(live.log()))
        # It may be in the lost directory: an empty log would hide that its records are missing.
        known_elsewhere = role(0, name="u", is_new=False)
        assert await take(live, known_elsewhere) == ErrorCode.KAFKA_STORAGE_ERROR
        assert live.broker.replicas.find_led("u", 0) == ErrorCode.KAFKA_STORAGE_ERROR
        assert await take(live, role(0, name="v")) == ErrorCode.NONE

        assert await take(live, role(leader_epoch=9, is_new=False)) == ErrorCode.KAFKA_STORAGE_ERROR

    play(story)


def test_a_replica_in_a_lost_directory_is_not_deleted_for_it_would_come_back():
    async def story(live):
        await take(live, role())
        await lose(live, live.broker.logs.directory_of(live.log()))
        assert await stop(live, leader_epoch=DURING_DELETE) == ErrorCode.KAFKA_STORAGE_ERROR
        assert live.partition().error is ErrorCode.KAFKA_STORAGE_ERROR

    play(story)


def test_a_replica_that_cannot_be_created_answers_kafka_storage_error():
    async def story(live):
        for path in LOG_DIRS:
            live.disk.lose(path)
        assert await take(live, role()) == ErrorCode.KAFKA_STORAGE_ERROR
        answer = await live.peer().ask(produce(live.batch(b"a")))
        assert produced(answer) == {T0: ErrorCode.KAFKA_STORAGE_ERROR}
        assert live.fatal
        live.disk.faults.clear()

    play(story)


# --------------------------------------------------------------------------------- slices


def test_a_thousand_partitions_leave_the_loop_to_others_every_few_milliseconds():
    async def story(live):
        turns, most, done_before = 0, 0, 0
        replicas = live.broker.replicas
        live.clock.ms_per_reading = 0.5
        task = asyncio.ensure_future(take(live, *(role(n) for n in range(1000))))
        while not task.done():
            await asyncio.sleep(0)
            done = len(replicas)
            turns += 1
            most = max(most, done - done_before)
            done_before = done
        assert set(await task) == {ErrorCode.NONE}

        # Each reading of the clock takes a millisecond here, and there is one for each partition.
        assert most <= 6
        assert turns > 150

    play(story)


def test_asked_again_what_it_holds_a_broker_names_what_is_lost():
    async def story(live):
        await take(live, role())
        # The controller repeats the epochs of its last request.
        assert await take(live, role()) == ErrorCode.STALE_CONTROLLER_EPOCH
        await lose(live, live.broker.logs.directory_of(live.log()))
        assert await take(live, role()) == ErrorCode.KAFKA_STORAGE_ERROR

    play(story)


def test_a_role_whose_log_cannot_be_created_without_descriptors_is_taken_when_there_are_some():
    """The controller would not repeat it, as the directory stays online."""

    async def story(live):
        live.disk.faults.append(DiskFault("create", "/t-0/", errno.EMFILE, times=3))
        assert await take(live, role()) == ErrorCode.NONE

        answer = await live.peer().ask(produce(live.batch(b"a")))
        assert produced(answer) == {T0: 0}
        assert not live.broker.logs.has_offline_dir

    play(story)


def test_a_directory_in_which_no_log_can_be_created_for_seconds_is_offline():
    """Otherwise the partition would be without its log until the next start."""

    async def story(live):
        live.disk.faults.append(DiskFault("create", "/t-0/", errno.EMFILE, times=1 << 30))
        assert await take(live, role()) == ErrorCode.KAFKA_STORAGE_ERROR

        assert live.broker.logs.has_offline_dir
        assert len(live.broker.logs.online_directories) == len(LOG_DIRS) - 1
        assert live.broker.replicas.find_led("t", 0) == ErrorCode.KAFKA_STORAGE_ERROR

    play(story)


def test_the_controller_is_notified_of_a_failed_directory_and_marks_its_replicas_offline():
    async def story(live):
        await live.topic("t", 2)
        held = {n: live.broker.logs.directory_of(live.log(index=n)) for n in range(2)}
        await lose(live, held[0])
        await live.until(lambda: live.broker.metadata.partition("t", 0).leader == -1)

        assert held[1] != held[0]
        assert live.broker.metadata.partition("t", 1).leader == 0
        assert live.broker.metadata.partition("t", 0).offline == (0,)
        notices = await live.store.children("/log_dir_event_notification")
        assert notices == [], "it was read"

    play(story)
