"""A broker loses a replica while it is down, and gets the partition again later.

If the topic is the same, its log is truncated where it diverges, as every follower's, and used. If
it is a new topic of the same name, the log becomes a stray log, and an empty one is created.
"""

import asyncio

import pytest

from odradek.coord import layout
from odradek.coord.store import Create
from odradek.log.directories import Mark, parse_name
from odradek.model.errors import ErrorCode
from odradek.sim.scenes.replicas import TOPIC, TWO_IN_SYNC, contents, held, leo
from odradek.sim.scenes.scene import append, is_committed, make_topic, play, until
from odradek.sim.world.cluster import LOG_DIRS, ProcessState

FIRST = [b"%d" % number for number in range(20)]
LOST = [b"lost %d" % number for number in range(7)]
NEXT = [b"next %d" % number for number in range(5)]


def assignment(scene):
    node = scene.cluster.tree.find(layout.topic_path("t"))
    return layout.decode_topic("t", node.data).assignments[0]


async def give(scene, *replicas):
    """Reassign the partition by the znode, and wait until it has only these replicas."""
    moves = layout.encode_reassign_partitions({TOPIC: replicas})
    scene.write_store(Create(layout.REASSIGN_PARTITIONS, moves))
    await until(lambda: assignment(scene).replicas == replicas, what=f"{replicas} are not assigned")


async def take_away(scene, broker):
    """Kill a broker and remove its replica, so that it gets no StopReplica."""
    broker.kill()
    await until(lambda: broker.id not in scene.state.isr)
    await give(scene, *(other.id for other in scene.brokers if other is not broker))


async def back(broker):
    broker.start()
    await until(lambda: broker.state is ProcessState.RUNNING)


async def recreate(scene):
    """Delete the topic, and create another of its name on all three brokers."""
    scene.write_store(Create(f"{layout.DELETE_TOPICS}/t"))
    await until(lambda: scene.cluster.tree.find(layout.topic_path("t")) is None)
    await scene.client.run(make_topic(scene.client, (0, 1, 2), TWO_IN_SYNC))


def strays(broker):
    return [
        f"{log_dir}/{entry.name}"
        for log_dir in LOG_DIRS
        for entry in broker.disk.list(log_dir)
        if entry.is_dir and (found := parse_name(entry.name)) and found.mark is Mark.STRAY
    ]


def bytes_in(broker, path):
    return sum(e.size for e in broker.disk.list(path) if e.name.endswith(".log"))


def test_the_log_of_the_same_topic_is_truncated_where_it_diverges_and_used():
    async def story(scene):
        leader, *others = scene.brokers
        assert await is_committed(leader, *FIRST)
        for other in others:
            scene.part(leader, other)
        append(leader, *LOST)
        assert leo(leader) == len(FIRST) + len(LOST)
        await take_away(scene, leader)
        scene.heal()
        (now,) = filter(scene.leads, others)
        assert await is_committed(now, *NEXT)
        await back(leader)
        assert leader.broker.logs.get(TOPIC).leo == len(FIRST) + len(LOST)
        await give(scene, 1, 2, 0)

        await scene.in_sync(*scene.brokers)
        assert [contents(broker) for broker in scene.brokers] == [FIRST + NEXT] * 3
        assert strays(leader) == []

    play(story)


def test_a_broker_that_got_no_stop_replica_does_not_lead_its_former_partition():
    async def story(scene):
        leader, *others = scene.brokers
        assert await is_committed(leader, *FIRST)
        scene.cut(scene.controller, leader)
        await give(scene, 1, 2)
        append(leader, *LOST)  # clients with old metadata still use it as leader
        scene.controller.kill()  # before it has sent StopReplica
        scene.heal()
        await until(lambda: held(leader).leader is None, what="it is still leader")
        assert held(leader).error is ErrorCode.NOT_LEADER_OR_FOLLOWER
        await until(lambda: any(map(scene.leads, others)))
        (now,) = filter(scene.leads, others)
        assert await is_committed(now, *NEXT)
        await give(scene, 1, 2, 0)

        await scene.in_sync(*scene.brokers)
        assert [contents(broker) for broker in scene.brokers] == [FIRST + NEXT] * 3

    play(story)


def test_the_log_of_another_topic_of_that_name_becomes_a_stray_log():
    async def story(scene):
        leader, *_ = scene.brokers
        former = held(leader).topic_id
        assert await is_committed(leader, *FIRST)
        await take_away(scene, leader)
        await back(leader)
        size = leader.broker.logs.get(TOPIC).size_bytes
        await recreate(scene)
        await scene.in_sync(*scene.brokers)
        assert held(leader).topic_id != former
        assert await is_committed(leader, *NEXT)

        (path,) = strays(leader)
        assert bytes_in(leader, path) == size
        await scene.restart(leader)
        assert [contents(broker) for broker in scene.brokers] == [NEXT] * 3
        assert strays(leader) == [path]

    play(story)


@pytest.mark.parametrize("loses_power", [False, True], ids=["killed", "without power"])
@pytest.mark.parametrize("after", [0, 1, 2, 4, 7, 11, 16, 22, 30])
def test_at_whatever_write_the_broker_crashes_it_has_the_new_log_after_its_restart(
    after, loses_power
):
    async def story(scene):
        away, *_ = scene.brokers
        assert await is_committed(away, *FIRST)
        await take_away(scene, away)
        await back(away)
        log = away.broker.logs.get(TOPIC)
        size = log.size_bytes
        log.flush()
        await asyncio.sleep(1)  # for the flush, and the tasks after a start
        away.crash_after(after)
        await recreate(scene)
        await until(lambda: not away.is_up, what="it does not crash")
        if loses_power:
            scene.lose_power(away)
        await back(away)
        await scene.in_sync(*scene.brokers)
        (leader,) = filter(scene.leads, scene.brokers)
        assert await is_committed(leader, *NEXT)

        assert [contents(broker) for broker in scene.brokers] == [NEXT] * 3
        assert [bytes_in(away, path) for path in strays(away)] == [size]

    play(story)
