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
from odradek.web.stories.theatre import StoryListener, Theatre

GROUP: Final = "g"


def _member(
    theatre: Theatre, client: Client, *, assignors: tuple[str, ...] = (RANGE,), **more: object
) -> ConsumerSettings:
    return ConsumerSettings(
        client=theatre.client_settings(client),
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

    def __init__(self, theatre: Theatre, name: str, assignors: tuple[str, ...]) -> None:
        self.listener = StoryListener(theatre, name)
        self.client = theatre.client(name)
        theatre.say(f"{name} subscribes to t as a member of the group {GROUP}.")
        self.client.run(self._poll(theatre, _member(theatre, self.client, assignors=assignors)))

    async def _poll(self, theatre: Theatre, settings: ConsumerSettings) -> None:
        consumer = await theatre.consumer(self.client, settings)
        consumer.subscribe(["t"], self.listener)
        while True:
            with suppress(*TROUBLE):
                await consumer.poll(100)


async def _rebalance(theatre: Theatre, assignor: str) -> None:
    theatre.say("An administrator creates the topic t with 4 partitions.")
    topic = NewTopic("t", assignment={0: [0], 1: [1], 2: [2], 3: [0]})
    await theatre.admin(lambda cluster: create_topics(cluster, [topic]))
    one = _Worker(theatre, "consumer-a", (assignor,))
    await theatre.until(lambda: len(one.listener.owned) == 4)
    other = _Worker(theatre, "consumer-b", (assignor,))
    await theatre.until(lambda: len(one.listener.owned) == len(other.listener.owned) == 2)
    await theatre.rest(1.0)
    theatre.kill_client(other.client)
    await theatre.until(lambda: len(one.listener.owned) == 4)
    await theatre.rest(0.5)


async def an_eager_rebalance(theatre: Theatre) -> None:
    await _rebalance(theatre, RANGE)


async def a_cooperative_rebalance(theatre: Theatre) -> None:
    await _rebalance(theatre, COOPERATIVE)


# ------------------------------------------------------------------------------ commits


class _Processing:
    """Processes records one by one, and commits before or after each batch of three."""

    def __init__(self, theatre: Theatre, *, commits_first: bool) -> None:
        self.theatre = theatre
        self.commits_first = commits_first
        self.processed: list[int] = []

    async def run(self, client: Client, stop_at: int | None) -> None:
        """Consume as a member of the group; after the record `stop_at` it processes no more."""
        settings = _member(self.theatre, client, poll_records_max=3)
        consumer = await self.theatre.consumer(client, settings)
        consumer.subscribe(["t"])
        while True:
            offsets = [record.offset for record in await consumer.poll(100)]
            if not offsets:
                continue
            self.theatre.say(f"{client.process.name} polls the records {_offsets(offsets)}.")
            if self.commits_first:
                await self._commit(consumer, offsets[-1] + 1)
            for offset in offsets:
                self.theatre.say(f"{client.process.name} processes record {offset}.")
                self.processed.append(offset)
                await asyncio.sleep(0.1)
                if offset == stop_at:
                    await asyncio.sleep(3600)
            if not self.commits_first:
                await self._commit(consumer, offsets[-1] + 1)

    async def _commit(self, consumer: Consumer, offset: int) -> None:
        with suppress(*TROUBLE):
            await consumer.commit({TOPIC: OffsetAndMetadata(offset)})


async def _commits(theatre: Theatre, *, commits_first: bool) -> None:
    theatre.say("A producer has written 6 records.")
    append(theatre.brokers[0], *[b"%d" % number for number in range(6)])
    await theatre.all_equal()
    work = _Processing(theatre, commits_first=commits_first)
    first = theatre.client("worker-1")
    first.run(work.run(first, 1))
    await theatre.until(lambda: work.processed[-1:] == [1])
    await theatre.rest(0.2)
    theatre.kill_client(first)
    second = theatre.client("worker-2")
    second.run(work.run(second, None))
    await theatre.until(lambda: 5 in work.processed)
    await theatre.until(lambda: (f"{TOPIC}", 6) in theatre.snapshot().groups[0].committed)
    lost = sorted({*range(6)} - {*work.processed})
    repeated = sorted({each for each in work.processed if work.processed.count(each) > 1})
    theatre.say(
        f"Never processed: {_offsets(lost)}. Processed twice: {_offsets(repeated)}. "
        + ("At most once." if commits_first else "At least once.")
    )


async def commits_before_processing(theatre: Theatre) -> None:
    await _commits(theatre, commits_first=True)


async def commits_after_processing(theatre: Theatre) -> None:
    await _commits(theatre, commits_first=False)


# ------------------------------------------------------------------------------ positions


async def _position(theatre: Theatre, name: str, reset: str) -> Consumer:
    """A consumer without a committed offset looks for its position."""
    client = theatre.client(name)
    settings = ConsumerSettings(client=theatre.client_settings(client), offset_reset=reset)

    async def assigned() -> Consumer:
        consumer = await theatre.consumer(client, settings)
        consumer.assign([TOPIC])
        theatre.say(f"{name} is assigned {TOPIC}; auto.offset.reset={reset}.")
        try:
            position = await consumer.position(TOPIC)
        except NoOffsetError:
            theatre.say(f"{name} gets an error: no offset is committed, and none is allowed.")
        else:
            theatre.recorder.positions[name] = (TOPIC, position)
            theatre.say(f"The position of {name} is {position}.")
        return consumer

    consumer: Consumer = await client.run(assigned())
    return consumer


async def _read(theatre: Theatre, name: str, consumer: Consumer, client: Client) -> list[int]:
    async def polled() -> list[int]:
        offsets: list[int] = []
        for _ in range(50):
            offsets = [record.offset for record in await consumer.poll(100)]
            if offsets:
                break
        return offsets

    offsets: list[int] = await client.run(polled())
    if offsets:
        theatre.recorder.positions[name] = (TOPIC, offsets[-1] + 1)
        theatre.say(f"{name} reads the records {_offsets(offsets)}.")
    return offsets


async def positions(theatre: Theatre) -> None:
    """Three values of auto.offset.reset, and a position that is out of range."""
    theatre.say("Producers have written 5 records.")
    append(theatre.brokers[0], *[b"%d" % number for number in range(5)])
    await theatre.all_equal()
    await _position(theatre, "from-the-end", "latest")
    await _position(theatre, "by-hand", "none")
    client = theatre.client("reader")
    early = await _position(theatre, "from-the-start", "earliest")
    must(theatre.recorder.positions["from-the-start"][1] == 0, "earliest is not the log start")
    theatre.say("An administrator deletes the records below offset 3 (DeleteRecords).")
    await theatre.admin(lambda cluster: delete_records(cluster, {TOPIC: 3}))
    await theatre.until(lambda: _starts(theatre) == {3})
    theatre.say(
        "The position of from-the-start, 0, is below the log start offset: its next Fetch gets "
        "OFFSET_OUT_OF_RANGE, and auto.offset.reset decides again."
    )
    offsets = await _read(theatre, "from-the-start", early, client)
    must(offsets[:1] == [3], f"the reader goes on at {offsets}")


def _starts(theatre: Theatre) -> set[int]:
    ((_, replicas),) = theatre.snapshot().replicas
    return {replica.log_start_offset for replica in replicas}


def _offsets(offsets: Sequence[int]) -> str:
    return ", ".join(map(str, offsets)) or "none"
