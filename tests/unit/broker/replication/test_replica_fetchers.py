"""The leaders that a broker fetches from, as they register, stop and change their address."""

import asyncio

from odradek.broker.replication.replica_fetchers import ReplicaFetchers
from odradek.model.cluster import Broker, EndPoint


class Cache:
    def __init__(self):
        self.brokers = {}
        self.noted = []

    def leader_lost(self, leader):
        self.noted.append(("lost", leader))

    def leader_reached(self, leader):
        self.noted.append(("reached", leader))

    def put(self, id_, port=9092, listener="PLAINTEXT"):
        point = EndPoint(
            listener=listener, security_protocol="PLAINTEXT", host=f"b{id_}", port=port
        )
        self.brokers[id_] = Broker(id=id_, end_points=(point,))


class FakeFetcher:
    def __init__(self, leader):
        self.leader = leader
        self.followed = []
        self.stopped = False
        self.checked = 0
        self.fetched_bytes = 7
        self.is_answering = True
        self.probed = 0
        self.probe = self

    async def wait(self):
        self.probed += 1

    def __len__(self):
        return len(self.followed)

    def follow(self, partition):
        self.followed.append(partition)

    def leave(self, partition):
        self.followed.remove(partition)

    def stop(self):
        self.stopped = True

    def check_silence(self):
        self.checked += 1


class FakePartition:
    def __init__(self, leader_id):
        self.leader_id = leader_id


class Stage:
    def __init__(self, *brokers):
        self.cache = Cache()
        for broker in brokers:
            self.cache.put(broker)
        self.made = []
        self.fetchers = ReplicaFetchers(self.cache, listener="PLAINTEXT", make=self.make)

    def make(self, leader):
        self.made.append(FakeFetcher(leader))
        return self.made[-1]


def test_there_is_one_fetcher_for_each_leader():
    stage = Stage(2, 3)
    partitions = [FakePartition(2), FakePartition(3), FakePartition(2)]
    for partition in partitions:
        stage.fetchers.follow(partition)

    assert [fetcher.leader.host for fetcher in stage.made] == ["b2", "b3"]
    assert stage.made[0].followed == [partitions[0], partitions[2]]


def test_a_leader_without_metadata_is_waited_for():
    stage = Stage(3)
    partition = FakePartition(2)
    stage.fetchers.follow(partition)
    stage.fetchers.metadata_changed()
    assert stage.made == []

    stage.cache.put(2)
    stage.fetchers.metadata_changed()
    assert stage.made[0].followed == [partition]


def test_a_partition_that_is_left_while_it_waits_is_not_fetched():
    stage = Stage()
    partition = FakePartition(2)
    stage.fetchers.follow(partition)
    stage.fetchers.leave(partition)
    stage.cache.put(2)
    stage.fetchers.metadata_changed()
    assert stage.made == []


def test_a_fetcher_without_partitions_stops():
    stage = Stage(2)
    first, second = FakePartition(2), FakePartition(2)
    stage.fetchers.follow(first)
    stage.fetchers.follow(second)
    stage.fetchers.leave(first)
    assert not stage.made[0].stopped
    stage.fetchers.leave(second)
    assert stage.made[0].stopped
    stage.fetchers.follow(first)
    assert len(stage.made) == 2


def test_a_leader_that_has_moved_is_followed_there():
    stage = Stage(2, 3)
    partition, other = FakePartition(2), FakePartition(3)
    stage.fetchers.follow(partition)
    stage.fetchers.follow(other)
    stage.cache.put(2, port=9999)
    stage.fetchers.metadata_changed()

    assert [fetcher.stopped for fetcher in stage.made] == [True, False, False]
    assert (stage.made[2].leader.port, stage.made[2].followed) == (9999, [partition])


def test_partitions_of_an_unreachable_leader_wait_for_it_or_for_another():
    stage = Stage(2, 3)
    stays, moves = FakePartition(2), FakePartition(2)
    stage.fetchers.follow(stays)
    stage.fetchers.follow(moves)
    del stage.cache.brokers[2]
    stage.fetchers.metadata_changed()
    assert stage.made[0].stopped

    stage.fetchers.leave(moves)
    moves.leader_id = 3
    stage.fetchers.follow(moves)
    assert stage.made[1].followed == [moves]
    stage.cache.put(2)
    stage.fetchers.metadata_changed()
    assert stage.made[2].followed == [stays]


def test_all_leaders_are_checked_for_silence_and_all_are_left_at_the_end():
    stage = Stage(2, 3)
    stage.fetchers.follow(FakePartition(2))
    stage.fetchers.follow(FakePartition(3))
    stage.fetchers.follow(FakePartition(4))
    stage.fetchers.check_silence()
    assert [fetcher.checked for fetcher in stage.made] == [1, 1]

    stage.fetchers.stop()
    assert all(fetcher.stopped for fetcher in stage.made)
    stage.cache.put(4)
    stage.fetchers.metadata_changed()
    assert len(stage.made) == 2


def test_a_stopping_broker_follows_no_leader_whatever_is_requested():
    stage = Stage(2)
    stage.fetchers.follow(FakePartition(2))
    stage.fetchers.stop()
    stage.fetchers.follow(FakePartition(2))
    stage.fetchers.follow(FakePartition(3))
    stage.cache.put(3)
    stage.fetchers.metadata_changed()

    assert [fetcher.leader.host for fetcher in stage.made] == ["b2"]
    assert stage.made[0].stopped


def test_the_metadata_cache_is_notified_of_lost_and_new_connections_to_leaders():
    stage = Stage(2, 3)
    stage.fetchers.follow(FakePartition(2))
    stage.fetchers.follow(FakePartition(3))
    stage.made[1].lost()
    stage.made[0].reached()

    assert stage.cache.noted == [("lost", 3), ("reached", 2)]


def test_leaders_that_answer_and_are_fetched_from_are_probed():
    async def story():
        stage = Stage(1, 2, 3)
        for leader in (1, 2):
            stage.fetchers.follow(FakePartition(leader))
        one, two = stage.made
        two.is_answering = False

        assert stage.fetchers.probe({2, 3}) is None, "silent already, or not followed"
        await stage.fetchers.probe({1, 2, 3})
        assert (one.probed, two.probed) == (1, 0)

    asyncio.run(story())
