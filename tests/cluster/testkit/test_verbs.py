"""What a test does with a cluster of the kit: the same with brokers in its process as with others.

The clients of these tests are our own; tests/clients has those of others.
"""

import asyncio
import time

import pytest

from odradek.client.consumer.consumer import Consumer
from odradek.client.consumer.settings import ConsumerSettings
from odradek.client.producer.producer import Producer
from odradek.client.producer.settings import ProducerSettings
from odradek.model.errors import ApiError, ErrorCode, OdradekError
from odradek.testkit import KafkaCluster, KitError, wait_for
from odradek.wire.api_keys import ApiKey

KINDS = pytest.mark.parametrize("processes", [False, True], ids=["in-process", "processes"])
FAST = {
    "replica.lag.time.max.ms": 600,
    "replica.fetch.wait.max.ms": 100,
    "zookeeper.session.timeout.ms": 1500,
    "controller.socket.timeout.ms": 1000,
}


@pytest.fixture(params=[False, True], ids=["in-process", "processes"], scope="module")
def one(request):
    """One broker for the tests that leave it as it is."""
    with KafkaCluster(processes=request.param) as cluster:
        yield cluster


@pytest.fixture(params=[False, True], ids=["in-process", "processes"])
def three(request):
    with KafkaCluster(3, processes=request.param, properties=FAST) as cluster:
        yield cluster


def producing(cluster, work, **properties):
    """What a coroutine function returns that is given a producer."""

    async def main():
        dotted = {name.replace("_", "."): str(value) for name, value in properties.items()}
        settings = ProducerSettings.from_properties(
            {"bootstrap.servers": cluster.bootstrap, **dotted}
        )
        async with await Producer.open(settings) as producer:
            return await work(producer)

    return asyncio.run(main())


async def _one_record(producer, topic="t", value=b"a"):
    return (await (await producer.send(topic, value))).offset


# ----------------------------------------------------------------------------------- brokers


def test_a_killed_leader_is_replaced_and_comes_back_into_the_isr(three):
    three.topic("t")
    three.produce("t", "before")
    leader = three.leader("t")
    three.kill(leader)
    assert three.state(leader) == "killed"
    wait_for(lambda: three.leader("t") not in (leader, -1))
    three.produce("t", "after")

    three.start(leader)
    wait_for(lambda: three.isr("t") == [0, 1, 2], timeout_s=30)
    three.assert_records("t", ["before", "after"])


def test_a_stopped_broker_hands_its_leaders_over_first(three):
    three.topic("t")
    leader = three.leader("t")
    three.stop(leader)
    assert three.state(leader) == "stopped"
    assert three.leader("t") not in (leader, -1)
    three.start(leader)
    assert three.state(leader) == "running"


def test_a_paused_broker_loses_its_session_and_registers_again(three):
    three.topic("t")
    leader = three.leader("t")
    three.pause(leader)
    assert three.state(leader) == "paused"
    wait_for(lambda: three.leader("t") not in (leader, -1), timeout_s=30)
    three.produce("t", "meanwhile")

    three.resume(leader)
    wait_for(lambda: three.isr("t") == [0, 1, 2], timeout_s=30)


def test_a_killed_broker_without_replicas_keeps_its_records(one):
    one.topic("kept")
    one.produce("kept", *map(str, range(100)))
    one.kill(0)
    with pytest.raises(KitError, match="no broker runs"):
        one.leader("kept")
    one.start(0)
    wait_for(lambda: one.leader("kept") == 0)
    one.assert_records("kept", map(str, range(100)))


# ------------------------------------------------------------------------------------ faults


def test_a_partition_and_its_end(three):
    three.topic("t")
    leader = three.leader("t")
    apart = max({0, 1, 2} - {leader, three.controller()})
    rest = sorted({0, 1, 2} - {apart})
    three.partition([apart], rest)
    three.produce("t", "one")  # waits until the ISR has shrunk
    wait_for(lambda: three.isr("t") == rest, timeout_s=30)

    three.heal()
    wait_for(lambda: three.isr("t") == [0, 1, 2], timeout_s=30)


def test_a_leader_without_store_and_brokers_is_replaced(three):
    three.topic("t")
    leader = three.leader("t")
    others = sorted({0, 1, 2} - {leader})
    three.partition([leader], [*others, "store"])
    wait_for(lambda: three.leader("t") in others, timeout_s=30)
    three.heal()
    wait_for(lambda: three.isr("t") == [0, 1, 2], timeout_s=30)


def test_clients_are_on_one_side_of_a_partition(three):
    three.topic("t")
    apart = max({0, 1, 2} - {three.leader("t"), three.controller()})
    rest = sorted({0, 1, 2} - {apart})

    async def during(producer):
        await (await producer.send("t", b"before"))
        three.partition([apart, "clients"], rest)
        held = asyncio.create_task(_one_record(producer, value=b"held"))
        await asyncio.to_thread(three.produce, "t", "kit")  # the kit reaches all brokers
        is_held = not held.done()
        three.heal()
        await held
        return is_held

    assert producing(three, during)
    three.assert_records("t", ["before", "kit", "held"])


def test_a_connection_opened_during_a_partition_is_held_back_too(one):
    one.topic("opened")
    one.partition([0], ["clients"])

    async def heal(writing):
        await asyncio.to_thread(one.produce, "opened", "kit")
        is_held = not writing.done()
        one.heal()
        return is_held

    assert asyncio.run(_beside(one, heal, "opened", "any")) == (True, 1)


def test_one_client_is_cut_off_and_others_are_not(one):
    one.topic("named")
    one.partition([0, "clients"], ["client:apart"])

    async def heal(writing):
        other = await asyncio.to_thread(
            producing, one, lambda producer: _one_record(producer, "named"), client_id="beside"
        )
        is_held = not writing.done()
        one.heal()
        return is_held and other == 0

    assert asyncio.run(_beside(one, heal, "named", "apart")) == (True, 1)


async def _beside(cluster, work, topic, client_id):
    """What a coroutine function returns beside a producer that opens and writes; its offset."""
    settings = ProducerSettings.from_properties(
        {"bootstrap.servers": cluster.bootstrap, "client.id": client_id}
    )

    async def write():
        async with await Producer.open(settings) as producer:
            return await _one_record(producer, topic)

    writing = asyncio.create_task(write())
    return await work(writing), await writing


def test_a_slow_broker_answers_late(one):
    one.topic("slow")
    one.slow(0, ms=300)
    started_s = time.monotonic()
    one.produce("slow", "a")
    assert time.monotonic() - started_s >= 0.3
    one.heal()


def test_a_client_repeats_a_request_that_fails_once(one):
    one.topic("failing")
    one.fail_next("Produce", "NOT_LEADER_OR_FOLLOWER", times=2)
    assert producing(one, lambda producer: _one_record(producer, "failing")) == 0
    one.assert_records("failing", ["a"])


def test_an_error_that_is_final_is_received(one):
    one.topic("refused")
    one.fail_next(ApiKey.PRODUCE, ErrorCode.TOPIC_AUTHORIZATION_FAILED)
    with pytest.raises(ApiError, match="TOPIC_AUTHORIZATION_FAILED"):
        producing(one, lambda producer: _one_record(producer, "refused"))
    one.assert_records("refused", [])


def test_a_session_that_expires(three):
    three.topic("t")
    leader = three.leader("t")
    others = sorted({0, 1, 2} - {leader})
    three.expire_session(leader)
    wait_for(lambda: three.leader("t") in others)
    wait_for(lambda: three.isr("t") == [0, 1, 2], timeout_s=30)


# -------------------------------------------------------------------------------------- time


@KINDS
def test_records_and_committed_offsets_expire_when_the_clock_is_advanced(processes):
    options = {"offsets.retention.minutes": 60 * 24 * 7}
    with KafkaCluster(processes=processes, properties=options) as cluster:
        cluster.topic("t", retention_ms=24 * 3_600_000)
        cluster.produce("t", "old")
        consumed(cluster, "t", "readers", 1)
        cluster.advance(hours=23)
        cluster.assert_records("t", ["old"])
        cluster.advance(hours=2)
        cluster.assert_records("t", [])
        assert cluster.committed("readers", "t") == {0: 1}

        cluster.advance(days=8)
        wait_for(lambda: cluster.committed("readers", "t") == {0: -1})
        cluster.kill(0)
        cluster.start(0)
        with pytest.raises(KitError, match="does not go back"):
            cluster.advance(hours=-1)


def consumed(cluster, topic, group, count):
    """Let a group read and commit so many records."""

    async def main():
        settings = ConsumerSettings.from_properties(
            {
                "bootstrap.servers": cluster.bootstrap,
                "group.id": group,
                "auto.offset.reset": "earliest",
                "enable.auto.commit": "false",
                "max.poll.records": str(count),
            }
        )
        async with await Consumer.open(settings) as consumer:
            consumer.subscribe([topic])
            left = count
            while left:
                left -= len(await consumer.poll(100))
            await consumer.commit()

    asyncio.run(main())


# ------------------------------------------------------------------- groups and transactions


def test_the_lag_of_a_group(one):
    one.topic("lagging")
    one.produce("lagging", "a", "b", "c")
    with pytest.raises(KitError, match="no group has committed"):
        one.lag("lagging")
    consumed(one, "lagging", "one", 2)
    assert one.lag("lagging") == 1
    one.assert_committed("one", "lagging", 2)

    consumed(one, "lagging", "two", 3)
    assert one.lag("lagging", "two") == 0
    with pytest.raises(KitError, match="one, two"):
        one.lag("lagging")


def test_a_forced_rebalance_lets_the_members_join_again(one):
    one.topic("rebalanced", partitions=2)
    seen = []

    class Listener:
        async def revoked(self, partitions):
            seen.append("revoked")

        async def assigned(self, partitions):
            seen.append("assigned")

        async def lost(self, partitions):
            seen.append("lost")

    async def main():
        settings = ConsumerSettings.from_properties(
            {
                "bootstrap.servers": one.bootstrap,
                "group.id": "members",
                "heartbeat.interval.ms": "100",
            }
        )
        async with await Consumer.open(settings) as consumer:
            consumer.subscribe(["rebalanced"], Listener())
            while not seen:
                await consumer.poll(50)
            forced = asyncio.create_task(asyncio.to_thread(one.force_rebalance, "members"))
            while seen.count("assigned") < 2:
                await consumer.poll(50)
            await forced
            return len(consumer.assignment())

    assert asyncio.run(asyncio.wait_for(main(), 30)) == 2
    with pytest.raises(KitError, match="no members"):
        one.force_rebalance("members")


def test_a_fenced_producer(one):
    one.topic("fenced")

    async def work(producer):
        await producer.init_transactions()
        producer.begin_transaction()
        await producer.send("fenced", b"lost")
        await asyncio.to_thread(one.fence, "tx")
        with pytest.raises(OdradekError, match="PRODUCER_FENCED|INVALID_PRODUCER_EPOCH"):
            await producer.commit_transaction()

    producing(one, work, transactional_id="tx")
    one.assert_records("fenced", [])


# -------------------------------------------------------------------------------- assertions


def test_assertions_say_what_is_wrong(one):
    one.topic("facts")
    one.produce("facts", "a", "b", "b")
    one.assert_records("facts", ["a", "b", "b"])
    with pytest.raises(AssertionError, match="missing: 'c'"):
        one.assert_records("facts", ["a", "b", "b", "c"], timeout_s=0.1)
    with pytest.raises(AssertionError, match="'b' is there 2 times, expected 1: 0:1, 0:2"):
        one.assert_exactly_once("facts", ["a", "b"])
    with pytest.raises(AssertionError, match="facts-0: none, expected 3"):
        one.assert_committed("nobody", "facts", 3, timeout_s=0.1)


def test_an_open_transaction_is_not_exactly_once(one):
    one.topic("open")

    async def work(producer):
        await producer.init_transactions()
        producer.begin_transaction()
        await (await producer.send("open", b"half"))
        with pytest.raises(AssertionError, match="a transaction is open in open-0"):
            await asyncio.to_thread(one.assert_exactly_once, "open", [])
        await producer.commit_transaction()
        await asyncio.to_thread(one.assert_exactly_once, "open", ["half"])

    producing(one, work, transactional_id="opening")


def test_a_condition_that_stays_false_is_explained():
    with pytest.raises(AssertionError, match=r"not within 0.05 s: a leader; it returned 0 last"):
        wait_for(lambda: None or 0, timeout_s=0.05, message="a leader")


# ------------------------------------------------------------------------------- what is left


def test_only_processes_have_a_pid():
    with KafkaCluster(processes=True) as cluster:
        assert cluster.pid(0) > 0
    with KafkaCluster() as cluster, pytest.raises(KitError, match="processes=True"):
        cluster.pid(0)


def test_wrong_uses_are_explained(one):
    with pytest.raises(KitError, match="does not run"):
        _ = KafkaCluster().bootstrap
    with pytest.raises(KitError, match="brokers=0"):
        KafkaCluster(0)
    with pytest.raises(KitError, match="runs already"):
        one.open()
    with pytest.raises(KitError, match="there is no topic nowhere"):
        one.leader("nowhere")
