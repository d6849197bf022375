"""A broker is away while it loses a replica: what it has of it when the partition comes back.

The same topic: the log is cut where it differs, as every follower's, and used. Another topic of the
name: the log is set aside, and an empty one begun.
"""

import asyncio

import pytest
from tests.sim.scene import append, is_committed, leo, make_topic, play, until
from tests.sim.stage import TOPIC, TWO_IN_SYNC, contents, held

from odradek.coord import layout
from odradek.coord.store import Create
from odradek.log.directories import Mark, parse_name
from odradek.model.errors import ErrorCode
from odradek.sim.world.cluster import LOG_DIRS, ProcessState

FIRST = [b"%d" % number for number in range(20)]
LOST = [b"lost %d" % number for number in range(7)]
NEXT = [b"next %d" % number for number in range(5)]


def assignment(scene):
    node = scene.cluster.tree.find(layout.topic_path("t"))
    return layout.decode_topic("t", node.data).assignments[0]


async def give(scene, *replicas):
    """Give the partition these replicas, by the znode, and wait until it has them alone."""
    moves = layout.encode_reassign_partitions({TOPIC: replicas})
    scene.write_store(Create(layout.REASSIGN_PARTITIONS, moves))
    await until(lambda: assignment(scene).replicas == replicas, what=f"{replicas} are not given")


async def take_away(scene, broker):
    """Take its replica from a broker that does not hear of it."""
    broker.kill()
    await until(lambda: broker.id not in scene.state.isr)
    await give(scene, *(other.id for other in scene.brokers if other is not broker))


async def back(broker):
    broker.start()
    await until(lambda: broker.state is ProcessState.RUNNING)


async def made_anew(scene):
    """Delete the topic, and make another of its name on all three."""
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


def test_the_log_of_the_same_topic_is_cut_where_it_differs_and_used():
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


def test_who_was_not_told_that_it_lost_its_replica_serves_it_no_longer():
    async def story(scene):
        leader, *others = scene.brokers
        assert await is_committed(leader, *FIRST)
        scene.cut(scene.controller, leader)
        await give(scene, 1, 2)
        append(leader, *LOST)  # it leads on, for whoever has not heard of it
        scene.controller.kill()  # and with it goes the order to stop
        scene.heal()
        await until(lambda: held(leader).leader is None, what="it leads on")
        assert held(leader).error is ErrorCode.NOT_LEADER_OR_FOLLOWER
        await until(lambda: any(map(scene.leads, others)))
        (now,) = filter(scene.leads, others)
        assert await is_committed(now, *NEXT)
        await give(scene, 1, 2, 0)

        await scene.in_sync(*scene.brokers)
        assert [contents(broker) for broker in scene.brokers] == [FIRST + NEXT] * 3

    play(story)


def test_the_log_of_another_topic_is_set_aside():
    async def story(scene):
        leader, *_ = scene.brokers
        former = held(leader).topic_id
        assert await is_committed(leader, *FIRST)
        await take_away(scene, leader)
        await back(leader)
        size = leader.broker.logs.get(TOPIC).size_bytes
        await made_anew(scene)
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
def test_wherever_in_between_the_broker_dies_it_comes_back_with_the_new_log(after, loses_power):
    async def story(scene):
        away, *_ = scene.brokers
        assert await is_committed(away, *FIRST)
        await take_away(scene, away)
        await back(away)
        log = away.broker.logs.get(TOPIC)
        size = log.size_bytes
        log.flush()
        await asyncio.sleep(1)  # for that, and what is done after a start
        away.crash_after(after)
        await made_anew(scene)
        await until(lambda: not away.is_up, what="it does not die")
        if loses_power:
            scene.lose_power(away)
        await back(away)
        await scene.in_sync(*scene.brokers)
        (leader,) = filter(scene.leads, scene.brokers)
        assert await is_committed(leader, *NEXT)

        assert [contents(broker) for broker in scene.brokers] == [NEXT] * 3
        assert [bytes_in(away, path) for path in strays(away)] == [size]

    play(story)
