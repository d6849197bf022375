"""Scripts about a partition: its replicas, its ISR and its leader."""

from typing import Final

from odradek.client.admin.partitions import PREFERRED, alter_reassignments, elect_leaders
from odradek.client.admin.topics import (
    Alteration,
    NewTopic,
    alter_configs,
    create_topics,
    delete_topics,
)
from odradek.controller.causes import Decision, Verdict
from odradek.model.partition import TopicPartition
from odradek.sim.scenes.replicas import TOPIC, high_watermark, leading, leo
from odradek.sim.scenes.scene import append, must
from odradek.web.stories.theatre import Theatre

FIRST: Final = [b"%d" % number for number in range(5)]


async def the_high_watermark_moves(theatre: Theatre) -> None:
    await theatre.produce(b"a")
    await theatre.all_equal()
    await theatre.produce(b"b", b"c")
    await theatre.all_equal()


async def a_follower_truncates(theatre: Theatre) -> None:
    """The leader appends what no follower gets, another leads, and the first one returns."""
    scene = theatre.scene
    leader, follower, other = scene.brokers
    await theatre.produce(*FIRST)
    await theatre.all_equal()
    theatre.scene.cut(leader, follower)
    theatre.scene.cut(leader, other)
    await theatre.produce(b"lost with acks=1", b"lost, too", acks=1)
    await theatre.rest(0.2)
    leader.kill()
    await theatre.until(lambda: scene.state.leader in (follower.id, other.id))
    scene.heal()
    present = theatre.brokers[scene.state.leader]
    await scene.led_by(present)
    await theatre.isr_is(follower.id, other.id)
    await theatre.produce(b"new")
    await theatre.start(leader)
    await theatre.isr_is(0, 1, 2)
    await theatre.all_equal()


async def the_isr_shrinks(theatre: Theatre) -> None:
    leader, follower, other = theatre.scene.brokers
    await theatre.produce(b"a")
    await theatre.all_equal()
    other.pause()
    await theatre.produce(b"b", acks=1)
    await theatre.rest(1.0)
    theatre.say(
        f"Broker {other.id} does not fetch: the high watermark stays at {high_watermark(leader)}, "
        f"although the log end offset of broker {follower.id} is {leo(follower)}."
    )
    await theatre.isr_is(leader.id, follower.id)
    await theatre.until(lambda: high_watermark(leader) == 2)
    other.resume()
    await theatre.isr_is(0, 1, 2)
    await theatre.all_equal()


async def too_few_in_sync(theatre: Theatre) -> None:
    leader, follower, other = theatre.scene.brokers
    await theatre.produce(b"a")
    await theatre.all_equal()
    follower.kill()
    other.kill()
    await theatre.isr_is(leader.id)
    await theatre.until(lambda: leading(leader).is_under_min_isr)
    await theatre.produce(b"refused")
    await theatre.produce(b"accepted", acks=1)
    await theatre.rest(0.5)
    await theatre.start(follower)
    await theatre.isr_is(leader.id, follower.id)
    await theatre.until(lambda: high_watermark(leader) == 2)


async def the_leader_is_killed(theatre: Theatre) -> None:
    scene = theatre.scene
    leader, follower, _ = scene.brokers
    await theatre.produce(*FIRST)
    await theatre.all_equal()
    leader.kill()
    await theatre.until(lambda: scene.state.leader == follower.id)
    await scene.led_by(follower)
    await theatre.produce(b"to the next leader")
    await theatre.start(leader)
    await theatre.isr_is(0, 1, 2)
    await theatre.all_equal()


async def _last_in_sync_replica_ends(theatre: Theatre) -> None:
    leader, follower, other = theatre.scene.brokers
    await theatre.produce(*FIRST)
    await theatre.all_equal()
    follower.kill()
    other.kill()
    await theatre.isr_is(leader.id)
    await theatre.produce(b"only on broker 0", acks=-1)
    leader.kill()
    await theatre.until(lambda: theatre.scene.state.leader == -1)
    await theatre.start(follower)


async def a_clean_election_waits(theatre: Theatre) -> None:
    leader, follower, _ = theatre.scene.brokers
    await _last_in_sync_replica_ends(theatre)
    await theatre.rest(3.0)
    must(theatre.scene.state.leader == -1, "a replica outside the ISR was elected")
    theatre.say(
        f"Broker {follower.id} is not in the ISR, so it is not elected: the partition is offline "
        "until a replica of the ISR is registered again."
    )
    await theatre.start(leader)
    await theatre.scene.led_by(leader)
    await theatre.isr_is(leader.id, follower.id)
    must(leo(leader) == leo(follower) == 6, "a record is lost")


async def an_unclean_election_loses(theatre: Theatre) -> None:
    leader, follower, _ = theatre.scene.brokers
    await _last_in_sync_replica_ends(theatre)
    await theatre.scene.led_by(follower)
    await theatre.produce(b"after the loss")
    await theatre.start(leader)
    await theatre.isr_is(leader.id, follower.id)
    await theatre.until(lambda: leo(leader) == leo(follower))
    must(leo(leader) > 6, "record 5 was acknowledged, and another record has its offset now")


async def preferred_leaders(theatre: Theatre) -> None:
    scene = theatre.scene
    leader, *_ = scene.brokers
    await theatre.produce(b"a")
    await theatre.all_equal()
    leader.kill()
    await theatre.until(lambda: scene.state.leader not in (-1, leader.id))
    await theatre.start(leader)
    await theatre.isr_is(0, 1, 2)
    theatre.say(
        f"Broker {leader.id} is the first of the replicas, so it is the preferred leader, but "
        f"broker {scene.state.leader} leads. An administrator asks for a preferred election "
        "(kafka-leader-election.sh --election-type preferred)."
    )
    await theatre.admin(lambda cluster: elect_leaders(cluster, PREFERRED, [TOPIC]))
    await scene.led_by(leader)
    await theatre.produce(b"b")
    await theatre.all_equal()


async def the_controller_fails(theatre: Theatre) -> None:
    scene = theatre.scene
    leader = scene.brokers[0]
    controller = scene.controller
    await theatre.produce(b"a")
    await theatre.all_equal()
    controller.kill()
    await theatre.produce(b"without a controller")
    await theatre.until(lambda: theatre.snapshot().controller not in (None, controller.id))
    await theatre.rest(1.0)
    theatre.say("The leader of t-0 is killed: does the new controller elect another?")
    leader.kill()
    await theatre.until(lambda: scene.state.leader not in (-1, leader.id))
    await theatre.start(controller)
    await theatre.start(leader)
    await theatre.isr_is(0, 1, 2)
    await theatre.all_equal()


async def a_controlled_shutdown(theatre: Theatre) -> None:
    scene = theatre.scene
    leader, *_ = scene.brokers
    await theatre.produce(b"a")
    await theatre.all_equal()
    theatre.say(f"Broker {leader.id} gets SIGTERM: it asks the controller to move its leaderships.")
    leader.request_stop()
    await leader.ended()
    await theatre.until(lambda: scene.state.leader not in (-1, leader.id))
    await theatre.produce(b"b")
    await theatre.start(leader)
    await theatre.isr_is(0, 1, 2)
    await theatre.all_equal()


async def a_reassignment(theatre: Theatre) -> None:
    """From brokers 0 and 1 to 1 and 2, with a throttle for the new replica."""
    scene = theatre.scene
    theatre.say("Producers have written 10 records of 40,000 bytes each.")
    append(scene.brokers[0], *[b"x" * 40_000] * 10)
    await theatre.all_equal()
    rate = 100_000
    theatre.say(
        f"An administrator sets a throttle of {rate:,} bytes/s for the new replica, and asks to "
        f"move {TOPIC} from brokers 0 and 1 to brokers 1 and 2."
    )
    brokers = [str(broker.id) for broker in scene.brokers]
    limits = {
        (4, broker): [
            Alteration("leader.replication.throttled.rate", str(rate)),
            Alteration("follower.replication.throttled.rate", str(rate)),
        ]
        for broker in brokers
    }
    throttled = [
        Alteration("leader.replication.throttled.replicas", "0:0,0:1"),
        Alteration("follower.replication.throttled.replicas", "0:2"),
    ]
    await theatre.admin(lambda cluster: alter_configs(cluster, {**limits, (2, "t"): throttled}))
    await theatre.rest(0.5)
    await theatre.admin(lambda cluster: alter_reassignments(cluster, {TOPIC: [1, 2]}))
    await theatre.until(lambda: _replicas(theatre) == ((1, 2), (), ()))
    await theatre.until(lambda: theatre.snapshot().replica(TOPIC, 0) is None)
    await theatre.scene.led_by(scene.brokers[1])


def _replicas(theatre: Theatre) -> tuple[tuple[int, ...], ...]:
    state = theatre.snapshot().state(TOPIC)
    return () if state is None else (state.replicas, state.adding, state.removing)


async def a_deletion_waits(theatre: Theatre) -> None:
    scene = theatre.scene
    _, follower, _ = scene.brokers
    await theatre.produce(b"a")
    await theatre.all_equal()
    follower.kill()
    await theatre.until(lambda: follower.id not in scene.state.isr)
    theatre.say("An administrator deletes the topic t.")
    await theatre.admin(lambda cluster: delete_topics(cluster, ["t"]))
    await theatre.until(lambda: _has(theatre, Verdict.DELETION_HALTED))
    await theatre.rest(2.0)
    theatre.say(f"The deletion waits: broker {follower.id} has a replica and is offline.")
    await theatre.start(follower)
    await theatre.until(lambda: _has(theatre, Verdict.TOPIC_DELETED))
    await theatre.rest(0.5)


def _has(theatre: Theatre, verdict: Verdict) -> bool:
    return any(
        isinstance(entry.what, Decision) and entry.what.verdict is verdict
        for broker in theatre.brokers
        if broker.broker is not None
        for entry in broker.broker.journal.entries
    )


async def replicas_are_placed(theatre: Theatre) -> None:
    """Four partitions with two replicas each, placed by the broker; then one rack fails."""
    theatre.say("An administrator creates the topic t with 4 partitions and 2 replicas each.")
    topic = NewTopic("t", partitions=4, replication_factor=2)
    await theatre.admin(lambda cluster: create_topics(cluster, [topic]))
    partitions = [TopicPartition("t", index) for index in range(4)]
    for partition in partitions:
        theatre.recorder.show(partition)
    await theatre.until(
        lambda: all(theatre.snapshot(*partitions).leader(each) for each in partitions)
    )
    theatre.recorder.observe()
    theatre.say("The power supply of the rack with brokers 0 and 2 fails.")
    for broker in (theatre.brokers[0], theatre.brokers[2]):
        theatre.scene.lose_power(broker)
    await theatre.until(
        lambda: all(state.leader in (-1, 1, 3) for state in theatre.snapshot(*partitions).stored)
    )
    offline = [
        str(state.partition) for state in theatre.snapshot(*partitions).stored if state.leader == -1
    ]
    theatre.recorder.observe()
    if offline:
        theatre.say(
            f"Without a leader: {', '.join(offline)}. All their replicas are on brokers 0 and 2."
        )
    else:
        theatre.say("Every partition has a leader: each has a replica on broker 1 or 3.")
