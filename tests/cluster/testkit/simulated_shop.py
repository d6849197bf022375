"""A shop that loses an order if it is killed at the wrong moment, and the same one without the
mistake: ordinary programs of aiokafka."""

import asyncio

import aiokafka


async def till(context):
    producer = aiokafka.AIOKafkaProducer(
        bootstrap_servers=context.bootstrap, acks="all", enable_idempotence=True
    )
    await producer.start()
    number = 0
    while not context.stopping.is_set():
        order = f"{context.name}-{number}"
        await producer.send_and_wait("orders", order.encode())
        context.outside.sent.append(order)
        number += 1
        await asyncio.sleep(0.05)
    await producer.stop()


async def shop(context, commits_first):
    consumer = aiokafka.AIOKafkaConsumer(
        "orders",
        bootstrap_servers=context.bootstrap,
        group_id="shop",
        auto_offset_reset="earliest",
        enable_auto_commit=False,
        session_timeout_ms=6_000,
        heartbeat_interval_ms=1_000,
    )
    await consumer.start()
    async for message in consumer:
        if commits_first:
            await consumer.commit()
        await asyncio.sleep(0.02)  # the work
        context.outside.got.append(message.value.decode())
        if not commits_first:
            await consumer.commit()


def commits_first(sim):
    _plan(sim, True)


def commits_last(sim):
    _plan(sim, False)


def _plan(sim, mistaken):
    sim.topic("orders", partitions=2)
    sim.process("shop", shop, mistaken, instances=2)
    sim.process("till", till, faults=False)
    sim.faults("program killed", "broker killed", "connections reset")
    sim.at_end(lambda world: world.assert_none_lost(sent=world.outside.sent, got=world.outside.got))
