"""Scenarios in which a historic rule loses records, and the rule that holds now loses none.

Each is played with the rule that holds now, when nothing is lost, and with the historic one
(`historic_rules`), when its last lines must fail.
"""

from collections.abc import Awaitable, Callable, Sequence
from typing import Final, NamedTuple

from odradek.coord import layout
from odradek.coord.store import Create
from odradek.sim.scenes import historic_rules as rules
from odradek.sim.scenes.historic_rules import Patches
from odradek.sim.scenes.replicas import (
    TWO_IN_SYNC,
    contents,
    held,
    high_watermark,
    leading,
    leo,
    replica,
)
from odradek.sim.scenes.scene import (
    Scene,
    append,
    is_committed,
    make_topic,
    must,
    read_committed,
    until,
)
from odradek.sim.world.cluster import SimulatedBroker

FIRST: Final = [b"%d" % number for number in range(5)]


async def begin(leader: SimulatedBroker) -> None:
    """Write records that all replicas have."""
    assert await is_committed(leader, *FIRST)


def _answered(leader: SimulatedBroker, *, acked: bool) -> str:
    end = "acknowledged" if acked else "not acknowledged"
    return f"A record that a producer has sent to broker {leader.id} with acks=all is {end}."


def _read(values: Sequence[bytes]) -> str:
    return f"A read_committed consumer reads: {', '.join(value.decode() for value in values)}."


async def truncation(scene: Scene) -> None:
    """A follower with an old high watermark gets a new leader epoch, and is elected."""
    leader, follower, other = scene.brokers
    await begin(leader)
    await until(lambda: high_watermark(follower) == 5)
    scene.part(leader, other)
    append(leader, b"last")
    await until(lambda: leading(leader).followers[follower.id].leo == 6)
    scene.cut(leader, follower)
    scene.join(leader, other)
    await until(lambda: high_watermark(leader) == 6)
    assert (leo(follower), high_watermark(follower)) == (6, 5)
    epoch = replica(follower).leader_epoch
    other.kill()
    await until(lambda: replica(follower).leader_epoch > epoch)
    leader.kill()
    await scene.led_by(follower)
    must(contents(follower) == [*FIRST, b"last"], contents(follower))


async def two_tails(scene: Scene) -> None:
    """Two leaders, one after the other, each with records that the other lacks (KIP-279)."""
    first, second = scene.brokers_of_topic
    await begin(first)
    await scene.restart(first)
    assert scene.leads(second)
    scene.part(first, second)
    append(second, *[b"of the second"] * 5)
    await scene.prefer(first)
    await scene.led_by(first)
    append(first, *[b"of the first"] * 2)
    first.kill()
    await scene.led_by(second)
    scene.join(first, second)
    first.start()
    await until(lambda: set(scene.state.isr) == {first.id, second.id})
    await until(lambda: held(first) is not None and leo(first) == leo(second))
    must(contents(first) == contents(second), (contents(first), contents(second)))


async def follower_without_leader_and_isr(scene: Scene) -> None:
    """A follower gets no LeaderAndIsr while another broker leads; its leader's log differs then."""
    other, leader, follower = scene.brokers
    await begin(other)
    await scene.restart(other)
    assert scene.leads(leader)
    scene.cut(scene.controller, follower)
    scene.cut(leader, other)
    append(leader, *[b"tail"] * 5)
    await until(lambda: leo(follower) == 10)
    await scene.prefer(other)
    await scene.led_by(other)
    scene.heal((leader, other))
    await until(lambda: leo(leader) == 5, what="it does not truncate")
    append(other, *[b"other"] * 2)
    await until(lambda: leo(leader) == 7)
    other.kill()
    await scene.led_by(leader)
    append(leader, *[b"third"] * 8)
    await until(lambda: leo(leader) == 15)
    await until(lambda: leo(follower) == 15, within_s=3, is_needed=False)
    scene.heal((scene.controller, follower))
    await scene.in_sync(leader, follower)
    must(contents(leader) == contents(follower), (contents(leader), contents(follower)))


async def stale_leader(scene: Scene) -> None:
    """A leader gets no LeaderAndIsr while another broker leads, and the ISR changes."""
    first, leader, other = scene.brokers
    await begin(first)
    await scene.restart(first)
    assert scene.leads(leader)
    scene.part(leader, other)
    append(leader, b"x")
    await until(lambda: set(leading(leader).isr.committed) == {first.id, leader.id})
    assert not leading(leader).isr.is_in_flight
    scene.cut(scene.controller, leader)
    await scene.prefer(first)
    await until(lambda: set(scene.state.isr) == {0, 1, 2}, what="the other does not join")
    first.kill()
    await until(lambda: scene.state.leader == leader.id)
    assert set(scene.state.isr) == {leader.id, other.id}
    first.start()
    await until(lambda: held(first) is not None and replica(first).leader_id == leader.id)
    acked = await is_committed(leader, b"late")
    scene.note(_answered(leader, acked=acked))
    leader.kill()
    await scene.led_by(other)
    must(not acked or b"late" in contents(other), "an acknowledged record is lost")


async def request_for_an_earlier_registration(scene: Scene) -> None:
    """A broker that has lost its tail gets LeaderAndIsr meant for its earlier registration."""
    broker, leader, other = scene.brokers
    await begin(broker)
    await scene.restart(broker)
    assert scene.leads(leader)
    assert await is_committed(leader, b"not flushed")
    scene.note(_answered(leader, acked=True))
    await until(lambda: leo(broker) == leo(other) == 6)
    scene.cut(scene.controller, broker)
    await scene.prefer(broker)
    await until(lambda: replica(leader).leader_id == broker.id)
    before = scene.registration(broker)
    scene.delay_store(scene.controller, "watch", 5_000)
    scene.lose_power(broker)
    broker.start()
    await scene.registered_again(broker, before)
    scene.heal((scene.controller, broker))
    await until(lambda: held(broker) is not None and leo(leader) < 6, within_s=3, is_needed=False)
    await scene.in_sync(broker, leader, other)
    must(b"not flushed" in contents(leader), "an acknowledged record is lost")


async def deletion_by_a_former_controller(scene: Scene) -> None:
    """StopReplica with deletion comes late, from a controller that another has replaced."""
    broker, other = scene.brokers_of_topic
    await begin(broker)
    former = scene.controller
    scene.cut(former, broker)
    scene.write_store(Create(layout.delete_topic_path("t")))
    await until(lambda: held(other) is None)
    assert not replica(broker).is_removed
    scene.cut_from_the_store(former)
    scene.cluster.network.cut("client", former.name)
    topic = layout.topic_path("t")
    await until(lambda: scene.cluster.tree.find(topic) is None, what="it is not deleted")
    await scene.client.run(make_topic(scene.client, (broker.id, other.id), TWO_IN_SYNC))
    await scene.in_sync(broker, other)
    await begin(broker)
    scene.heal((former, broker))
    await until(lambda: held(broker) is None, within_s=3, is_needed=False)
    must(held(broker) is not None and contents(broker) == FIRST, "the new topic was deleted")


async def joined_before_the_response(scene: Scene) -> None:
    """A follower is in the stored ISR, and its leader has no response to AlterPartition yet."""
    leader, follower, other = scene.brokers
    await begin(leader)
    follower.kill()
    await until(lambda: set(scene.state.isr) == {leader.id, other.id})
    scene.part(leader, follower)
    follower.start()
    await until(lambda: follower.id in leading(leader).live)
    scene.delay_store(scene.controller, "multi_many", 100)
    scene.join(leader, follower)
    await until(lambda: set(scene.state.isr) == {0, 1, 2}, every_s=0.01, what="it does not join")
    scene.cut(scene.controller, leader)
    scene.part(leader, follower)
    assert leading(leader).isr.is_in_flight
    await until(lambda: False, within_s=6, is_needed=False)  # longer than a follower may lag
    acked = await is_committed(leader, b"late")
    scene.note(_answered(leader, acked=acked))
    leader.kill()
    other.kill()
    await scene.led_by(follower)
    must(not acked or b"late" in contents(follower), "an acknowledged record is lost")


async def alone(scene: Scene) -> None:
    """The last in-sync replica is read from, and loses power; the others continue without it."""
    leader, follower, other = scene.brokers
    await begin(leader)
    follower.kill()
    other.kill()
    await until(lambda: leading(leader).isr.committed == (leader.id,))
    append(leader, b"alone")
    read = contents(leader)[: high_watermark(leader)]
    scene.note(f"A consumer reads up to the high watermark: {len(read)} records.")
    scene.lose_power(leader)
    for broker in scene.brokers:
        broker.start()
    await until(lambda: any(map(scene.leads, scene.brokers)))
    (present,) = filter(scene.leads, scene.brokers)
    must(contents(present)[: len(read)] == read, "records that were read are lost")


async def open_transaction(scene: Scene) -> None:
    """A read_committed consumer sees no record of an open transaction, from any leader."""
    leader, follower, _ = scene.brokers
    await begin(leader)
    append(leader, b"open", producer_id=7, producer_epoch=0, base_sequence=0, transactional=True)
    append(leader, b"behind it")
    await until(lambda: high_watermark(leader) == high_watermark(follower) == 7)
    read = await scene.client.run(read_committed(scene.client))
    scene.note(_read(read))
    must(read == FIRST, "a record of an open transaction was read")
    leader.kill()
    await scene.led_by(follower)
    await until(lambda: high_watermark(follower) == 7)
    read = await scene.client.run(read_committed(scene.client))
    scene.note(_read(read))
    must(read == FIRST, "a record of an open transaction was read from another leader")


class Scenario(NamedTuple):
    """A historic rule, what shows its mistake, and the brokers that have the partition."""

    rule: Callable[[Patches], None]
    story: Callable[[Scene], Awaitable[None]]
    replicas: tuple[int, ...] = (0, 1, 2)


SCENARIOS: Final = (
    Scenario(rules.truncation_to_the_high_watermark, truncation),
    Scenario(rules.one_step_of_truncation, two_tails, (0, 1)),
    Scenario(rules.truncation_without_fencing, follower_without_leader_and_isr),
    Scenario(rules.no_leader_epoch_in_fetches, stale_leader),
    Scenario(rules.no_broker_epoch, request_for_an_earlier_registration),
    Scenario(rules.no_controller_fencing, deletion_by_a_former_controller, (0, 1)),
    Scenario(rules.high_watermark_by_the_stored_isr, joined_before_the_response),
    Scenario(rules.high_watermark_below_min_isr, alone),
    Scenario(rules.last_stable_offset_off_by_one, open_transaction),
)
