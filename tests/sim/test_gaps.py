"""Two ways in which Apache Kafka 3.9 with ZooKeeper loses records, and the rules against them.

A replica that was restarted must not join the ISR because of fetches of its earlier registration
(KIP-903). The last in-sync replica must not stay leader after a power loss that truncated its log,
while other replicas have the records (KIP-966). Each scenario is played twice: with all rules, and
without one of them, when its last lines must fail.
"""

import asyncio

import pytest

from odradek.broker.controller import store
from odradek.broker.controller.store import ControllerStore
from odradek.controller.context import ControllerContext
from odradek.coord import layout, layout_odradek
from odradek.coord.store import Create, Delete, SetData
from odradek.model.cluster import Broker, EndPoint
from odradek.sim.scenes import historic_rules as rules
from odradek.sim.scenes.replicas import TOPIC, contents, held, leo
from odradek.sim.scenes.scene import LostError, is_committed, must, play, until
from odradek.sim.world.cluster import ProcessState

FIRST = [b"%d" % number for number in range(20)]
ONE_BATCH_A_FETCH = {"replica.fetch.max.bytes": "1", "replica.fetch.response.max.bytes": "1"}
OTHER_KIND = 9


# ------------------------------------------------------------ which registration may join the ISR


async def follower_loses_its_log(scene):
    """A leader requests to add a follower, which loses its log before the request arrives."""
    leader, follower, other = scene.brokers
    follower.kill()
    await until(lambda: set(scene.state.isr) == {leader.id, other.id})
    assert await is_committed(leader, *FIRST)
    scene.part(leader, follower)
    follower.start()
    await until(lambda: follower.id in held(leader).leader.live)
    scene.cut(leader, scene.controller)
    scene.join(leader, follower)
    await until(
        lambda: held(leader).leader.isr.is_in_flight, what="it does not send AlterPartition"
    )
    before = scene.registration(follower)
    scene.lose_power(follower)
    scene.cluster.network.delay_ms = (40.0, 41.0)
    follower.start()
    await scene.registered_again(follower, before)
    progress = held(leader).leader.followers[follower.id]
    await until(
        lambda: progress.broker_epoch == scene.registration(follower),
        every_s=0.001,
        what="it does not fetch after its restart",
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


async def unseen_restart(scene):
    """A controller stores an ISR, and crashes before it sees that a member has restarted."""
    member, leader, third = scene.brokers
    await scene.restart(member)
    assert scene.leads(leader)
    third.kill()
    await until(lambda: set(scene.state.isr) == {member.id, leader.id})
    assert await is_committed(leader, *FIRST)
    scene.part(third, leader)
    third.start()
    await until(lambda: third.id in held(leader).leader.live)
    scene.delay_store(scene.controller, "watch", 5_000)
    before = scene.registration(member)
    scene.lose_power(member)
    member.start()
    await scene.registered_again(member, before)
    scene.join(third, leader)
    await until(lambda: set(scene.state.isr) == {0, 1, 2}, every_s=0.001, what="it does not join")
    scene.controller.kill()
    leader.kill()
    await until(lambda: any(map(scene.leads, (member, third))))
    (present,) = filter(scene.leads, (member, third))
    must(contents(present) == FIRST, f"{present.name} leads with {contents(present)}")


# ------------------------------------------------------------------- the last in-sync replica


async def last_in_sync_loses_its_tail(scene):
    """All acknowledged records are on two replicas; one is left in sync, and loses its tail."""
    leader, *others = scene.brokers
    assert await is_committed(leader, *FIRST)
    await scene.reduce_isr_to(leader)
    scene.lose_power(leader)
    leader.start()
    await until(lambda: leader.state is ProcessState.RUNNING)
    await until(lambda: scene.leads(leader), within_s=5, is_needed=False)
    for other in others:
        other.start()
    await scene.in_sync(leader, *others)
    must(contents(leader) == FIRST, "acknowledged records are lost")


async def controller_dies_in_between(scene):
    """The controller crashes right after it has stored the previous ISR."""
    leader, *others = scene.brokers
    assert await is_committed(leader, *FIRST)
    await scene.reduce_isr_to(leader)
    history, notify = layout_odradek.isr_history_path(TOPIC), scene.cluster.tree.written
    loop = asyncio.get_running_loop()

    def written(changes):
        notify(changes)
        if any(change.path == history for change in changes) and scene.controller.is_up:
            loop.call_soon(scene.controller.kill)

    scene.cluster.tree.written = written
    scene.lose_power(leader)
    await until(lambda: not scene.controller.is_up, what="no history was stored")
    scene.cluster.tree.written = notify
    scene.controller.start()
    leader.start()
    await until(lambda: leader.state is ProcessState.RUNNING)
    await until(lambda: scene.leads(leader), within_s=5, is_needed=False)
    for other in others:
        other.start()
    await scene.in_sync(leader, *others)
    must(contents(leader) == FIRST, "acknowledged records are lost")


def trust_every_in_sync_replica(monkeypatch):
    """As Kafka: an in-sync replica is taken to have all records, even after a power loss."""
    monkeypatch.setattr(ControllerContext, "doubtful", lambda self, partition: ())


def no_registrations_in_the_store(monkeypatch):
    """A stored state is taken to be decided with all earlier registrations seen."""

    async def unchanged(self, brokers):
        return tuple(brokers)

    monkeypatch.setattr(ControllerStore, "note_registrations", unchanged)


def store_the_history_first(monkeypatch):
    """The history of ISRs is written before the state that it belongs to, not with it."""
    make, write_history = ControllerStore.create_histories, store.write_history

    async def write(self, proposals):
        await make(self, proposals)
        batches = [
            [self._term.token, *write_history(p)] for p in proposals if p.history is not None
        ]
        if batches:
            await self._multi_many(batches)

    monkeypatch.setattr(ControllerStore, "create_histories", write)
    monkeypatch.setattr(store, "write_history", lambda proposal: [])


STORIES = [
    (follower_loses_its_log, rules.no_broker_epoch_of_isr_members, ONE_BATCH_A_FETCH),
    (follower_loses_its_log, rules.the_present_broker_epoch_of_a_follower, ONE_BATCH_A_FETCH),
    (unseen_restart, no_registrations_in_the_store, {}),
    (last_in_sync_loses_its_tail, trust_every_in_sync_replica, {}),
    (controller_dies_in_between, store_the_history_first, {}),
]
named = pytest.mark.parametrize(
    ("story", "gap", "properties"), STORIES, ids=[gap.__name__ for _, gap, _ in STORIES]
)


@named
def test_nothing_is_lost(story, gap, properties):
    del gap
    play(story, properties=properties)


@named
def test_without_the_rule_the_same_scenario_loses_records(monkeypatch, story, gap, properties):
    gap(monkeypatch)
    with pytest.raises(LostError):
        play(story, properties=properties)


# ---------------------------------------------------------------------- beside brokers of Kafka


def registration_of_another_kind():
    point = EndPoint(listener="PLAINTEXT", security_protocol="PLAINTEXT", host="other", port=9092)
    broker = Broker(id=OTHER_KIND, end_points=(point,))
    return Create(layout.broker_path(OTHER_KIND), layout.encode_broker(broker, timestamp_ms=0))


def test_beside_a_broker_of_another_kind_every_in_sync_replica_may_lead_and_without_it_not():
    async def story(scene):
        leader, *others = scene.brokers
        assert await is_committed(leader, *FIRST)
        scene.write_store(registration_of_another_kind())
        await until(lambda: OTHER_KIND in scene.controller.broker.metadata.brokers)
        await scene.reduce_isr_to(leader)
        assert scene.history is None, (
            "a history is stored that the other kind of controller does not keep"
        )
        scene.lose_power(leader)
        leader.start()
        await scene.led_by(leader)

        scene.write_store(Delete(layout.broker_path(OTHER_KIND)))
        for other in others:
            other.start()
        await scene.in_sync(leader, *others)
        assert await is_committed(leader, *FIRST)
        await scene.reduce_isr_to(leader)
        assert scene.history is not None
        scene.lose_power(leader)
        leader.start()
        await until(lambda: leader.state is ProcessState.RUNNING)
        await until(lambda: scene.leads(leader), within_s=5, is_needed=False)
        assert not scene.leads(leader)

    play(story)


@pytest.mark.parametrize("was_another_controller", [False, True])
def test_the_stored_history_is_void_after_a_controller_of_another_kind(was_another_controller):
    async def story(scene):
        leader, *_ = scene.brokers
        assert await is_committed(leader, *FIRST)
        await scene.reduce_isr_to(leader)
        scene.lose_power(leader)
        scene.controller.kill()
        await until(lambda: scene.cluster.tree.names(layout.BROKER_IDS) == [])
        if was_another_controller:
            # That controller ignores the znode of the history, and writes the state.
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
        assert scene.leads(leader) is was_another_controller

    play(story)
