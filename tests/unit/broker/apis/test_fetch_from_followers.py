"""Consumers read from the replica in their own rack, if a selector is configured (KIP-392)."""

from dataclasses import replace

import pytest
from tests.unit.broker.live import LOG_DIRS, Live, fetch, fetched, part_of, play, soon
from tests.unit.broker.replication.test_following import Leader, answer, batch, part

import odradek.sim.world.loop as sim
from odradek.model.errors import ErrorCode, StartupError
from odradek.replica.selector import RACK_AWARE
from odradek.wire.messages.fetch import FetchPartition, ReplicaState

T0 = ("t", 0)
TOPIC_ID = b"t".ljust(16, b".")
BY_NAME = 12
NEAR = {"replica_selector_class": RACK_AWARE, "broker_rack": "a"}


async def leads(live):
    """Leads `t`; 2 in rack b and 3 in rack c follow, and have everything."""
    await live.order()
    brokers = live.broker.metadata.brokers
    for follower, rack in ((2, "b"), (3, "c")):
        brokers[follower] = replace(brokers[follower], rack=rack)
    for _ in range(5):
        live.append(b"x")
    for follower in (2, 3):
        wanted = FetchPartition(fetch_offset=5, log_start_offset=0, partition_max_bytes=1 << 20)
        state = ReplicaState(replica_id=follower, replica_epoch=1)
        request = fetch({(TOPIC_ID, 0): wanted}, replica_state=state, max_wait_ms=0)
        await live.peer().ask(request, 17)


@pytest.mark.parametrize(
    ("rack", "offset", "version", "preferred"),
    [
        pytest.param("b", 0, BY_NAME, 2, id="the follower there"),
        pytest.param("c", 4, BY_NAME, 3, id="another"),
        pytest.param("a", 0, BY_NAME, -1, id="the leader is there"),
        pytest.param("d", 0, BY_NAME, -1, id="no replica has that rack"),
        pytest.param("", 0, BY_NAME, -1, id="a consumer without a rack"),
        pytest.param("b", 0, 10, -1, id="a client that does not know of it"),
    ],
)
def test_a_consumer_is_sent_to_the_replica_in_its_rack(rack, offset, version, preferred):
    async def story(live):
        await leads(live)
        answer = await soon(live.peer().ask(fetch({T0: offset}, rack_id=rack), version))
        found = part_of(answer)
        assert found.error_code == 0
        assert found.preferred_read_replica == preferred
        assert bool(found.records) is (preferred < 0)

    play(story, **NEAR)


def test_without_a_selector_consumers_read_from_the_leader():
    async def story(live):
        await leads(live)
        answer = await live.peer().ask(fetch({T0: 0}, rack_id="b"), BY_NAME)
        assert part_of(answer).preferred_read_replica == -1
        assert fetched(answer) == {T0: [b"x"] * 5}

    play(story, broker_rack="a")


def test_consumers_are_not_sent_to_a_follower_that_is_behind_or_out_of_sync():
    async def story(live):
        await leads(live)
        live.partition().leader.followers[2].leo = 3
        answer = await live.peer().ask(fetch({T0: 4}, rack_id="b"), BY_NAME)
        assert part_of(answer).preferred_read_replica == -1
        live.partition().leader.followers[2].leo = 5
        live.partition().leader.isr.committed = (0, 3)
        answer = await live.peer().ask(fetch({T0: 4}, rack_id="b"), BY_NAME)
        assert part_of(answer).preferred_read_replica == -1

    play(story, **NEAR)


async def follows(live, *script):
    leader = Leader(*script)
    live.network.connect = leader.connect
    await live.order("t", leader=2)
    await live.until(lambda: len(leader.fetches) > len(script))
    return leader


def test_a_follower_serves_consumers_below_its_high_watermark():
    async def story(live):
        records = batch(0, b"a") + batch(1, b"b")
        leader = await follows(live, answer(part(records=records, high_watermark=1)))
        peer = live.peer()
        assert fetched(await peer.ask(fetch({T0: 0}, rack_id="a"), BY_NAME)) == {T0: [b"a"]}
        waiting = peer.send(fetch({T0: 1}, rack_id="a", max_wait_ms=10_000), BY_NAME)
        leader.reply(answer(part(records=batch(2, b"c"), high_watermark=3)))
        assert fetched(await soon(waiting)) == {T0: [b"b", b"c"]}

    play(story, **NEAR)


def test_a_follower_refuses_consumers_of_versions_without_racks():
    async def story(live):
        await follows(live, answer(part(records=batch(0, b"a"), high_watermark=1)))
        answered = await live.peer().ask(fetch({T0: 0}), 10)
        assert fetched(answered) == {T0: ErrorCode.NOT_LEADER_OR_FOLLOWER}

    play(story, **NEAR)


def test_a_follower_without_a_selector_refuses_consumers():
    async def story(live):
        await follows(live, answer(part(records=batch(0, b"a"), high_watermark=1)))
        answered = await live.peer().ask(fetch({T0: 0}, rack_id="a"), BY_NAME)
        assert fetched(answered) == {T0: ErrorCode.NOT_LEADER_OR_FOLLOWER}

    play(story, broker_rack="a")


def test_an_unknown_selector_is_refused_at_the_start():
    async def main():
        live = Live({"replica.selector.class": "com.example.Mine"})
        for path in LOG_DIRS:
            live.disk.mkdir(path)
        with pytest.raises(StartupError, match=r"replica.selector.class=com.example.Mine: must be"):
            await live.broker.start()
        await live.broker.stop()

    sim.run(main())
