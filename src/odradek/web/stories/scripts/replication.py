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
from odradek.web.stories.story_cluster import StoryCluster

FIRST: Final = [b"%d" % number for number in range(5)]


async def the_high_watermark_moves(story: StoryCluster) -> None:
    await story.produce(b"a")
    await story.all_equal()
    await story.produce(b"b", b"c")
    await story.all_equal()


async def a_follower_truncates(story: StoryCluster) -> None:
    """The leader appends what no follower gets, another leads, and the first one returns."""
    scene = story.scene
    leader, follower, other = scene.brokers
    await story.produce(*FIRST)
    await story.all_equal()
    story.scene.cut(leader, follower)
    story.scene.cut(leader, other)
    await story.produce(b"lost with acks=1", b"lost, too", acks=1)
    await story.rest(0.2)
    leader.kill()
    await story.until(lambda: scene.state.leader in (follower.id, other.id))
    scene.heal()
    present = story.brokers[scene.state.leader]
    await scene.led_by(present)
    await story.isr_is(follower.id, other.id)
    await story.produce(b"new")
    await story.start(leader)
    await story.isr_is(0, 1, 2)
    await story.all_equal()


async def the_isr_shrinks(story: StoryCluster) -> None:
    leader, follower, other = story.scene.brokers
    await story.produce(b"a")
    await story.all_equal()
    other.pause()
    await story.produce(b"b", acks=1)
    await story.rest(1.0)
    story.say(
        f"Broker {other.id} does not fetch: the high watermark stays at {high_watermark(leader)}, "
        f"although the log end offset of broker {follower.id} is {leo(follower)}."
    )
    await story.isr_is(leader.id, follower.id)
    await story.until(lambda: high_watermark(leader) == 2)
    other.resume()
    await story.isr_is(0, 1, 2)
    await story.all_equal()


async def too_few_in_sync(story: StoryCluster) -> None:
    leader, follower, other = story.scene.brokers
    await story.produce(b"a")
    await story.all_equal()
    follower.kill()
    other.kill()
    await story.isr_is(leader.id)
    await story.until(lambda: leading(leader).is_under_min_isr)
    await story.produce(b"refused")
    await story.produce(b"accepted", acks=1)
    await story.rest(0.5)
    await story.start(follower)
    await story.isr_is(leader.id, follower.id)
    await story.until(lambda: high_watermark(leader) == 2)


async def the_leader_is_killed(story: StoryCluster) -> None:
    scene = story.scene
    leader, follower, _ = scene.brokers
    await story.produce(*FIRST)
    await story.all_equal()
    leader.kill()
    await story.until(lambda: scene.state.leader == follower.id)
    await scene.led_by(follower)
    await story.produce(b"to the next leader")
    await story.start(leader)
    await story.isr_is(0, 1, 2)
    await story.all_equal()


async def _last_in_sync_replica_ends(story: StoryCluster) -> None:
    leader, follower, other = story.scene.brokers
    await story.produce(*FIRST)
    await story.all_equal()
    follower.kill()
    other.kill()
    await story.isr_is(leader.id)
    await story.produce(b"only on broker 0", acks=-1)
    leader.kill()
    await story.until(lambda: story.scene.state.leader == -1)
    await story.start(follower)


async def a_clean_election_waits(story: StoryCluster) -> None:
    leader, follower, _ = story.scene.brokers
    await _last_in_sync_replica_ends(story)
    await story.rest(3.0)
    must(story.scene.state.leader == -1, "a replica outside the ISR was elected")
    story.say(
        f"Broker {follower.id} is not in the ISR, so it is not elected: the partition is offline "
        "until a replica of the ISR is registered again."
    )
    await story.start(leader)
    await story.scene.led_by(leader)
    await story.isr_is(leader.id, follower.id)
    must(leo(leader) == leo(follower) == 6, "a record is lost")


async def an_unclean_election_loses(story: StoryCluster) -> None:
    leader, follower, _ = story.scene.brokers
    await _last_in_sync_replica_ends(story)
    await story.scene.led_by(follower)
    await story.produce(b"after the loss")
    await story.start(leader)
    await story.isr_is(leader.id, follower.id)
    await story.until(lambda: leo(leader) == leo(follower))
    must(leo(leader) > 6, "record 5 was acknowledged, and another record has its offset now")


async def preferred_leaders(story: StoryCluster) -> None:
    scene = story.scene
    leader, *_ = scene.brokers
    await story.produce(b"a")
    await story.all_equal()
    leader.kill()
    await story.until(lambda: scene.state.leader not in (-1, leader.id))
    await story.start(leader)
    await story.isr_is(0, 1, 2)
    story.say(
        f"Broker {leader.id} is the first of the replicas, so it is the preferred leader, but "
        f"broker {scene.state.leader} leads. An administrator asks for a preferred election "
        "(kafka-leader-election.sh --election-type preferred)."
    )
    await story.admin(lambda cluster: elect_leaders(cluster, PREFERRED, [TOPIC]))
    await scene.led_by(leader)
    await story.produce(b"b")
    await story.all_equal()


async def the_controller_fails(story: StoryCluster) -> None:
    scene = story.scene
    leader = scene.brokers[0]
    controller = scene.controller
    await story.produce(b"a")
    await story.all_equal()
    controller.kill()
    await story.produce(b"without a controller")
    await story.until(lambda: story.snapshot().controller not in (None, controller.id))
    await story.rest(1.0)
    story.say("The leader of t-0 is killed: does the new controller elect another?")
    leader.kill()
    await story.until(lambda: scene.state.leader not in (-1, leader.id))
    await story.start(controller)
    await story.start(leader)
    await story.isr_is(0, 1, 2)
    await story.all_equal()


async def a_controlled_shutdown(story: StoryCluster) -> None:
    scene = story.scene
    leader, *_ = scene.brokers
    await story.produce(b"a")
    await story.all_equal()
    story.say(f"Broker {leader.id} gets SIGTERM: it asks the controller to move its leaderships.")
    leader.request_stop()
    await leader.ended()
    await story.until(lambda: scene.state.leader not in (-1, leader.id))
    await story.produce(b"b")
    await story.start(leader)
    await story.isr_is(0, 1, 2)
    await story.all_equal()


async def a_reassignment(story: StoryCluster) -> None:
    """From brokers 0 and 1 to 1 and 2, with a throttle for the new replica."""
    scene = story.scene
    story.say("Producers have written 10 records of 40,000 bytes each.")
    append(scene.brokers[0], *[b"x" * 40_000] * 10)
    await story.all_equal()
    rate = 100_000
    story.say(
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
    await story.admin(lambda cluster: alter_configs(cluster, {**limits, (2, "t"): throttled}))
    await story.rest(0.5)
    await story.admin(lambda cluster: alter_reassignments(cluster, {TOPIC: [1, 2]}))
    await story.until(lambda: _replicas(story) == ((1, 2), (), ()))
    await story.until(lambda: story.snapshot().replica(TOPIC, 0) is None)
    await story.scene.led_by(scene.brokers[1])


def _replicas(story: StoryCluster) -> tuple[tuple[int, ...], ...]:
    state = story.snapshot().state(TOPIC)
    return () if state is None else (state.replicas, state.adding, state.removing)


async def a_deletion_waits(story: StoryCluster) -> None:
    scene = story.scene
    _, follower, _ = scene.brokers
    await story.produce(b"a")
    await story.all_equal()
    follower.kill()
    await story.until(lambda: follower.id not in scene.state.isr)
    story.say("An administrator deletes the topic t.")
    await story.admin(lambda cluster: delete_topics(cluster, ["t"]))
    await story.until(lambda: _has(story, Verdict.DELETION_HALTED))
    await story.rest(2.0)
    story.say(f"The deletion waits: broker {follower.id} has a replica and is offline.")
    await story.start(follower)
    await story.until(lambda: _has(story, Verdict.TOPIC_DELETED))
    await story.rest(0.5)


def _has(story: StoryCluster, verdict: Verdict) -> bool:
    return any(
        isinstance(entry.what, Decision) and entry.what.verdict is verdict
        for broker in story.brokers
        if broker.broker is not None
        for entry in broker.broker.journal.entries
    )


async def replicas_are_placed(story: StoryCluster) -> None:
    """Four partitions with two replicas each, placed by the broker; then one rack fails."""
    story.say("An administrator creates the topic t with 4 partitions and 2 replicas each.")
    topic = NewTopic("t", partitions=4, replication_factor=2)
    await story.admin(lambda cluster: create_topics(cluster, [topic]))
    partitions = [TopicPartition("t", index) for index in range(4)]
    for partition in partitions:
        story.recorder.show(partition)
    await story.until(lambda: all(story.snapshot(*partitions).leader(each) for each in partitions))
    story.recorder.observe()
    story.say("The power supply of the rack with brokers 0 and 2 fails.")
    for broker in (story.brokers[0], story.brokers[2]):
        story.scene.lose_power(broker)
    await story.until(
        lambda: all(state.leader in (-1, 1, 3) for state in story.snapshot(*partitions).stored)
    )
    offline = [
        str(state.partition) for state in story.snapshot(*partitions).stored if state.leader == -1
    ]
    story.recorder.observe()
    if offline:
        story.say(
            f"Without a leader: {', '.join(offline)}. All their replicas are on brokers 0 and 2."
        )
    else:
        story.say("Every partition has a leader: each has a replica on broker 1 or 3.")
