"""The two gaps that Apache Kafka 3.9 with ZooKeeper leaves open, and what closes them.

A replica that was restarted must not join the ISR on the strength of what its former life had
fetched (KIP-903); and the last replica in sync must not lead on after a power loss that took its
tail, while others have it (KIP-966). Each story is played as it is, and with one of the rules taken
out that it is about: then its last lines must fail.
"""

import asyncio

import pytest
from tests.sim import historic_rules as rules
from tests.sim.scene import LostError, is_committed, leo, must, play, until
from tests.sim.stage import TOPIC, contents, held

from odradek.broker.controller.store import ControllerStore
from odradek.controller.context import ControllerContext
from odradek.coord import layout, layout_odradek
from odradek.coord.store import Create, Delete, SetData
from odradek.model.cluster import Broker, EndPoint
from odradek.sim.world.cluster import ProcessState

FIRST = [b"%d" % number for number in range(20)]
ONE_BATCH_A_FETCH = {"replica.fetch.max.bytes": "1", "replica.fetch.response.max.bytes": "1"}
STRANGER = 9


# -------------------------------------------------------------- who may join the ISR, and as what


async def stale_position(scene):
    """A leader asks for a follower that has caught up; before it is heard, that one loses all."""
    leader, follower, other = scene.brokers
    follower.kill()
    await until(lambda: set(scene.state.isr) == {leader.id, other.id})
    assert await is_committed(leader, *FIRST)
    scene.part(leader, follower)
    follower.start()
    await until(lambda: follower.id in held(leader).leader.live)
    scene.cut(leader, scene.controller)
    scene.join(leader, follower)
    await until(lambda: held(leader).leader.isr.is_in_flight, what="it does not ask")
    before = scene.registration(follower)
    scene.lose_power(follower)
    scene.cluster.network.delay_ms = (40.0, 41.0)
    follower.start()
    await scene.registered_anew(follower, before)
    progress = held(leader).leader.followers[follower.id]
    await until(
        lambda: progress.broker_epoch == scene.registration(follower),
        every_s=0.001,
        what="its new life does not fetch",
    )
    scene.part(leader, follower)
    assert leo(follower) < len(FIRST)
    scene.cluster.network.delay_ms = (0.1, 1.0)
    scene.heal((leader, scene.controller))
    await until(lambda: follower.id in scene.state.isr, within_s=3, is_needed=False)
    leader.kill()
    await until(lambda: any(map(scene.leads, (follower, other))))
    (present,) = filter(scene.leads, (follower, other))
    must(contents(present) == FIRST, f"{present.name} leads with {contents(present)}")


async def unknown_life(scene):
    """A controller writes an ISR, and dies before it hears that a member has begun another life."""
    member, leader, third = scene.brokers
    await scene.restart(member)
    assert scene.leads(leader)
    third.kill()
    await until(lambda: set(scene.state.isr) == {member.id, leader.id})
    assert await is_committed(leader, *FIRST)
    scene.part(third, leader)
    third.start()
    await until(lambda: third.id in held(leader).leader.live)
    scene.hear_late(scene.controller, "watch", 5_000)
    before = scene.registration(member)
    scene.lose_power(member)
    member.start()
    await scene.registered_anew(member, before)
    scene.join(third, leader)
    await until(lambda: set(scene.state.isr) == {0, 1, 2}, every_s=0.001, what="it does not join")
    scene.controller.kill()
    leader.kill()
    await until(lambda: any(map(scene.leads, (member, third))))
    (present,) = filter(scene.leads, (member, third))
    must(contents(present) == FIRST, f"{present.name} leads with {contents(present)}")


# ------------------------------------------------------------------------ the last one in sync


async def last_in_sync(scene):
    """All acknowledged records are on two at least; then one is left, and loses its tail."""
    leader, *others = scene.brokers
    assert await is_committed(leader, *FIRST)
    await scene.last_one_in_sync(leader)
    scene.lose_power(leader)
    leader.start()
    await until(lambda: leader.state is ProcessState.RUNNING)
    await until(lambda: scene.leads(leader), within_s=5, is_needed=False)
    for other in others:
        other.start()
    await scene.in_sync(leader, *others)
    must(contents(leader) == FIRST, "acknowledged records are gone")


async def controller_dies_in_between(scene):
    """The controller dies right after it has noted down who was in sync before."""
    leader, *others = scene.brokers
    assert await is_committed(leader, *FIRST)
    await scene.last_one_in_sync(leader)
    history, tell = layout_odradek.isr_history_path(TOPIC), scene.cluster.tree.written
    loop = asyncio.get_running_loop()

    def written(changes):
        tell(changes)
        if any(change.path == history for change in changes) and scene.controller.is_up:
            loop.call_soon(scene.controller.kill)

    scene.cluster.tree.written = written
    scene.lose_power(leader)
    await until(lambda: not scene.controller.is_up, what="nothing was noted")
    scene.cluster.tree.written = tell
    scene.controller.start()
    leader.start()
    await until(lambda: leader.state is ProcessState.RUNNING)
    await until(lambda: scene.leads(leader), within_s=5, is_needed=False)
    for other in others:
        other.start()
    await scene.in_sync(leader, *others)
    must(contents(leader) == FIRST, "acknowledged records are gone")


def believe_everybody(monkeypatch):
    """Whoever is in the ISR has everything, whatever has happened to it."""
    monkeypatch.setattr(ControllerContext, "doubtful", lambda self, partition: ())


def note_no_lives(monkeypatch):
    """A state that is younger than a registration was decided with the knowledge of it."""

    async def noted(self, brokers):
        return tuple(brokers)

    monkeypatch.setattr(ControllerStore, "_noted", noted)


def note_down_first(monkeypatch):
    """What is remembered is written first, and the state that it belongs to afterwards."""
    make = ControllerStore._make_histories

    async def write(self, proposals):
        await make(self, proposals)
        batches = [[self._term.token, *write_memory(p)] for p in proposals if p.history is not None]
        if batches:
            await self._multi_many(batches)

    write_memory = ControllerStore._write_history
    monkeypatch.setattr(ControllerStore, "_make_histories", write)
    monkeypatch.setattr(ControllerStore, "_write_history", staticmethod(lambda proposal: []))


STORIES = [
    (stale_position, rules.no_broker_epoch_of_isr_members, ONE_BATCH_A_FETCH),
    (stale_position, rules.the_life_that_a_follower_is_in_by_now, ONE_BATCH_A_FETCH),
    (unknown_life, note_no_lives, {}),
    (last_in_sync, believe_everybody, {}),
    (controller_dies_in_between, note_down_first, {}),
]
named = pytest.mark.parametrize(
    ("story", "gap", "properties"), STORIES, ids=[gap.__name__ for _, gap, _ in STORIES]
)


@named
def test_nothing_is_lost(story, gap, properties):
    del gap
    play(story, properties=properties)


@named
def test_with_the_gap_the_same_story_ends_badly(monkeypatch, story, gap, properties):
    gap(monkeypatch)
    with pytest.raises(LostError):
        play(story, properties=properties)


# ------------------------------------------------------------------ beside brokers of another kind


def registration_of_a_stranger():
    point = EndPoint(
        listener="PLAINTEXT", security_protocol="PLAINTEXT", host="stranger", port=9092
    )
    broker = Broker(id=STRANGER, end_points=(point,))
    return Create(layout.broker_path(STRANGER), layout.encode_broker(broker, timestamp_ms=0))


def test_with_a_broker_of_another_kind_nobody_is_doubted_and_without_it_again():
    async def story(scene):
        leader, *others = scene.brokers
        assert await is_committed(leader, *FIRST)
        scene.write_store(registration_of_a_stranger())
        await until(lambda: STRANGER in scene.controller.broker.metadata.brokers)
        await scene.last_one_in_sync(leader)
        assert scene.history is None, "something was remembered that nobody can rely on"
        scene.lose_power(leader)
        leader.start()
        await scene.led_by(leader)

        scene.write_store(Delete(layout.broker_path(STRANGER)))
        for other in others:
            other.start()
        await scene.in_sync(leader, *others)
        assert await is_committed(leader, *FIRST)
        await scene.last_one_in_sync(leader)
        assert scene.history is not None
        scene.lose_power(leader)
        leader.start()
        await until(lambda: leader.state is ProcessState.RUNNING)
        await until(lambda: scene.leads(leader), within_s=5, is_needed=False)
        assert not scene.leads(leader)

    play(story)


@pytest.mark.parametrize("has_another_reigned", [False, True])
def test_what_was_remembered_before_another_kind_of_controller_reigned_is_void(has_another_reigned):
    async def story(scene):
        leader, *_ = scene.brokers
        assert await is_committed(leader, *FIRST)
        await scene.last_one_in_sync(leader)
        scene.lose_power(leader)
        scene.controller.kill()
        await until(lambda: scene.cluster.tree.names(layout.BROKER_IDS) == [])
        if has_another_reigned:
            # It has left the history as it is, for it does not know of it, and written the state.
            epoch = scene.stored.controller_epoch + 1
            state = layout.LeaderIsrAndControllerEpoch(
                scene.state.led_by(leader.id, (leader.id,)), epoch
            )
            scene.write_store(
                SetData(layout.CONTROLLER_EPOCH, layout.encode_controller_epoch(epoch)),
                SetData(layout.partition_state_path(TOPIC), layout.encode_partition_state(state)),
            )
        scene.controller.start()
        leader.start()
        await until(lambda: leader.state is ProcessState.RUNNING)
        await until(lambda: scene.leads(leader), within_s=10, is_needed=False)
        assert scene.leads(leader) is has_another_reigned

    play(story)
