"""What the logs prove is compared with what the store says, and goes before it."""

import asyncio

import pytest

from odradek.coord import layout, layout_odradek
from odradek.coord.layout_odradek import Restored, StoreCounter
from odradek.coord.memory import MemoryStore, MemoryTree
from odradek.coord.restored import (
    EPOCHS_SKIPPED,
    PRODUCER_IDS_BELIEVED,
    PRODUCER_IDS_SKIPPED,
    LogProof,
    Proofs,
    find_proof,
    raise_producer_ids,
    raise_to,
    read_marks,
    restored_epoch,
)
from odradek.coord.store import SetData
from odradek.model.ids import parse_uuid
from odradek.model.partition import NO_LEADER, Assignment, LeaderAndIsr, TopicPartition

ID = parse_uuid("wDGwDi5CTFS1Qg0toConKw")
T0, T1 = TopicPartition("t", 0), TopicPartition("t", 1)
BROKER = 3


def run(story):
    async def main():
        tree = MemoryTree()
        store = MemoryStore(tree)
        await store.open()
        for path in layout.TOP_LEVEL:
            await store.create(path, make_parents=True)
        topic = layout.TopicNode(
            topic_id=ID, assignments=dict.fromkeys((0, 1), Assignment(replicas=(1, 2)))
        )
        await store.create(layout.topic_path("t"), layout.encode_topic(topic))
        for name, epoch in ((T0, 4), (T1, 0)):
            led = LeaderAndIsr(leader=1, leader_epoch=epoch, isr=(1, 2), partition_epoch=0)
            data = layout.encode_partition_state(layout.LeaderIsrAndControllerEpoch(led, 7))
            await store.create(layout.partition_state_path(name), data, make_parents=True)
        await store.create(layout.CONTROLLER_EPOCH, layout.encode_controller_epoch(7))
        await story(store)

    asyncio.run(main())


async def proof_of(store, proofs):
    return await find_proof(store, await read_marks(store, BROKER), proofs)


async def give_out(store, end):
    block = layout.ProducerIdBlock(1, end - 1000, end)
    await store.set_data(layout.PRODUCER_ID_BLOCK, layout.encode_producer_id_block(block))


async def count(store, counter):
    await store.create(
        layout_odradek.counter_path(BROKER),
        layout_odradek.encode_counter(counter),
        make_parents=True,
    )


@pytest.mark.parametrize(
    ("proofs", "is_older"),
    [
        (Proofs(), False),
        (Proofs(counter=5), False),
        (Proofs(counter=6), True),
        (Proofs(logs={T0: LogProof(ID.bytes, 4)}), False),
        (Proofs(logs={T0: LogProof(ID.bytes, 5)}), True),
        (Proofs(logs={T1: LogProof(ID.bytes, 1)}), True),
        (Proofs(logs={T0: LogProof(b"another topic---", 5)}), False),
        (Proofs(logs={T0: LogProof(None, 5)}), False),
        (Proofs(logs={TopicPartition("gone", 0): LogProof(ID.bytes, 5)}), False),
        (Proofs(producer_id=10_000), False),
    ],
)
def test_the_store_is_older_if_the_disks_have_what_it_does_not_know(proofs, is_older):
    async def story(store):
        await count(store, StoreCounter(5))
        assert bool(await proof_of(store, proofs)) == is_older

    run(story)


def test_what_another_broker_has_raised_already_is_not_raised_again():
    async def story(store):
        await count(store, StoreCounter(5))
        assert await proof_of(store, Proofs(counter=9))
        await raise_to(store, Proofs(counter=2), broker=1, at_ms=0, proof="-")
        assert not await proof_of(store, Proofs(counter=9))

    run(story)


def test_the_next_restoration_is_found_although_there_was_one_before():
    async def story(store):
        await raise_to(store, Proofs(), broker=1, at_ms=0, proof="-")
        await count(store, StoreCounter(5, await restored_epoch(store)))
        assert await proof_of(store, Proofs(counter=9))

    run(story)


def test_everything_that_was_given_out_is_raised():
    async def story(store):
        await give_out(store, 3000)
        await store.create(layout.CONTROLLER, b"{}", ephemeral=True)
        proofs = Proofs(producer_id=5000, logs={T0: LogProof(ID.bytes, 50)})
        restored = await raise_to(store, proofs, broker=BROKER, at_ms=1, proof="why")

        assert restored == Restored(7 + EPOCHS_SKIPPED, BROKER, 1, "why")
        assert await restored_epoch(store) == restored.controller_epoch
        data, _ = await store.get(layout.CONTROLLER_EPOCH)
        assert layout.decode_controller_epoch(data) == restored.controller_epoch
        for name, epoch in ((T0, 50), (T1, 0)):
            data, stat = await store.get(layout.partition_state_path(name))
            state, written_in = layout.decode_partition_state(
                name, data, partition_epoch=stat.version
            )
            assert state.leader_epoch == epoch + EPOCHS_SKIPPED
            assert (state.leader, state.isr) == (NO_LEADER, (1, 2))
            assert written_in == restored.controller_epoch
        data, _ = await store.get(layout.PRODUCER_ID_BLOCK)
        assert layout.decode_producer_id_block(data).end_producer_id == 5001 + PRODUCER_IDS_SKIPPED
        assert await store.exists(layout.CONTROLLER) is None

    run(story)


def test_a_state_that_a_controller_writes_meanwhile_is_raised_all_the_same():
    async def story(store):
        path, writes = layout.partition_state_path(T0), iter((9, 12))
        write_all = store.multi_many

        async def overtaken(batches):
            epoch = next(writes, None)
            if epoch is not None:
                led = LeaderAndIsr(leader=2, leader_epoch=epoch, isr=(2,), partition_epoch=0)
                data = layout.encode_partition_state(layout.LeaderIsrAndControllerEpoch(led, 7))
                await store.multi([SetData(path, data)])
            return await write_all(batches)

        store.multi_many = overtaken
        await raise_to(store, Proofs(), broker=BROKER, at_ms=1, proof="-")
        data, stat = await store.get(path)
        state = layout.decode_partition_state(T0, data, partition_epoch=stat.version)
        assert state.leader_and_isr.leader_epoch == 12 + EPOCHS_SKIPPED
        assert state.leader_and_isr.isr == (2,)

    run(story)


@pytest.mark.parametrize(
    ("highest", "end"),
    [
        (-1, 3000),
        (2999, 3000),
        (3000, 3001 + PRODUCER_IDS_SKIPPED),
        (9000, 9001 + PRODUCER_IDS_SKIPPED),
        # Any client may write any id: one that cannot be of this cluster raises nothing.
        (3000 + PRODUCER_IDS_BELIEVED, 3000),
        ((1 << 63) - 1, 3000),
    ],
)
def test_the_next_producer_id_is_above_those_in_the_logs(highest, end):
    async def story(store):
        await give_out(store, 3000)
        assert await raise_producer_ids(store, highest, BROKER) == (end > 3000)
        data, _ = await store.get(layout.PRODUCER_ID_BLOCK)
        assert layout.decode_producer_id_block(data).end_producer_id == end

    run(story)


def test_a_store_that_has_given_out_no_producer_id_is_raised_above_those_in_the_logs():
    async def story(store):
        assert await raise_producer_ids(store, 0, BROKER)

    run(story)


def test_nodes_are_read_as_they_are_written():
    counter, restored = StoreCounter(7, 100_003), Restored(100_003, 2, 1_700_000_000_000, "why")
    assert layout_odradek.decode_counter(1, layout_odradek.encode_counter(counter)) == counter
    assert layout_odradek.decode_restored(layout_odradek.encode_restored(restored)) == restored


def test_a_damaged_counter_proves_nothing():
    async def story(store):
        for path in (layout_odradek.counter_path(BROKER), layout_odradek.RESTORED):
            await store.create(path, b"{", make_parents=True)
        assert await read_marks(store, BROKER) == (StoreCounter(), None)
        assert await restored_epoch(store) == -1
        assert not await proof_of(store, Proofs())

    run(story)
