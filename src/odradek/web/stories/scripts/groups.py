"""Scripts about consumers: rebalances, commits and positions."""

import asyncio
from collections.abc import Sequence
from contextlib import suppress
from typing import Final

from odradek.client.admin.partitions import delete_records
from odradek.client.admin.topics import NewTopic, create_topics
from odradek.client.consumer.consumer import Consumer
from odradek.client.consumer.settings import COOPERATIVE, RANGE, ConsumerSettings
from odradek.client.errors import NoOffsetError
from odradek.client.group.offsets import OffsetAndMetadata
from odradek.sim.clients.client import TROUBLE, Client
from odradek.sim.scenes.replicas import TOPIC
from odradek.sim.scenes.scene import append, must
from odradek.web.stories.story_cluster import StoryCluster, StoryListener

GROUP: Final = "g"


def _member(
    story: StoryCluster, client: Client, *, assignors: tuple[str, ...] = (RANGE,), **more: object
) -> ConsumerSettings:
    return ConsumerSettings(
        client=story.client_settings(client),
        group_id=GROUP,
        commits_by_itself=False,
        session_timeout_ms=6_000,
        heartbeat_interval_ms=500,
        assignors=assignors,
        **{"offset_reset": "earliest", **more},  # type: ignore[arg-type]
    )


# ------------------------------------------------------------------------------ rebalances


class _Worker:
    """A member of the group in a process of its own, which polls until it is killed."""

    def __init__(self, story: StoryCluster, name: str, assignors: tuple[str, ...]) -> None:
        self.listener = StoryListener(story, name)
        self.client = story.client(name)
        story.say(f"{name} subscribes to t as a member of the group {GROUP}.")
        self.client.run(self._poll(story, _member(story, self.client, assignors=assignors)))

    async def _poll(self, story: StoryCluster, settings: ConsumerSettings) -> None:
        consumer = await story.consumer(self.client, settings)
        consumer.subscribe(["t"], self.listener)
        while True:
            with suppress(*TROUBLE):
                await consumer.poll(100)


async def _rebalance(story: StoryCluster, assignor: str) -> None:
    story.say("An administrator creates the topic t with 4 partitions.")
    topic = NewTopic("t", assignment={0: [0], 1: [1], 2: [2], 3: [0]})
    await story.admin(lambda cluster: create_topics(cluster, [topic]))
    one = _Worker(story, "consumer-a", (assignor,))
    await story.until(lambda: len(one.listener.owned) == 4)
    other = _Worker(story, "consumer-b", (assignor,))
    await story.until(lambda: len(one.listener.owned) == len(other.listener.owned) == 2)
    await story.rest(1.0)
    story.kill_client(other.client)
    await story.until(lambda: len(one.listener.owned) == 4)
    await story.rest(0.5)


async def an_eager_rebalance(story: StoryCluster) -> None:
    await _rebalance(story, RANGE)


async def a_cooperative_rebalance(story: StoryCluster) -> None:
    await _rebalance(story, COOPERATIVE)


# ------------------------------------------------------------------------------ commits


class _Processing:
    """Processes records one by one, and commits before or after each batch of three."""

    def __init__(self, story: StoryCluster, *, commits_first: bool) -> None:
        self.story = story
        self.commits_first = commits_first
        self.processed: list[int] = []

    async def run(self, client: Client, stop_at: int | None) -> None:
        """Consume as a member of the group; after the record `stop_at` it processes no more."""
        settings = _member(self.story, client, poll_records_max=3)
        consumer = await self.story.consumer(client, settings)
        consumer.subscribe(["t"])
        while True:
            offsets = [record.offset for record in await consumer.poll(100)]
            if not offsets:
                continue
            self.story.say(f"{client.process.name} polls the records {_offsets(offsets)}.")
            if self.commits_first:
                await self._commit(consumer, offsets[-1] + 1)
            for offset in offsets:
                self.story.say(f"{client.process.name} processes record {offset}.")
                self.processed.append(offset)
                await asyncio.sleep(0.1)
                if offset == stop_at:
                    await asyncio.sleep(3600)
            if not self.commits_first:
                await self._commit(consumer, offsets[-1] + 1)

    async def _commit(self, consumer: Consumer, offset: int) -> None:
        with suppress(*TROUBLE):
            await consumer.commit({TOPIC: OffsetAndMetadata(offset)})


async def _commits(story: StoryCluster, *, commits_first: bool) -> None:
    story.say("A producer has written 6 records.")
    append(story.brokers[0], *[b"%d" % number for number in range(6)])
    await story.all_equal()
    work = _Processing(story, commits_first=commits_first)
    first = story.client("worker-1")
    first.run(work.run(first, 1))
    await story.until(lambda: work.processed[-1:] == [1])
    await story.rest(0.2)
    story.kill_client(first)
    second = story.client("worker-2")
    second.run(work.run(second, None))
    await story.until(lambda: 5 in work.processed)
    await story.until(lambda: (f"{TOPIC}", 6) in story.snapshot().groups[0].committed)
    lost = sorted({*range(6)} - {*work.processed})
    repeated = sorted({each for each in work.processed if work.processed.count(each) > 1})
    story.say(
        f"Never processed: {_offsets(lost)}. Processed twice: {_offsets(repeated)}. "
        + ("At most once." if commits_first else "At least once.")
    )


async def commits_before_processing(story: StoryCluster) -> None:
    await _commits(story, commits_first=True)


async def commits_after_processing(story: StoryCluster) -> None:
    await _commits(story, commits_first=False)


# ------------------------------------------------------------------------------ positions


async def _position(story: StoryCluster, name: str, reset: str) -> Consumer:
    """A consumer without a committed offset looks for its position."""
    client = story.client(name)
    settings = ConsumerSettings(client=story.client_settings(client), offset_reset=reset)

    async def assigned() -> Consumer:
        consumer = await story.consumer(client, settings)
        consumer.assign([TOPIC])
        story.say(f"{name} is assigned {TOPIC}; auto.offset.reset={reset}.")
        try:
            position = await consumer.position(TOPIC)
        except NoOffsetError:
            story.say(f"{name} gets an error: no offset is committed, and none is allowed.")
        else:
            story.recorder.positions[name] = (TOPIC, position)
            story.say(f"The position of {name} is {position}.")
        return consumer

    consumer: Consumer = await client.run(assigned())
    return consumer


async def _read(story: StoryCluster, name: str, consumer: Consumer, client: Client) -> list[int]:
    async def polled() -> list[int]:
        offsets: list[int] = []
        for _ in range(50):
            offsets = [record.offset for record in await consumer.poll(100)]
            if offsets:
                break
        return offsets

    offsets: list[int] = await client.run(polled())
    if offsets:
        story.recorder.positions[name] = (TOPIC, offsets[-1] + 1)
        story.say(f"{name} reads the records {_offsets(offsets)}.")
    return offsets


async def positions(story: StoryCluster) -> None:
    """Three values of auto.offset.reset, and a position that is out of range."""
    story.say("Producers have written 5 records.")
    append(story.brokers[0], *[b"%d" % number for number in range(5)])
    await story.all_equal()
    await _position(story, "from-the-end", "latest")
    await _position(story, "by-hand", "none")
    client = story.client("reader")
    early = await _position(story, "from-the-start", "earliest")
    must(story.recorder.positions["from-the-start"][1] == 0, "earliest is not the log start")
    story.say("An administrator deletes the records below offset 3 (DeleteRecords).")
    await story.admin(lambda cluster: delete_records(cluster, {TOPIC: 3}))
    await story.until(lambda: _starts(story) == {3})
    story.say(
        "The position of from-the-start, 0, is below the log start offset: its next Fetch gets "
        "OFFSET_OUT_OF_RANGE, and auto.offset.reset decides again."
    )
    offsets = await _read(story, "from-the-start", early, client)
    must(offsets[:1] == [3], f"the reader goes on at {offsets}")


def _starts(story: StoryCluster) -> set[int]:
    ((_, replicas),) = story.snapshot().replicas
    return {replica.log_start_offset for replica in replicas}


def _offsets(offsets: Sequence[int]) -> str:
    return ", ".join(map(str, offsets)) or "none"
