"""Scripts about producers: retries without duplicates, transactions and their markers."""

from typing import Final

from odradek.client.consumer.settings import ConsumerSettings
from odradek.client.producer.producer import Producer
from odradek.client.producer.settings import ProducerSettings
from odradek.sim.clients.client import Client
from odradek.sim.scenes.replicas import TOPIC, leo
from odradek.sim.scenes.scene import must
from odradek.web.stories.story_cluster import StoryCluster

TRANSACTIONAL_ID: Final = "transfer"


async def _retry(story: StoryCluster, *, is_idempotent: bool) -> None:
    """The response to the first request is lost on its way."""
    leader = story.scene.brokers[0]
    client = story.client("producer")
    network = story.cluster.network
    settings = ProducerSettings(
        client=story.client_settings(client), is_idempotent=is_idempotent, in_flight_max=1
    )

    async def sent() -> int:
        producer = await story.producer(client, settings)
        delivery = await producer.send("t", b"first", partition=0)
        await delivery
        story.say(
            f"The producer has the acknowledgement of its first record: offset {leo(leader) - 1}."
        )
        network.cut(leader.name, client.process.name)
        story.say("The network loses what the leader sends to the producer.")
        delivery = await producer.send("t", b"second", partition=0)
        await story.until(lambda: leo(leader) == 2)
        await story.rest(0.2)
        network.heal([(leader.name, client.process.name)])
        story.say(
            "The connection breaks. The producer has no response for its second record, and sends "
            "the batch again."
        )
        return (await delivery).offset

    offset: int = await client.run(sent())
    await story.all_equal()
    story.say(
        f"The producer has the acknowledgement: offset {offset}. The log end offset is "
        f"{leo(leader)} after two records of the application."
    )
    must(leo(leader) == 2, "the second record is in the log twice")


async def a_retry_of_an_idempotent_producer(story: StoryCluster) -> None:
    await _retry(story, is_idempotent=True)


async def a_retry_without_idempotence(story: StoryCluster) -> None:
    await _retry(story, is_idempotent=False)


async def _read(story: StoryCluster, name: str, *, reads_committed: bool) -> list[bytes]:
    """All that a new consumer reads from the start of t-0 in half a second."""
    client = story.client(name)
    settings = ConsumerSettings(
        client=story.client_settings(client),
        offset_reset="earliest",
        reads_committed=reads_committed,
        fetch_wait_ms_max=100,
    )

    async def polled() -> list[bytes]:
        consumer = await story.consumer(client, settings)
        consumer.assign([TOPIC])
        values = []
        for _ in range(5):
            values += [record.value or b"" for record in await consumer.poll(100)]
        await consumer.close()
        return values

    values: list[bytes] = await client.run(polled())
    level = "read_committed" if reads_committed else "read_uncommitted"
    read = ", ".join(value.decode() for value in values) or "nothing"
    story.say(f"A consumer with isolation.level={level} reads: {read}.")
    return values


async def _opened(story: StoryCluster, client: Client) -> Producer:
    settings = ProducerSettings(
        client=story.client_settings(client), transactional_id=TRANSACTIONAL_ID
    )
    producer = await story.producer(client, settings)
    await producer.init_transactions()
    return producer


async def _transaction(story: StoryCluster, *, commits: bool) -> None:
    client = story.client("producer")

    async def begun() -> Producer:
        producer = await _opened(story, client)
        producer.begin_transaction()
        story.say("The producer begins a transaction and sends 2 records.")
        deliveries = [
            await producer.send("t", value, partition=0) for value in (b"debit", b"credit")
        ]
        for delivery in deliveries:
            await delivery
        return producer

    async def ended(producer: Producer) -> None:
        story.say(f"The producer {'commits' if commits else 'aborts'} the transaction.")
        if commits:
            await producer.commit_transaction()
        else:
            await producer.abort_transaction()

    producer: Producer = await client.run(begun())
    await story.produce(b"other")
    await story.all_equal()
    before = await _read(story, "before-1", reads_committed=True)
    must(before == [], "a record of an open transaction was read")
    await _read(story, "before-2", reads_committed=False)
    await client.run(ended(producer))
    await story.until(lambda: _state(story) == f"Complete{'Commit' if commits else 'Abort'}")
    await story.all_equal()
    after = await _read(story, "after-1", reads_committed=True)
    must(after == ([b"debit", b"credit", b"other"] if commits else [b"other"]), f"it read {after}")


def _state(story: StoryCluster) -> str:
    found = story.snapshot().transactions
    return found[0].state if found else ""


async def a_committed_transaction(story: StoryCluster) -> None:
    await _transaction(story, commits=True)


async def an_aborted_transaction(story: StoryCluster) -> None:
    await _transaction(story, commits=False)


async def a_fenced_producer(story: StoryCluster) -> None:
    """Another process takes the transactional id over: the epoch fences the first one."""
    first, second = story.client("producer-1"), story.client("producer-2")

    async def begun() -> Producer:
        producer = await _opened(story, first)
        producer.begin_transaction()
        story.say("producer-1 begins a transaction and sends 1 record.")
        await (await producer.send("t", b"of the first", partition=0))
        return producer

    async def taken_over() -> Producer:
        story.say("producer-2 starts with the same transactional.id.")
        return await _opened(story, second)

    async def commits(producer: Producer) -> str:
        story.say("producer-1 tries to commit its transaction.")
        try:
            await producer.commit_transaction()
        except Exception as error:
            return type(error).__name__
        return ""

    producer: Producer = await first.run(begun())
    await second.run(taken_over())
    error: str = await first.run(commits(producer))
    must(bool(error), "a fenced producer has committed")
    story.say(f"producer-1 gets {error}: its producer epoch is fenced.")
    await story.all_equal()
    after = await _read(story, "reader", reads_committed=True)
    must(after == [], f"it read {after}")
