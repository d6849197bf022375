"""Three simulated brokers clean a topic and crash: the last value of each key stays.

The cleaner runs on the loop here, in small steps. In the middle of it processes are killed, lose
power, and are killed within a change of the disk. Each replica cleans its own log, so their logs
differ in the records that are left, and agree on the last value of each key.
"""

import asyncio

import pytest
from tests.sim.support.stage import ends, in_sync, is_written, leader_of, play, until

from odradek.record.batch import iter_batches
from odradek.record.records import Record, iter_records
from odradek.sim.scenes.replicas import held
from odradek.sim.world.clock import EPOCH_MS

KEYS = 6
CONFIGS = {
    "cleanup.policy": "compact",
    "segment.bytes": "1500",
    "min.cleanable.dirty.ratio": "0.01",
    "delete.retention.ms": "2000",
    "min.insync.replicas": "2",
    "file.delete.delay.ms": "500",
}


async def write(client, acked, stop):
    """Write the keys in turn, each until it is acknowledged; every ninth record is a tombstone."""
    number = 0
    while True:
        key = b"key-%d" % (number % KEYS)
        value = None if number % 9 == 8 else b"%06d" % number
        if not await is_written(client, Record(key, value, timestamp=EPOCH_MS + number)):
            continue
        acked[key] = value
        number += 1
        if stop.is_set():
            return number
        await asyncio.sleep(0.01)


def read(broker):
    """The last value of each key in a broker's log, and the number of its records."""
    last, count = {}, 0
    for segment in held(broker).log.segments:
        data = memoryview(segment.file.read_now(0, segment.size))
        for position, header in iter_batches(data):
            for record in iter_records(data[position : position + header.size_bytes]):
                last[record.key] = record.value
                count += 1
    return {key: value for key, value in last.items() if value is not None}, count


@pytest.mark.parametrize("seed", range(1, 7))
def test_the_last_value_of_each_key_survives_crashes_while_the_cleaner_runs(seed):
    async def story(cluster, client):
        acked, stop = {}, asyncio.Event()
        writer = client.run(write(client, acked, stop))
        chance = cluster.randomness("deaths")
        for _ in range(4):
            await asyncio.sleep(chance.uniform(0.5, 2))
            victim = chance.choice(cluster.brokers)
            match chance.randrange(3):
                case 0:
                    victim.kill()
                case 1:
                    victim.lose_power()
                case _:
                    victim.crash_after(chance.randrange(40))
                    await until(lambda victim=victim: not victim.is_up)
            await asyncio.sleep(chance.uniform(0, 3))
            victim.start()
            await until(lambda: len(in_sync(cluster)) == 3, what="the ISR did not heal")
        stop.set()
        written = await writer
        await until(lambda: leader_of(cluster) is not None)
        await until(lambda: len(ends(cluster)) == 1, what="the logs do not end alike")
        await asyncio.sleep(5)
        expected = {key: value for key, value in acked.items() if value is not None}

        for broker in cluster.brokers:
            found, count = read(broker)
            assert found == expected, broker.name
            assert count < written / 2, "nothing was cleaned"
            assert not broker.broker.cleaner.uncleanable
            assert held(broker).log.first_dirty_offset > 0

    play(seed, story, configs=CONFIGS, properties={"log.cleaner.backoff.ms": "200"})
