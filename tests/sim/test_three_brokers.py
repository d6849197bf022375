"""Three simulated brokers that crash and stop: no record acknowledged with acks=all is lost.

The only faults here are crashes and power losses, by seed or by hand.
"""

import asyncio

import pytest
from tests.sim.support.stage import ends, in_sync, is_written, leader_of, play, produce, until

from odradek.coord import layout
from odradek.record.records import Record
from odradek.sim.scenes.replicas import TOPIC, contents, held
from odradek.sim.world.clock import EPOCH_MS
from odradek.sim.world.cluster import ProcessState


@pytest.mark.parametrize("seed", range(1, 9))
def test_records_acknowledged_with_acks_all_survive_crashes_of_leaders(seed):
    async def story(cluster, client):
        acked, stop = [], asyncio.Event()
        producer = client.run(produce(client, acked, stop))
        chance = cluster.randomness("deaths")
        epochs = set()
        for _ in range(4):
            await asyncio.sleep(chance.uniform(1, 4))
            victim = leader_of(cluster) if chance.random() < 0.7 else chance.choice(cluster.brokers)
            if victim is None or not victim.is_up:
                continue
            partition = held(victim)
            if partition is not None:
                epochs.add(partition.leader_epoch)
            victim.kill()
            await until(lambda: leader_of(cluster) is not None, what="no new leader")
            await asyncio.sleep(chance.uniform(0, 6))
            victim.start()
            await until(lambda: len(in_sync(cluster)) == 3, what="not all replicas are in sync")
        stop.set()
        await producer
        await until(lambda: all(held(broker) for broker in cluster.brokers))
        await until(lambda: len(ends(cluster)) == 1, what="the logs do not end alike")
        logs = [contents(broker) for broker in cluster.brokers]

        assert logs[0] == logs[1] == logs[2]
        assert set(acked) <= set(logs[0]), "an acknowledged record is lost"
        assert len(acked) > 50
        assert len(epochs) > 1

    play(seed, story)


def test_a_controlled_shutdown_hands_over_leadership_first():
    async def story(cluster, client):
        acked, stop = [], asyncio.Event()
        producer = client.run(produce(client, acked, stop))
        await asyncio.sleep(2)
        leader = leader_of(cluster)
        await leader.stop()
        assert leader_of(cluster) is not leader
        assert leader.id not in in_sync(cluster)
        before = len(acked)
        await until(lambda: len(acked) > before + 10)
        stop.set()
        await producer

    play(42, story)


def test_no_record_is_acknowledged_below_min_insync_replicas():
    async def story(cluster, client):
        leader = leader_of(cluster)
        for broker in cluster.brokers:
            if broker is not leader:
                broker.kill()
        await until(lambda: in_sync(cluster) == {leader.id})
        acked, stop = [], asyncio.Event()
        producer = client.run(produce(client, acked, stop))
        await asyncio.sleep(10)
        assert acked == []
        stop.set()
        await producer

    play(7, story)


async def last_replica_loses_its_tail(cluster, client):
    """All records are acknowledged by two replicas; one is left in sync, and loses its tail."""
    acked, stop = [], asyncio.Event()
    producer = client.run(produce(client, acked, stop))
    await until(lambda: len(acked) > 30)
    stop.set()
    await producer
    leader = leader_of(cluster)
    for broker in cluster.brokers:
        if broker is not leader:
            broker.kill()
    await until(lambda: in_sync(cluster) == {leader.id})
    leader.lose_power()
    return leader, acked


@pytest.mark.parametrize("seed", range(1, 7))
def test_the_last_in_sync_replica_waits_after_a_power_loss_and_the_longest_log_leads(seed):
    async def story(cluster, client):
        leader, acked = await last_replica_loses_its_tail(cluster, client)
        leader.start()
        await until(lambda: leader.state is ProcessState.RUNNING)
        await asyncio.sleep(10)
        assert leader_of(cluster) is None, "it led before the logs were compared"
        for broker in cluster.brokers:
            if broker is not leader:
                broker.start()
        await until(lambda: len(in_sync(cluster)) == 3, what="not all replicas are in sync")
        await until(lambda: len(ends(cluster)) == 1, what="the logs do not end alike")
        logs = [contents(broker) for broker in cluster.brokers]
        assert logs[0] == logs[1] == logs[2]
        assert acked == logs[0][: len(acked)], "an acknowledged record is lost"

    play(seed, story)


def test_after_a_clean_stop_of_all_an_in_sync_replica_leads_at_once():
    async def story(cluster, client):
        acked, stop = [], asyncio.Event()
        producer = client.run(produce(client, acked, stop))
        await until(lambda: len(acked) > 10)
        stop.set()
        await producer
        for broker in cluster.brokers:
            await broker.stop()
        last = cluster.brokers[-1]
        last.lose_power()
        last.start()
        await until(lambda: leader_of(cluster) is last)
        assert contents(last)[: len(acked)] == acked

    play(11, story)


def stored(cluster):
    """The stored leader and ISR of the partition."""
    node = cluster.tree.find(layout.partition_state_path(TOPIC))
    return layout.decode_partition_state(TOPIC, node.data, partition_epoch=0).leader_and_isr


async def start_and_find(cluster, acked):
    """Start all brokers; their logs are equal, with all acknowledged records in order."""
    for broker in cluster.brokers:
        broker.start()
    await until(lambda: len(in_sync(cluster)) == 3, what="not all replicas are in sync")
    await until(lambda: len(ends(cluster)) == 1, what="the logs do not end alike")
    assert contents(cluster.brokers[0])[: len(acked)] == acked


async def written_by_all(cluster, client, count=20):
    acked, stop = [], asyncio.Event()
    producer = client.run(produce(client, acked, stop))
    await until(lambda: len(acked) > count)
    return acked, stop, producer


@pytest.mark.parametrize("seed", range(1, 5))
def test_a_cluster_that_stops_as_a_whole_leaves_leaders_and_isrs_as_they_are(seed):
    async def story(cluster, client):
        acked, stop, producer = await written_by_all(cluster, client)
        before = stored(cluster)
        ids = [broker.id for broker in cluster.brokers]
        loop = asyncio.get_running_loop()
        began_s = loop.time()
        await asyncio.gather(*(broker.stop(ids) for broker in cluster.brokers))
        assert loop.time() - began_s < 1.5
        stop.set()
        await producer
        assert stored(cluster) == before
        assert len(before.isr) == 3
        first = cluster.brokers[seed % 3]
        first.start()  # each of them has all there is, and leads at once
        await until(lambda: leader_of(cluster) is first, within_s=5)
        assert contents(first)[: len(acked)] == acked

    play(seed, story)


@pytest.mark.parametrize("seed", range(1, 5))
def test_records_with_acks_1_are_kept_when_a_whole_cluster_stops_and_starts(seed):
    """At the next start another replica may lead: all have to get every record before they stop."""

    async def write(client, acked, stop):
        number = 0
        while not stop.is_set():
            number += 1
            record = Record(None, b"%d" % number, timestamp=EPOCH_MS)
            if await is_written(client, record, acks=1):
                acked.add(record.value)
            await asyncio.sleep(0.001)

    async def story(cluster, client):
        acked, stop = set(), asyncio.Event()
        chance = cluster.randomness("stops")
        ids = [broker.id for broker in cluster.brokers]
        producer = client.run(write(client, acked, stop))
        for _ in range(2):
            leader = leader_of(cluster)
            others = [broker for broker in cluster.brokers if broker is not leader]
            await until(lambda: len(acked) > 50)
            stops = []
            for broker in (*others, leader):
                stops.append(asyncio.ensure_future(broker.stop(ids)))
                await asyncio.sleep(chance.uniform(0, 0.02))
            await asyncio.gather(*stops)
            for broker in others:
                broker.start()
            await asyncio.sleep(1)
            leader.start()
            await until(lambda: len(in_sync(cluster)) == 3)
        stop.set()
        await producer
        await until(lambda: len(ends(cluster)) == 1)
        assert acked <= set(contents(cluster.brokers[0]))

    play(seed, story)


@pytest.mark.parametrize("seed", range(1, 5))
def test_a_broker_killed_while_the_cluster_stops_loses_no_acknowledged_record(seed):
    async def story(cluster, client):
        acked, stop, producer = await written_by_all(cluster, client)
        ids = [broker.id for broker in cluster.brokers]
        victim, *others = sorted(cluster.brokers, key=lambda broker: (broker.id + seed) % 3)
        stops = [asyncio.ensure_future(broker.stop(ids)) for broker in others]
        await asyncio.sleep(0.01 * seed)
        victim.lose_power()
        await asyncio.gather(*stops)
        stop.set()
        await producer
        await start_and_find(cluster, acked)

    play(seed, story)


@pytest.mark.parametrize("seed", range(1, 5))
def test_brokers_that_stop_at_the_same_time_do_not_wait_for_each_other(seed):
    """Each hands over to brokers that do not stop yet; for the last one there is none."""

    async def story(cluster, client):
        acked, stop, producer = await written_by_all(cluster, client)
        loop = asyncio.get_running_loop()
        began_s = loop.time()
        await asyncio.gather(*(broker.stop() for broker in cluster.brokers))
        assert loop.time() - began_s < 2
        stop.set()
        await producer
        await start_and_find(cluster, acked)

    play(seed, story)


@pytest.mark.parametrize("seed", range(1, 5))
def test_an_in_sync_replica_with_an_empty_disk_does_not_become_leader(seed):
    """With min.insync.replicas=1, with which the election waits for no other replica."""

    async def story(cluster, client):
        acked, stop, producer = await written_by_all(cluster, client)
        ids = [broker.id for broker in cluster.brokers]
        await asyncio.gather(*(broker.stop(ids) for broker in cluster.brokers))
        stop.set()
        await producer
        first = cluster.brokers[seed % 3]
        first.disk.replace_with_empty()
        first.start()
        await until(lambda: first.state is ProcessState.RUNNING)
        await asyncio.sleep(10)
        assert leader_of(cluster) is None, "it holds nothing, and the others everything"
        for broker in cluster.brokers:
            if broker is not first:
                broker.start()
        await until(lambda: len(in_sync(cluster)) == 3, what="not all replicas are in sync")
        await until(lambda: len(ends(cluster)) == 1, what="the logs do not end alike")
        assert all(contents(broker)[: len(acked)] == acked for broker in cluster.brokers)

    play(seed, story, configs={})


def test_if_the_only_in_sync_replica_lost_its_disk_the_replica_that_left_last_leads():
    async def story(cluster, client):
        acked, stop, producer = await written_by_all(cluster, client)
        stop.set()
        await producer
        leader = leader_of(cluster)
        others = [broker for broker in cluster.brokers if broker is not leader]
        for broker in others:
            broker.kill()
        await until(lambda: in_sync(cluster) == {leader.id})
        leader.kill()
        leader.disk.replace_with_empty()
        leader.start()
        await until(lambda: leader.state is ProcessState.RUNNING)
        await asyncio.sleep(10)
        assert leader_of(cluster) is None
        for broker in others:
            broker.start()
        await until(lambda: len(in_sync(cluster)) == 3, what="not all replicas are in sync")
        await until(lambda: len(ends(cluster)) == 1, what="the logs do not end alike")
        assert all(contents(broker)[: len(acked)] == acked for broker in cluster.brokers)
        warned = "leader elected from outside the ISR"
        journals = [str(e.what) for b in cluster.brokers for e in b.broker.journal.entries]
        assert any(f"t-0: {warned}" in entry for entry in journals)

    play(5, story, configs={})
