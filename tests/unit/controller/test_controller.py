"""What holds for the controller's parts beside what the scenarios play."""

from contextlib import nullcontext
from uuid import UUID

import pytest

from odradek.controller.context import Partition
from odradek.controller.controller import Controller
from odradek.controller.effects import SLICE, Proceed, SendRequests, StoreStates
from odradek.controller.events import (
    BrokersChanged,
    BrokersLoaded,
    LoadingFinished,
    Stored,
    TopicSeen,
    TopicsLoaded,
)
from odradek.controller.proposals import Accepted
from odradek.controller.states import PARTITION_FROM, REPLICA_FROM, PartitionState, ReplicaState
from odradek.model.cluster import Broker
from odradek.model.partition import Assignment, TopicPartition
from odradek.model.trampoline import Trampoline

BROKERS = tuple(Broker(id=id_, end_points=(), broker_epoch=id_) for id_ in (1, 2))
MANY = SLICE * 4
TOPIC_ID = UUID(int=7)


@pytest.mark.parametrize("state", PartitionState)
def test_a_partition_enters_a_state_from_those_of_the_table_only(state):
    for before in PartitionState:
        partition = Partition(TopicPartition("t", 0), Assignment(replicas=(1,)), before)
        refused = (
            nullcontext() if before in PARTITION_FROM[state] else pytest.raises(AssertionError)
        )
        with refused:
            partition.enter(state)
        assert partition.state is (state if before in PARTITION_FROM[state] else before)


@pytest.mark.parametrize("state", ReplicaState)
def test_a_replica_enters_a_state_from_those_of_the_table_only(state):
    for before in ReplicaState:
        partition = Partition(TopicPartition("t", 0), Assignment(replicas=(1,)))
        partition.replicas[1] = before
        may = before in REPLICA_FROM[state]
        with nullcontext() if may else pytest.raises(AssertionError):
            partition.enter_replica(1, state)
        assert partition.replicas == {1: state if may else before}


class Settled:
    """Carries out effects as a store that accepts everything; keeps what it was asked."""

    def __init__(self) -> None:
        self.controller = Controller(controller_epoch=1)
        self.stores: list[StoreStates] = []
        self.announced: list[SendRequests] = []
        self.steps = 0

    def settle(self, event) -> None:
        trampoline = Trampoline(self.controller.handle)
        for effect in trampoline.settle(event):
            match effect:
                case Proceed(step):
                    trampoline.report(step)
                    self.steps += 1
                case StoreStates(proposals):
                    self.stores.append(effect)
                    trampoline.report(Stored(tuple(Accepted(p, 0) for p in proposals)))
                case SendRequests():
                    self.announced.append(effect)


def many_partitions() -> Settled:
    settled = Settled()
    assignment = Assignment(replicas=(1, 2))
    seen = TopicSeen(name="t", id=TOPIC_ID, assignments=dict.fromkeys(range(MANY), assignment))
    settled.settle(BrokersLoaded(BROKERS))
    settled.settle(TopicsLoaded((seen,), {}))
    settled.settle(LoadingFinished())
    return settled


def test_many_partitions_are_one_store_step_and_one_request_for_each_broker():
    settled = many_partitions()
    (store,) = settled.stores
    assert len(store.proposals) == MANY
    # First the live brokers, then all metadata.
    assert [len(announce.requests) for announce in settled.announced] == [2, 2]
    for update in settled.announced[1].requests:
        assert len(update.leader_and_isr) == len(update.metadata) == MANY
    first, second = settled.announced[1].requests
    assert first.leader_and_isr[0] is second.leader_and_isr[0]  # described once for all


def test_the_failover_of_many_partitions_is_one_store_step_in_slices():
    settled = many_partitions()
    settled.stores.clear()
    settled.steps = 0
    settled.settle(BrokersChanged(BROKERS[1:]))

    (store,) = settled.stores
    assert len(store.proposals) == MANY
    assert settled.steps >= MANY // SLICE
