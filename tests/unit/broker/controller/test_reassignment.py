"""Reassignment through the controller's shell: what is stored, and what is sent to brokers."""

import json

import pytest

from odradek.broker.apis.alter_partition_reassignments import alter_partition_reassignments
from odradek.broker.apis.elect_leaders import elect_leaders
from odradek.broker.apis.list_partition_reassignments import list_partition_reassignments
from odradek.controller.answers import IsrChangesAnswer
from odradek.controller.causes import Verdict
from odradek.controller.events import IsrChange, IsrChangesRequested
from odradek.coord import layout
from odradek.coord.memory import RequestFate, RequestLoss
from odradek.model.errors import ErrorCode
from odradek.model.partition import Assignment, LeaderAndIsr, TopicPartition
from odradek.wire.messages import alter_partition_reassignments as alter
from odradek.wire.messages.elect_leaders import ElectLeadersRequest, TopicPartitions
from odradek.wire.messages.leader_and_isr import LeaderAndIsrRequest
from odradek.wire.messages.list_partition_reassignments import ListPartitionReassignmentsRequest
from odradek.wire.messages.stop_replica import StopReplicaRequest

T0 = TopicPartition("t", 0)


def request(**targets):
    """Reassign partition 0 of topic t as in t0=[1, 2]; None cancels."""
    partitions = [
        alter.ReassignablePartition(partition_index=int(name[1:]), replicas=replicas)
        for name, replicas in targets.items()
    ]
    topic = alter.ReassignableTopic(name="t", partitions=partitions)
    return alter.AlterPartitionReassignmentsRequest(topics=[topic])


async def reassign(node, **targets):
    response = await alter_partition_reassignments(node.shell, node.session(), request(**targets))
    assert response.error_code == ErrorCode.NONE
    (topic,) = response.responses
    return {p.partition_index: ErrorCode(p.error_code) for p in topic.partitions}


async def running(node):
    asked = ListPartitionReassignmentsRequest(topics=None)
    response = await list_partition_reassignments(node.shell, node.session(), asked)
    return {
        (topic.name, p.partition_index): (p.replicas, p.adding_replicas, p.removing_replicas)
        for topic in response.topics
        for p in topic.partitions
    }


async def catch_up(node, isr):
    """The leader of t-0 proposes this ISR."""
    context = node.shell.machine.context
    stands = context.partition(T0).leader_and_isr
    wanted = LeaderAndIsr(
        leader=stands.leader,
        leader_epoch=stands.leader_epoch,
        isr=isr,
        partition_epoch=stands.partition_epoch,
    )
    epoch = context.brokers[stands.leader].broker_epoch
    changes = (IsrChange(T0, wanted, {}),)
    answer = await node.shell.ask(
        IsrChangesRequested(stands.leader, epoch, changes), IsrChangesAnswer
    )
    assert answer.partitions[T0].isr == isr


async def topic_node(cluster):
    data, _ = await cluster.store.get(layout.topic_path("t"))
    fields = json.loads(data)
    del fields["topic_id"]
    return fields


async def begun(cluster, *ids, assignment=(1, 2)):
    node = await cluster.start(*ids)
    await cluster.create_topic("t", {0: assignment, 1: (2, 1)})
    await cluster.until(lambda: len(cluster.brokers[1].leaders()) == 2)
    return node


def test_the_znodes_of_a_move_are_those_of_apache_kafka(play):
    async def story(cluster):
        node = await begun(cluster, 1, 2, 3)
        assert await reassign(node, t0=[3, 2]) == {0: ErrorCode.NONE}

        assert await topic_node(cluster) == {
            "partitions": {"0": [3, 2, 1], "1": [2, 1]},
            "adding_replicas": {"0": [3]},
            "removing_replicas": {"0": [1]},
            "version": 3,
        }
        assert (await cluster.state("t", 0)).leader_and_isr.leader_epoch == 1
        assert await running(node) == {("t", 0): ([3, 2, 1], [3], [1])}

        await catch_up(node, (1, 2, 3))
        await cluster.until(lambda: cluster.brokers[1].requests(StopReplicaRequest))
        assert await topic_node(cluster) == {
            "partitions": {"0": [3, 2], "1": [2, 1]},
            "adding_replicas": {},
            "removing_replicas": {},
            "version": 3,
        }
        state = (await cluster.state("t", 0)).leader_and_isr
        assert (state.leader, state.leader_epoch, state.isr) == (3, 3, (2, 3))
        assert await running(node) == {}

    play(story)


def test_the_new_replica_may_begin_empty_and_the_old_one_is_deleted(play):
    async def story(cluster):
        node = await begun(cluster, 1, 2, 3)
        await reassign(node, t0=[3, 2])
        await cluster.until(lambda: cluster.brokers[3].requests(LeaderAndIsrRequest))
        (result,) = cluster.brokers[3].requests(LeaderAndIsrRequest)
        (state,) = result.topic_states[0].partition_states
        assert (state.is_new, state.replicas, state.adding_replicas) == (True, [3, 2, 1], [3])

        await catch_up(node, (1, 2, 3))
        await cluster.until(lambda: cluster.brokers[1].requests(StopReplicaRequest))
        (stop,) = cluster.brokers[1].requests(StopReplicaRequest)
        (stopped,) = stop.topic_states[0].partition_states
        assert (stopped.delete_partition, stopped.leader_epoch) == (True, 3)
        assert not cluster.brokers[2].requests(StopReplicaRequest)

    play(story)


def test_another_controller_goes_on_where_the_first_one_stopped(play):
    async def story(cluster):
        node = await begun(cluster, 1, 2, 3)
        await reassign(node, t0=[3, 2])
        node.store.crash(noticed_after_ms=100)
        await node.tasks.cancel_all()
        await cluster.until(lambda: cluster.active() not in (None, node.shell))
        (heir,) = [n for n in cluster.nodes.values() if n.shell is cluster.active()]
        await cluster.until(lambda: heir.shell.topics is not None)

        assert await running(heir) == {("t", 0): ([3, 2, 1], [3], [1])}
        await catch_up(heir, (2, 3))
        await cluster.until(
            lambda: not heir.shell.machine.context.partition(T0).assignment.is_being_reassigned
        )
        assert (await topic_node(cluster))["partitions"]["0"] == [3, 2]

    play(story)


def test_partitions_that_were_added_meanwhile_stay(play):
    async def story(cluster):
        node = await begun(cluster, 1, 2, 3)
        path = layout.topic_path("t")
        await cluster.store.set_data(
            path,
            layout.encode_topic(
                layout.TopicNode(
                    topic_id=node.shell.machine.context.topics["t"].id,
                    assignments={
                        0: Assignment(replicas=(1, 2)),
                        1: Assignment(replicas=(2, 1)),
                        2: Assignment(replicas=(1,)),
                    },
                )
            ),
        )
        await reassign(node, t0=[3, 2])
        await cluster.until(lambda: len(cluster.brokers[1].leaders()) == 3)

        assert (await topic_node(cluster))["partitions"] == {"0": [3, 2, 1], "1": [2, 1], "2": [1]}

    play(story)


@pytest.mark.parametrize("loss", [RequestLoss.BEFORE, RequestLoss.AFTER])
def test_a_lost_answer_of_the_store_does_not_confuse_a_move(play, loss):
    async def story(cluster):
        node = await begun(cluster, 1, 2, 3)
        lost = []

        def once(operation: str) -> RequestFate:
            if operation == "multi_many" and not lost:
                lost.append(operation)
                return RequestFate(loss=loss)
            cluster.fates.append(once)
            return RequestFate()

        cluster.fates.append(once)
        assert await reassign(node, t0=[3, 2]) == {0: ErrorCode.NONE}

        assert lost
        assert (await topic_node(cluster))["adding_replicas"] == {"0": [3]}

    play(story)


def test_what_makes_no_sense_is_refused_for_each_partition(play):
    async def story(cluster):
        node = await begun(cluster, 1, 2, 3)
        answer = await reassign(node, t0=[1, 9], t1=None, t2=[1], t3=[])
        assert answer == {
            0: ErrorCode.INVALID_REPLICA_ASSIGNMENT,
            1: ErrorCode.NO_REASSIGNMENT_IN_PROGRESS,
            2: ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
            3: ErrorCode.INVALID_REPLICA_ASSIGNMENT,
        }
        twice = request(t0=[3, 2])
        twice.topics[0].partitions *= 2
        response = await alter_partition_reassignments(node.shell, node.session(), twice)
        (refused,) = response.responses[0].partitions
        assert refused.error_code == ErrorCode.INVALID_REQUEST

        loser = cluster.nodes[2]
        response = await alter_partition_reassignments(
            loser.shell, loser.session(), request(t0=[3])
        )
        assert response.error_code == ErrorCode.NOT_CONTROLLER

    play(story)


def test_the_node_asks_for_a_move_and_goes_when_it_is_done(play):
    async def story(cluster):
        node = await begun(cluster, 1, 2, 3)
        asked = {T0: (3, 2), TopicPartition("nobody", 0): (1,)}
        data = layout.encode_reassign_partitions(asked)
        await cluster.store.create(layout.REASSIGN_PARTITIONS, data)
        context = node.shell.machine.context
        await cluster.until(lambda: context.partition(T0).assignment.adding == (3,))
        await cluster.until(lambda: cluster.brokers[3].requests(LeaderAndIsrRequest))
        data, _ = await cluster.store.get(layout.REASSIGN_PARTITIONS)
        assert layout.decode_reassign_partitions(data) == {T0: (3, 2)}

        await catch_up(node, (1, 2, 3))
        await cluster.until(lambda: context.partition(T0).assignment.replicas == (3, 2))
        await cluster.until(lambda: cluster.tree._nodes.get(layout.REASSIGN_PARTITIONS) is None)

        # The next reassignment is handled as well.
        await cluster.store.create(
            layout.REASSIGN_PARTITIONS, layout.encode_reassign_partitions({T0: (2, 3)})
        )
        await cluster.until(lambda: context.partition(T0).assignment.replicas == (2, 3))

    play(story)


def test_a_node_that_cannot_be_read_is_logged_and_left(play):
    async def story(cluster):
        node = await begun(cluster, 1, 2, 3)
        await cluster.store.create(layout.REASSIGN_PARTITIONS, b"{nonsense")
        await cluster.until(
            lambda: any(layout.REASSIGN_PARTITIONS in note for note in node.journal.notes)
        )
        assert await reassign(node, t0=[3, 2]) == {0: ErrorCode.NONE}

    play(story)


def test_the_node_of_preferred_elections_is_served_and_goes(play):
    async def story(cluster):
        node = await begun(cluster, 1, 2, 3)
        context = node.shell.machine.context
        await reassign(node, t0=[2, 1])  # only the order: broker 1 stays leader
        assert context.partition(T0).leader == 1
        path = layout.PREFERRED_REPLICA_ELECTION
        for _ in range(2):  # a second one is handled as well
            await cluster.store.create(path, layout.encode_partitions([T0]))
            await cluster.until(lambda: cluster.tree._nodes.get(path) is None)
        assert context.partition(T0).leader == 2

    play(story)


def test_elect_leaders_answers_when_the_leader_shows(play):
    async def story(cluster):
        node = await begun(cluster, 1, 2, 3)
        await reassign(node, t0=[2, 1])
        named = [TopicPartitions(topic="t", partitions=[0, 1, 9])]
        ask = ElectLeadersRequest(topic_partitions=named, timeout_ms=5_000)
        response = await elect_leaders(node.shell, node.admin, node.session(), ask, 2)
        (topic,) = response.replica_election_results
        assert {p.partition_id: ErrorCode(p.error_code) for p in topic.partition_result} == {
            0: ErrorCode.NONE,
            1: ErrorCode.ELECTION_NOT_NEEDED,
            9: ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        }
        assert node.metadata.partition("t", 0).leader == 2

        # A request for all partitions lists only those that needed an election.
        ask = ElectLeadersRequest(topic_partitions=None, timeout_ms=5_000)
        response = await elect_leaders(node.shell, node.admin, node.session(), ask, 2)
        assert response.replica_election_results == []

        cluster.brokers[1].deaf = True
        await reassign(node, t0=[1, 2])
        ask = ElectLeadersRequest(topic_partitions=named, timeout_ms=50)
        response = await elect_leaders(node.shell, node.admin, node.session(), ask, 2)
        first = response.replica_election_results[0].partition_result[0]
        assert first.error_code == ErrorCode.REQUEST_TIMED_OUT

    play(story)


def test_elect_leaders_is_for_the_controller_and_of_known_kinds(play):
    async def story(cluster):
        await begun(cluster, 1, 2, 3)
        loser = cluster.nodes[2]
        named = [TopicPartitions(topic="t", partitions=[0])]
        ask = ElectLeadersRequest(topic_partitions=named)
        response = await elect_leaders(loser.shell, loser.admin, loser.session(), ask, 2)
        (result,) = response.replica_election_results[0].partition_result
        assert result.error_code == ErrorCode.NOT_CONTROLLER
        ask = ElectLeadersRequest(election_type=7, topic_partitions=named)
        response = await elect_leaders(loser.shell, loser.admin, loser.session(), ask, 2)
        assert response.error_code == ErrorCode.INVALID_REQUEST

    play(story)


def test_leadership_returns_to_preferred_replicas_at_the_check(play):
    async def story(cluster):
        node = await begun(cluster, 1, 2, 3)
        await reassign(node, t0=[2, 1])
        context = node.shell.machine.context
        assert context.partition(T0).leader == 1
        assert 0 < node.shell.rebalance_in_seconds <= 300

        await cluster.until(lambda: context.partition(T0).leader == 2)
        elected = [d for d in node.journal.decisions if d.verdict is Verdict.LEADER_ELECTED]
        assert elected[-1].subject == T0
        assert "led too few of the partitions" in str(elected[-1])

    play(story)


def test_deletion_waits_until_the_move_is_over(play):
    async def story(cluster):
        node = await begun(cluster, 1, 2, 3)
        await reassign(node, t0=[3, 2])
        await cluster.store.create(layout.delete_topic_path("t"))
        waiting = node.shell.machine.machines.deletion.waiting
        await cluster.until(lambda: "t" in waiting)
        assert waiting["t"] == "t-0 is being reassigned"
        assert len(cluster.brokers[1].leaders()) == 2

        await reassign(node, t0=None)
        await cluster.until(lambda: cluster.brokers[1].leaders() == {})
        await cluster.until(lambda: cluster.tree._nodes.get(layout.topic_path("t")) is None)

    play(story)
