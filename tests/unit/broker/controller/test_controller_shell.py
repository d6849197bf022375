"""The controller's shell against a store in memory and brokers that answer, in simulated time."""

import asyncio
import gc
import weakref

import pytest

from odradek.broker.controller.channels import ControllerChannels
from odradek.controller.answers import IsrChangesAnswer, ShutdownAnswer
from odradek.controller.causes import Verdict
from odradek.controller.events import ControlledShutdownRequested, IsrChange, IsrChangesRequested
from odradek.coord import layout
from odradek.coord.layout_config import encode_config, topic_entity
from odradek.coord.memory import RequestFate, RequestLoss
from odradek.coord.store import SetData
from odradek.model.cluster import Broker
from odradek.model.errors import ApiError, ErrorCode
from odradek.model.partition import Assignment, LeaderAndIsr, TopicPartition
from odradek.wire.messages.leader_and_isr import LeaderAndIsrRequest
from odradek.wire.messages.stop_replica import StopReplicaRequest


def test_a_single_broker_elects_itself_and_gets_leader_and_isr_for_a_new_topic(play):
    async def story(cluster):
        await cluster.start(1)
        await cluster.create_topic("t", {0: (1,), 1: (1,)})
        notified = cluster.brokers[1]
        await cluster.until(lambda: len(notified.leaders()) == 2)

        (request,) = notified.requests(LeaderAndIsrRequest)
        (topic,) = request.topic_states
        assert (topic.topic_name, request.controller_epoch) == ("t", 1)
        assert [(p.leader, p.leader_epoch, p.is_new) for p in topic.partition_states] == [
            (1, 0, True),
            (1, 0, True),
        ]
        assert [leader.port for leader in request.live_leaders] == [9001]
        state = await cluster.state("t", 1)
        assert state.controller_epoch == 1
        assert state.leader_and_isr == LeaderAndIsr(
            leader=1, leader_epoch=0, isr=(1,), partition_epoch=0
        )

    play(story)


def test_the_requests_come_in_the_order_in_which_a_broker_needs_them(play):
    async def story(cluster):
        await cluster.start(1)
        await cluster.create_topic("t", {0: (1,)})
        notified = cluster.brokers[1]
        await cluster.until(lambda: notified.leaders() != {})

        kinds = [type(request).__name__.removesuffix("Request") for request in notified.received]
        alive_first, everything = "UpdateMetadata", "UpdateMetadata"
        assert kinds == [alive_first, everything, "LeaderAndIsr", "UpdateMetadata"]
        assert [broker.id for broker in notified.received[0].live_brokers] == [1]

    play(story)


def test_a_topics_name_is_found_by_its_id_only_when_everything_is_loaded(play):
    async def story(cluster):
        node = await cluster.start(1)
        await cluster.create_topic("t", {0: (1,)})
        await cluster.until(lambda: cluster.brokers[1].leaders() != {})
        topic_id = node.metadata.topics["t"].topic_id
        for announced in ("t", "other", None):
            assert node.shell.topic_name(topic_id, announced) == "t"
        assert node.shell.topic_name(b"?" * 16, "t") is None

        first_term = node.shell.term
        node.store.fate = lambda _operation: RequestFate(answer_delay_ms=100)
        cluster.tree.expire(node.store.session_id)
        await cluster.until(lambda: not node.store.session_id)
        await node.register()
        node.shell.session_opened()
        await cluster.until(lambda: node.shell.term not in {None, first_term})
        with pytest.raises(ApiError, match="NOT_CONTROLLER"):
            node.shell.topic_name(topic_id, "t")
        await cluster.until(lambda: node.shell.topics == ["t"])
        assert node.shell.topic_name(topic_id, "t") == "t"

    play(story)


def test_a_deleted_topic_leaves_nothing_in_the_store(play):
    async def story(cluster):
        node = await cluster.start(1)
        await cluster.create_topic("t", dict.fromkeys(range(3), (1,)))
        await cluster.until(lambda: len(cluster.brokers[1].leaders()) == 3)
        await cluster.store.create(layout.delete_topic_path("t"))
        await cluster.until(
            lambda: (
                node.journal.decisions[-1:]
                and node.journal.decisions[-1].verdict is Verdict.TOPIC_DELETED
            )
        )

        (stop,) = cluster.brokers[1].requests(StopReplicaRequest)
        (topic,) = stop.topic_states
        assert [(p.leader_epoch, p.delete_partition) for p in topic.partition_states] == [
            (-2, True)
        ] * 3
        assert cluster.brokers[1].leaders() == {}
        for path in (layout.TOPICS, layout.DELETE_TOPICS, "/config/topics"):
            assert await cluster.store.children(path) == [], path

    play(story)


def test_partitions_written_into_a_topics_node_are_created(play):
    async def story(cluster):
        await cluster.start(1)
        await cluster.create_topic("t", {0: (1,)})
        notified = cluster.brokers[1]
        await cluster.until(lambda: len(notified.leaders()) == 1)
        path = layout.topic_path("t")
        data, _ = await cluster.store.get(path)
        node = layout.decode_topic("t", data)
        more = {**node.assignments, 1: Assignment(replicas=(1,)), 2: Assignment(replicas=(1,))}
        grown = layout.TopicNode(topic_id=node.topic_id, assignments=more)
        await cluster.store.set_data(path, layout.encode_topic(grown))

        await cluster.until(lambda: len(notified.leaders()) == 3)

    play(story)


def test_a_topic_without_an_id_gets_one_and_keeps_it(play):
    async def story(cluster):
        await cluster.start(1)
        path = layout.topic_path("old")
        one = b'{"version":1,"partitions":{"0":[1]}}'
        await cluster.store.create(path, one)
        notified = cluster.brokers[1]
        await cluster.until(lambda: len(notified.leaders()) == 1)
        data, _ = await cluster.store.get(path)
        given = layout.decode_topic("old", data).topic_id
        assert given is not None
        assert notified.requests(LeaderAndIsrRequest)[0].topic_states[0].topic_id == given.bytes

        await cluster.store.set_data(path, b'{"version":1,"partitions":{"0":[1],"1":[1]}}')
        await cluster.until(lambda: len(notified.leaders()) == 2)
        data, _ = await cluster.store.get(path)
        assert layout.decode_topic("old", data).topic_id == given

    play(story)


def test_when_the_controller_fails_another_takes_over_and_elects(play):
    async def story(cluster):
        first = await cluster.start(1, 2)
        await cluster.create_topic("t", {0: (1, 2), 1: (2, 1)})
        await cluster.until(lambda: len(cluster.brokers[2].leaders()) == 2)
        first.store.crash(noticed_after_ms=100)
        await first.tasks.cancel_all()
        await cluster.until(lambda: cluster.brokers[2].leaders().get(TopicPartition("t", 0)) == 2)

        shell = cluster.nodes[2].shell
        assert shell.term is not None
        assert (shell.term.controller_epoch, shell.controller_id) == (2, 2)
        state = await cluster.state("t", 0)
        assert (state.controller_epoch, state.leader_and_isr.leader_epoch) == (2, 1)
        assert state.leader_and_isr.isr == (2,)

    play(story)


def test_a_controller_with_an_old_epoch_writes_nothing_and_tries_to_be_elected_again(play):
    async def story(cluster):
        node = await cluster.start(1)
        # Somebody raised the epoch behind its back: its next write is refused.
        await cluster.store.set_data(layout.CONTROLLER_EPOCH, b"7")
        await cluster.create_topic("t", {0: (1,)})
        await cluster.until(lambda: any("epoch 1 ends" in note for note in node.journal.notes))

        # It still owns the node, so it may term on - knowing the epoch that stands.
        await cluster.until(lambda: cluster.brokers[1].leaders() != {})
        state = await cluster.state("t", 0)
        assert (state.controller_epoch, state.leader_and_isr.partition_epoch) == (7, 0)

    play(story)


def test_a_session_that_expires_ends_the_term_and_a_new_session_begins_another(play):
    async def story(cluster):
        node = await cluster.start(1)
        await cluster.create_topic("t", {0: (1,)})
        await cluster.until(lambda: cluster.brokers[1].leaders() != {})
        cluster.tree.expire(node.store.session_id)
        await cluster.until(lambda: node.shell.term is None)
        with pytest.raises(ApiError, match="NOT_CONTROLLER"):
            await node.shell.ask(ControlledShutdownRequested(1, -1), ShutdownAnswer)

        await node.register()
        node.shell.session_opened()
        await cluster.until(lambda: node.shell.term is not None)
        assert node.shell.term.controller_epoch == 2
        # Whether the same process has registered again is not known: it leads,
        # but in a new epoch.
        state = (await cluster.state("t", 0)).leader_and_isr
        assert (state.leader, state.isr) == (1, (1,))
        assert state.leader_epoch > 0

    play(story)


@pytest.mark.parametrize("loss", [RequestLoss.BEFORE, RequestLoss.AFTER])
def test_after_a_lost_answer_of_the_store_the_outcome_is_read(play, loss):
    async def story(cluster):
        await cluster.start(1)
        lost = []

        def once(operation: str) -> RequestFate:
            if operation == "multi_many" and not lost:
                lost.append(operation)
                return RequestFate(loss=loss)
            cluster.fates.append(once)
            return RequestFate()

        cluster.fates.append(once)
        await cluster.create_topic("t", {0: (1,), 1: (1,)})
        await cluster.until(lambda: len(cluster.brokers[1].leaders()) == 2)

        assert lost
        for number in (0, 1):
            state = await cluster.state("t", number)
            assert state.leader_and_isr.leader_epoch == 0
            assert state.leader_and_isr.partition_epoch == 0

    play(story)


def test_a_broker_that_cannot_be_reached_is_sent_the_request_again(play):
    async def story(cluster):
        cluster.brokers[1].unreachable = 3
        await cluster.start(1)
        await cluster.create_topic("t", {0: (1,)})

        await cluster.until(lambda: cluster.brokers[1].leaders() != {})

    play(story)


def test_a_leader_requests_another_isr_and_is_answered(play):
    async def story(cluster):
        node = await cluster.start(1, 2)
        await cluster.create_topic("t", {0: (1, 2)})
        await cluster.until(lambda: cluster.brokers[1].leaders() != {})
        epoch = node.shell.machine.context.brokers[1].broker_epoch
        wanted = LeaderAndIsr(leader=1, leader_epoch=0, isr=(1,), partition_epoch=0)
        change = IsrChange(TopicPartition("t", 0), wanted, {})

        answer = await node.shell.ask(IsrChangesRequested(1, epoch, (change,)), IsrChangesAnswer)

        stands = LeaderAndIsr(leader=1, leader_epoch=0, isr=(1,), partition_epoch=1)
        assert answer.partitions == {TopicPartition("t", 0): stands}
        assert (await cluster.state("t", 0)).leader_and_isr == stands

    play(story)


def test_a_log_dir_that_fails_moves_the_leader_away(play):
    async def story(cluster):
        await cluster.start(1, 2)
        await cluster.create_topic("t", {0: (1, 2), 1: (1, 2)})
        notified = cluster.brokers[2]
        await cluster.until(lambda: len(notified.leaders()) == 2)
        cluster.brokers[1].partition_errors["t", 0] = ErrorCode.KAFKA_STORAGE_ERROR
        path = f"{layout.LOG_DIR_EVENTS}/{layout.LOG_DIR_EVENT_PREFIX}"
        await cluster.store.create(path, layout.encode_log_dir_event(1), sequential=True)

        await cluster.until(lambda: notified.leaders()[TopicPartition("t", 0)] == 2)
        assert notified.leaders()[TopicPartition("t", 1)] == 1
        assert await cluster.store.children(layout.LOG_DIR_EVENTS) == []

    play(story)


def test_unclean_election_is_held_where_the_topic_allows_it(play):
    async def story(cluster):
        await cluster.start(1, 2)
        for topic in ("safe", "available"):
            await cluster.create_topic(topic, {0: (2, 1)})
        await cluster.until(lambda: len(cluster.brokers[1].leaders()) == 2)
        path = topic_entity("available").path
        config = encode_config({"unclean.leader.election.enable": "true"})
        await cluster.store.set_data(path, config)
        for topic in ("safe", "available"):  # only 2 is in sync
            state = layout.LeaderIsrAndControllerEpoch(
                LeaderAndIsr(leader=2, leader_epoch=0, isr=(2,), partition_epoch=0), 1
            )
            partition = TopicPartition(topic, 0)
            await cluster.store.multi(
                [
                    SetData(
                        layout.partition_state_path(partition),
                        layout.encode_partition_state(state),
                    )
                ]
            )
        await cluster.nodes[2].end()
        await cluster.until(lambda: len(cluster.nodes[1].shell.machine.context.brokers) == 1)

        await cluster.until(
            lambda: cluster.brokers[1].leaders()[TopicPartition("available", 0)] == 1
        )
        assert cluster.brokers[1].leaders()[TopicPartition("safe", 0)] == -1
        state = (await cluster.state("available", 0)).leader_and_isr
        assert (state.leader_recovery_state, state.isr) == (1, (1,))
        assert cluster.nodes[1].shell.machine.machines.partitions.unclean_elections == 1

    play(story)


def test_the_failure_of_the_controllers_broker_is_the_cause_of_what_the_next_controller_decides(
    play,
):
    async def story(cluster):
        await cluster.start(1, 2)
        await cluster.create_topic("t", {0: (1, 2)})
        await cluster.until(lambda: len(cluster.brokers[2].leaders()) == 1)
        await cluster.nodes[1].end()
        await cluster.until(lambda: cluster.brokers[2].leaders()[TopicPartition("t", 0)] == 2)

        decisions = cluster.nodes[2].journal.decisions
        assert [(d.verdict, d.subject, str(d.cause)) for d in decisions] == [
            (Verdict.BROKER_GONE, 1, "broker 1 went offline"),
            (Verdict.LEADER_ELECTED, TopicPartition("t", 0), "broker 1 went offline"),
        ]

    play(story)


def test_a_corrupt_node_is_skipped_and_entered_in_the_journal(play):
    async def story(cluster):
        node = await cluster.start(1)
        await cluster.store.create(layout.topic_path("broken"), b"{not json")
        await cluster.create_topic("t", {0: (1,)})
        await cluster.until(lambda: cluster.brokers[1].leaders() != {})

        assert any("/brokers/topics/broken" in note for note in node.journal.notes)

    play(story)


def test_a_violated_invariant_ends_the_term_and_the_next_one_loads_what_is_stored(play):
    async def story(cluster):
        node = await cluster.start(1)
        await cluster.create_topic("t", {0: (1,)})
        await cluster.until(lambda: cluster.brokers[1].leaders() != {})
        partition = node.shell.machine.context.partition(TopicPartition("t", 0))
        partition.replicas[1] = None  # no state that a replica can be in
        await cluster.store.create(layout.delete_topic_path("t"))

        await cluster.until(lambda: any("an invariant" in note for note in node.journal.notes))
        await cluster.until(lambda: node.shell.term is not None)
        assert node.shell.term.controller_epoch == 2
        await cluster.until(lambda: cluster.brokers[1].leaders() == {})

    play(story)


def test_a_stopping_controller_resigns_so_that_the_next_one_is_elected_at_once(play):
    async def story(cluster):
        node = await cluster.start(1, 2)
        await node.shell.stop()

        await cluster.until(lambda: cluster.nodes[2].shell.term is not None)

    play(story)


def test_where_unclean_election_is_allowed_later_it_is_held_at_once(play):
    async def story(cluster):
        node = await cluster.start(1, 2)
        for topic in ("t", "u"):
            await cluster.create_topic(topic, {0: (2, 1)})
        await cluster.until(lambda: len(cluster.brokers[1].leaders()) == 2)
        for topic in ("t", "u"):
            wanted = LeaderAndIsr(leader=2, leader_epoch=0, isr=(2,), partition_epoch=0)
            change = IsrChange(TopicPartition(topic, 0), wanted, {})
            epoch = node.shell.machine.context.brokers[2].broker_epoch
            await node.shell.ask(IsrChangesRequested(2, epoch, (change,)), IsrChangesAnswer)
        await cluster.nodes[2].end()
        leaders = cluster.brokers[1].leaders
        t0, u0 = TopicPartition("t", 0), TopicPartition("u", 0)
        await cluster.until(lambda: (leaders()[t0], leaders()[u0]) == (-1, -1))

        path = topic_entity("t").path
        await cluster.store.set_data(
            path, encode_config({"unclean.leader.election.enable": "true"})
        )
        node.shell.unclean_allowed("t")
        await cluster.until(lambda: leaders()[t0] == 1)
        assert leaders()[u0] == -1

        node.shell._options.unclean_allowed = True
        node.shell.unclean_allowed(None)
        await cluster.until(lambda: leaders()[u0] == 1)

    play(story)


def test_a_stopping_controller_sends_the_new_leaders_of_its_own_partitions_first(play):
    async def story(cluster):
        node = await cluster.start(1, 2)
        await cluster.create_topic("t", dict.fromkeys(range(20), (1, 2)))
        await cluster.until(lambda: len(cluster.brokers[2].leaders()) == 20)
        cluster.brokers[1].unreachable = 3  # it delays itself, not the others

        answer = await node.shell.ask(ControlledShutdownRequested(1, -1), ShutdownAnswer)
        assert answer.remaining == ()
        notified = len(cluster.brokers[2].requests(LeaderAndIsrRequest))
        await node.shell.stop()

        update = cluster.brokers[2].requests(LeaderAndIsrRequest)[notified - 1 :]
        states = [s for r in update for topic in r.topic_states for s in topic.partition_states]
        assert {s.partition_index for s in states if s.leader == 2} == set(range(20))
        assert set(cluster.brokers[1].leaders().values()) == {2}
        assert all(r.controller_epoch == 1 for r in update)

    play(story)


def test_a_requester_that_is_cancelled_does_not_end_the_controller(play):
    async def story(cluster):
        node = await cluster.start(1, 2)
        asked = ControlledShutdownRequested(2, -1)
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0):
                await node.shell.ask(asked, ShutdownAnswer)

        answer = await node.shell.ask(asked, ShutdownAnswer)
        assert answer.error is ErrorCode.NONE

    play(story)


def test_a_stopping_controller_does_not_wait_for_a_broker_whose_registration_ends(play):
    async def story(cluster):
        node = await cluster.start(1, 2)
        await cluster.create_topic("t", {0: (1, 2)})
        await cluster.until(lambda: len(cluster.brokers[2].leaders()) == 1)
        cluster.brokers[2].unreachable = 10**9
        await node.shell.ask(ControlledShutdownRequested(1, -1), ShutdownAnswer)
        before_ms = node.clock.monotonic_ms()
        stopping = asyncio.ensure_future(node.shell.stop())
        await asyncio.sleep(0.1)
        await cluster.nodes[2].store.close()
        await stopping

        assert node.clock.monotonic_ms() - before_ms < 1_000

    play(story)


def test_a_stopping_controller_does_not_wait_for_a_broker_that_does_not_respond(play):
    async def story(cluster):
        node = await cluster.start(1, 2)
        await cluster.create_topic("t", {0: (1, 2)})
        await cluster.until(lambda: len(cluster.brokers[2].leaders()) == 1)
        cluster.brokers[2].unreachable = 10**9
        await node.shell.ask(ControlledShutdownRequested(1, -1), ShutdownAnswer)
        before_ms = node.clock.monotonic_ms()
        await node.shell.stop()

        assert node.clock.monotonic_ms() - before_ms <= 2_000
        assert node.shell.term is None

    play(story)


def watchers_set(store, path):
    """The watchers that are set on a node from now on."""
    found, get = [], store.get

    async def recorded(wanted, watch=None):
        if wanted == path and watch is not None:
            found.append(watch)
        return await get(wanted, watch)

    store.get = recorded
    return found


def test_the_node_of_a_broker_that_stays_has_one_watcher_however_often_others_register(play):
    async def story(cluster):
        node = await cluster.start(1)
        found = watchers_set(node.store, layout.broker_path(1))
        for id_ in (2, 3):
            await cluster.add(id_)
            await cluster.until(lambda known=id_: known in node.metadata.brokers)

        assert len(found) >= 2
        assert len(set(found)) == 1

    play(story)


class Port:
    """The connection to a broker that does not answer."""

    async def send(self, request):
        await asyncio.sleep(3_600)


def test_a_closed_channel_is_freed_without_a_garbage_collection(play):
    async def story(cluster):
        node = await cluster.start(1)
        ports = []

        def connect(broker):
            port = Port()
            ports.append(weakref.ref(port))
            return port

        channels = ControllerChannels(
            broker_id=1, listener="PLAINTEXT", connect=connect, tasks=node.tasks
        )
        channels.add(Broker(id=2, end_points=()))
        await asyncio.sleep(0.01)
        gc.disable()
        try:
            channels.remove(2)
            await cluster.until(lambda: ports[0]() is None)
        finally:
            gc.enable()

    play(story)
