"""The coordination store, or the log directories of a broker, are put back from a backup."""

import asyncio

import pytest
from tests.sim.support.stage import in_sync, leader_of, play, produce, until

from odradek.coord import layout
from odradek.coord.restored import EPOCHS_SKIPPED
from odradek.sim.clients.client import TROUBLE
from odradek.sim.scenes.replicas import TOPIC, contents, held
from odradek.sim.world.cluster import ProcessState
from odradek.wire.messages.init_producer_id import InitProducerIdRequest, InitProducerIdResponse

ONE_IS_ENOUGH = {"min.insync.replicas": "1"}


async def burst(client, acked, count):
    """Have so many more records acknowledged by all in-sync replicas."""
    enough = len(acked) + count
    stop = asyncio.Event()
    writing = asyncio.ensure_future(client.run(produce(client, acked, stop)))
    await until(lambda: len(acked) >= enough, within_s=200, what="records are not acknowledged")
    stop.set()
    await writing


async def stop_all(cluster):
    for broker in cluster.brokers:
        broker.request_stop(together_with=range(len(cluster.brokers)))
    for broker in cluster.brokers:
        await broker.ended()


async def start_all(cluster):
    for broker in cluster.brokers:
        broker.start()
    await until(lambda: all(b.state is ProcessState.RUNNING for b in cluster.brokers))
    await until(lambda: len(in_sync(cluster)) == len(cluster.brokers), within_s=200)


async def change_leaders(cluster, times):
    for _ in range(times):
        leader = leader_of(cluster)
        await leader.stop()
        leader.start()
        await until(lambda: leader.state is ProcessState.RUNNING)  # noqa: B023
        await until(lambda: len(in_sync(cluster)) == len(cluster.brokers), within_s=200)


def state(cluster):
    node = cluster.tree.node("/brokers/topics/t/partitions/0/state")
    data, version = node.data, node.version
    return layout.decode_partition_state(TOPIC, data, partition_epoch=version).leader_and_isr


async def producer_id(client):
    """A new producer id, of the broker that leads the partition."""
    while True:
        try:
            connection = await client.leader(TOPIC)
            request = InitProducerIdRequest(transactional_id=None, transaction_timeout_ms=60_000)
            answer = await connection.request(request, InitProducerIdResponse)
        except TROUBLE:
            await client.begin_anew()
            continue
        if not answer.error_code:
            return answer.producer_id
        await asyncio.sleep(0.1)


def test_replicas_agree_again_after_leader_epochs_went_back():
    async def story(cluster, client):
        acked = []
        await burst(client, acked, 20)
        backup = cluster.tree.copy()
        before = state(cluster).leader_epoch
        await change_leaders(cluster, 3)
        await burst(client, acked, 20)
        lost = state(cluster).leader_epoch
        assert lost > before
        await stop_all(cluster)
        cluster.tree.put_back(backup)
        await start_all(cluster)
        await burst(client, acked, 20)
        await until(lambda: len(in_sync(cluster)) == 3)

        assert state(cluster).leader_epoch > lost
        for broker in cluster.brokers:
            await until(lambda b=broker: contents(b) == contents(leader_of(cluster)))
        assert contents(leader_of(cluster)) == acked

    play(3, story)


def test_producer_ids_are_not_given_out_twice():
    async def story(cluster, client):
        backup = cluster.tree.copy()
        before = [await client.run(producer_id(client)) for _ in range(3)]
        await stop_all(cluster)
        cluster.tree.put_back(backup)
        await start_all(cluster)
        after = [await client.run(producer_id(client)) for _ in range(3)]

        assert min(after) > max(before) + 1_000_000
        assert len({*before, *after}) == 6

    play(4, story)


@pytest.mark.parametrize("first", [0, 1, 2])
def test_a_replica_that_was_in_sync_in_the_backup_only_is_not_elected(first):
    async def story(cluster, client):
        acked = []
        await burst(client, acked, 20)
        backup = cluster.tree.copy()
        behind = cluster.brokers[first]
        await behind.stop()
        await burst(client, acked, 20)
        await stop_all(cluster)
        cluster.tree.put_back(backup)
        behind.start()  # it starts first, and is in the stored ISR
        await until(lambda: behind.state is ProcessState.RUNNING)
        await asyncio.sleep(20)
        assert leader_of(cluster) is None
        for broker in cluster.brokers:
            if broker is not behind:
                broker.start()
        await until(lambda: len(in_sync(cluster)) == 3, within_s=200)

        assert contents(leader_of(cluster)) == acked
        assert contents(behind) == acked

    play(5, story, configs=ONE_IS_ENOUGH)


def test_so_many_replicas_are_waited_for_that_one_has_everything():
    async def story(cluster, client):
        acked = []
        await burst(client, acked, 20)
        backup = cluster.tree.copy()
        await burst(client, acked, 20)
        await stop_all(cluster)
        cluster.tree.put_back(backup)
        for broker in cluster.brokers[:2]:  # the third one has no host any more
            broker.start()
        await until(lambda: len(in_sync(cluster)) == 2, within_s=200)
        await burst(client, acked, 1)
        assert contents(leader_of(cluster)) == acked

    play(6, story)  # with min.insync.replicas=2


def test_the_store_is_raised_once_for_all_brokers():
    async def story(cluster, client):
        backup = cluster.tree.copy()
        await change_leaders(cluster, 2)
        await stop_all(cluster)
        cluster.tree.put_back(backup)
        before = state(cluster).leader_epoch
        await start_all(cluster)
        await stop_all(cluster)
        await start_all(cluster)
        assert before + EPOCHS_SKIPPED < state(cluster).leader_epoch < before + 2 * EPOCHS_SKIPPED

    play(7, story)


def test_brokers_that_run_while_the_store_is_put_back_find_it_out():
    async def story(cluster, client):
        acked = []
        await burst(client, acked, 10)
        backup = cluster.tree.copy()
        await change_leaders(cluster, 3)
        await burst(client, acked, 10)
        lost = state(cluster).leader_epoch
        cluster.tree.put_back(backup)  # every session ends
        await until(lambda: state(cluster).leader_epoch > lost, within_s=200)
        await until(lambda: len(in_sync(cluster)) == 3, within_s=200)
        await burst(client, acked, 10)

        assert set(acked) <= set(contents(leader_of(cluster)))

    play(8, story)


@pytest.mark.parametrize("how", ["stopped", "killed"])
@pytest.mark.parametrize("others", ["run", "stop before it", "stop after it"])
def test_a_broker_with_the_log_directories_of_a_backup_is_copied_to_by_the_others(how, others):
    async def story(cluster, client):
        acked = []
        old, *rest = cluster.brokers
        await burst(client, acked, 20)
        await old.stop() if how == "stopped" else old.kill()
        backup = old.disk.copy()
        old.start()
        await until(lambda: old.state is ProcessState.RUNNING)
        await until(lambda: len(in_sync(cluster)) == 3, within_s=200)
        await burst(client, acked, 20)
        if others == "stop before it":
            for broker in rest:
                await broker.stop()
        await old.stop()
        if others == "stop after it":
            for broker in rest:
                await broker.stop()
        old.disk.put_back(backup)
        old.start()
        await until(lambda: old.state is ProcessState.RUNNING)
        await asyncio.sleep(30)
        for broker in rest:
            if not broker.is_up:
                broker.start()
        await until(lambda: len(in_sync(cluster)) == 3, within_s=200)

        assert old.running.store_comparison.age.disks_behind > 0
        assert contents(leader_of(cluster)) == acked
        assert held(old).log.leo == len(acked)

    play(9, story)


def test_one_that_was_killed_with_all_others_does_not_lead_although_one_replica_is_enough():
    async def story(cluster, client):
        acked = []
        old, *rest = cluster.brokers
        await burst(client, acked, 20)
        await old.stop()
        backup = old.disk.copy()
        old.start()
        await until(lambda: len(in_sync(cluster)) == 3, within_s=200)
        await burst(client, acked, 20)
        for broker in cluster.brokers:
            broker.kill()
        old.disk.put_back(backup)
        old.start()
        await until(lambda: old.state is ProcessState.RUNNING)
        await asyncio.sleep(20)
        assert leader_of(cluster) is None
        for broker in rest:
            broker.start()
        await until(lambda: len(in_sync(cluster)) == 3, within_s=200)

        assert contents(leader_of(cluster)) == acked
        assert held(old).log.leo == len(acked)

    play(11, story, configs=ONE_IS_ENOUGH)


def test_logs_of_all_brokers_that_are_put_back_together_are_served():
    async def story(cluster, client):
        acked = []
        await burst(client, acked, 10)
        await stop_all(cluster)
        kept = list(acked)
        backups = [broker.disk.copy() for broker in cluster.brokers]
        await start_all(cluster)
        await burst(client, acked, 10)
        await stop_all(cluster)
        for broker, backup in zip(cluster.brokers, backups, strict=True):
            broker.disk.put_back(backup)
        await start_all(cluster)

        assert contents(leader_of(cluster))[: len(kept)] == kept
        assert all(broker.running.store_comparison.age.is_put_back for broker in cluster.brokers)

    play(12, story)


def test_a_store_that_is_only_restarted_is_not_taken_for_a_backup():
    async def story(cluster, client):
        acked = []
        await burst(client, acked, 10)
        await change_leaders(cluster, 2)
        before = state(cluster).leader_epoch
        await stop_all(cluster)
        cluster.tree.put_back(cluster.tree.copy())
        await start_all(cluster)
        await burst(client, acked, 10)
        for broker in cluster.brokers:
            broker.kill()
        await start_all(cluster)

        assert state(cluster).leader_epoch < before + EPOCHS_SKIPPED
        for broker in cluster.brokers:
            assert broker.running.store_comparison.age.restored is None
            assert broker.running.store_comparison.age.disks_behind == 0

    play(10, story)
