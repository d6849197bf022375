"""Scripts about producers: retries without duplicates, transactions and their markers."""

from typing import Final

from odradek.client.consumer.settings import ConsumerSettings
from odradek.client.producer.producer import Producer
from odradek.client.producer.settings import ProducerSettings
from odradek.sim.clients.client import Client
from odradek.sim.scenes.replicas import TOPIC, leo
from odradek.sim.scenes.scene import must
from odradek.web.stories.theatre import Theatre

TRANSACTIONAL_ID: Final = "transfer"


async def _retry(theatre: Theatre, *, is_idempotent: bool) -> None:
    """The response to the first request is lost on its way."""
    leader = theatre.scene.brokers[0]
    client = theatre.client("producer")
    network = theatre.cluster.network
    settings = ProducerSettings(
        client=theatre.client_settings(client), is_idempotent=is_idempotent, in_flight_max=1
    )

    async def sent() -> int:
        producer = await theatre.producer(client, settings)
        delivery = await producer.send("t", b"first", partition=0)
        await delivery
        theatre.say(
            f"The producer has the acknowledgement of its first record: offset {leo(leader) - 1}."
        )
        network.cut(leader.name, client.process.name)
        theatre.say("The network loses what the leader sends to the producer.")
        delivery = await producer.send("t", b"second", partition=0)
        await theatre.until(lambda: leo(leader) == 2)
        await theatre.rest(0.2)
        network.heal([(leader.name, client.process.name)])
        theatre.say(
            "The connection breaks. The producer has no response for its second record, and sends "
            "the batch again."
        )
        return (await delivery).offset

    offset: int = await client.run(sent())
    await theatre.all_equal()
    theatre.say(
        f"The producer has the acknowledgement: offset {offset}. The log end offset is "
        f"{leo(leader)} after two records of the application."
    )
    must(leo(leader) == 2, "the second record is in the log twice")


async def a_retry_of_an_idempotent_producer(theatre: Theatre) -> None:
    await _retry(theatre, is_idempotent=True)


async def a_retry_without_idempotence(theatre: Theatre) -> None:
    await _retry(theatre, is_idempotent=False)


async def _read(theatre: Theatre, name: str, *, reads_committed: bool) -> list[bytes]:
    """All that a new consumer reads from the start of t-0 in half a second."""
    client = theatre.client(name)
    settings = ConsumerSettings(
        client=theatre.client_settings(client),
        offset_reset="earliest",
        reads_committed=reads_committed,
        fetch_wait_ms_max=100,
    )

    async def polled() -> list[bytes]:
        consumer = await theatre.consumer(client, settings)
        consumer.assign([TOPIC])
        values = []
        for _ in range(5):
            values += [record.value or b"" for record in await consumer.poll(100)]
        await consumer.close()
        return values

    values: list[bytes] = await client.run(polled())
    level = "read_committed" if reads_committed else "read_uncommitted"
    read = ", ".join(value.decode() for value in values) or "nothing"
    theatre.say(f"A consumer with isolation.level={level} reads: {read}.")
    return values


async def _opened(theatre: Theatre, client: Client) -> Producer:
    settings = ProducerSettings(
        client=theatre.client_settings(client), transactional_id=TRANSACTIONAL_ID
    )
    producer = await theatre.producer(client, settings)
    await producer.init_transactions()
    return producer


async def _transaction(theatre: Theatre, *, commits: bool) -> None:
    client = theatre.client("producer")

    async def begun() -> Producer:
        producer = await _opened(theatre, client)
        producer.begin_transaction()
        theatre.say("The producer begins a transaction and sends 2 records.")
        deliveries = [
            await producer.send("t", value, partition=0) for value in (b"debit", b"credit")
        ]
        for delivery in deliveries:
            await delivery
        return producer

    async def ended(producer: Producer) -> None:
        theatre.say(f"The producer {'commits' if commits else 'aborts'} the transaction.")
        if commits:
            await producer.commit_transaction()
        else:
            await producer.abort_transaction()

    producer: Producer = await client.run(begun())
    await theatre.produce(b"other")
    await theatre.all_equal()
    before = await _read(theatre, "before-1", reads_committed=True)
    must(before == [], "a record of an open transaction was read")
    await _read(theatre, "before-2", reads_committed=False)
    await client.run(ended(producer))
    await theatre.until(lambda: _state(theatre) == f"Complete{'Commit' if commits else 'Abort'}")
    await theatre.all_equal()
    after = await _read(theatre, "after-1", reads_committed=True)
    must(after == ([b"debit", b"credit", b"other"] if commits else [b"other"]), f"it read {after}")


def _state(theatre: Theatre) -> str:
    found = theatre.snapshot().transactions
    return found[0].state if found else ""


async def a_committed_transaction(theatre: Theatre) -> None:
    await _transaction(theatre, commits=True)


async def an_aborted_transaction(theatre: Theatre) -> None:
    await _transaction(theatre, commits=False)


async def a_fenced_producer(theatre: Theatre) -> None:
    """Another process takes the transactional id over: the epoch fences the first one."""
    first, second = theatre.client("producer-1"), theatre.client("producer-2")

    async def begun() -> Producer:
        producer = await _opened(theatre, first)
        producer.begin_transaction()
        theatre.say("producer-1 begins a transaction and sends 1 record.")
        await (await producer.send("t", b"of the first", partition=0))
        return producer

    async def taken_over() -> Producer:
        theatre.say("producer-2 starts with the same transactional.id.")
        return await _opened(theatre, second)

    async def commits(producer: Producer) -> str:
        theatre.say("producer-1 tries to commit its transaction.")
        try:
            await producer.commit_transaction()
        except Exception as error:
            return type(error).__name__
        return ""

    producer: Producer = await first.run(begun())
    await second.run(taken_over())
    error: str = await first.run(commits(producer))
    must(bool(error), "a fenced producer has committed")
    theatre.say(f"producer-1 gets {error}: its producer epoch is fenced.")
    await theatre.all_equal()
    after = await _read(theatre, "reader", reads_committed=True)
    must(after == [], f"it read {after}")
