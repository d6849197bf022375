"""A state of the controller that contradicts itself is found, and named."""

from dataclasses import replace
from uuid import UUID

import pytest

from odradek.controller.controller import Controller
from odradek.controller.effects import Proceed, StoreStates
from odradek.controller.events import (
    BrokersLoaded,
    LoadingFinished,
    Stored,
    TopicSeen,
    TopicsLoaded,
)
from odradek.controller.proposals import Accepted, StoredState
from odradek.controller.states import PartitionState, ReplicaState
from odradek.model.cluster import Broker
from odradek.model.invariants import InvariantError
from odradek.model.partition import NO_LEADER, Assignment, LeaderAndIsr, TopicPartition
from odradek.model.trampoline import Trampoline

NAME = TopicPartition("t", 0)
LED = LeaderAndIsr(leader=1, leader_epoch=4, isr=(1, 2), partition_epoch=7)


def settle(controller: Controller, event) -> None:
    trampoline = Trampoline(controller.handle)
    for effect in trampoline.settle(event):
        match effect:
            case Proceed(step):
                trampoline.report(step)
            case StoreStates(proposals):
                trampoline.report(Stored(tuple(Accepted(p, 8) for p in proposals)))


def loaded() -> Controller:
    controller = Controller(controller_epoch=2)
    brokers = tuple(Broker(id=id_, end_points=(), broker_epoch=100 + id_) for id_ in (1, 2, 3))
    seen = TopicSeen(name="t", id=UUID(int=1), assignments={0: Assignment(replicas=(1, 2, 3))})
    settle(controller, BrokersLoaded(brokers))
    settle(controller, TopicsLoaded((seen,), {NAME: StoredState(LED, 1)}))
    settle(controller, LoadingFinished())
    return controller


def test_what_was_loaded_keeps_the_invariants():
    loaded().validate(is_settled=True)


def break_with(**changed):
    def break_it(context, partition):
        for name, value in changed.items():
            setattr(partition, name, value)

    return break_it


def remove_leader(context, partition):
    del context.brokers[1]


def fail_log_dir_of_unregistered(context, partition):
    context.offline_dirs[9] = {NAME}


def delete_unknown_topic(context, partition):
    context.being_deleted.add("u")


@pytest.mark.parametrize(
    ("break_it", "what"),
    [
        (break_with(controller_epoch=3), "t-0: is of controller epoch 3"),
        (break_with(state=PartitionState.NEW), "t-0: is NewPartition, and has a stored state"),
        (break_with(leader_and_isr=None), "t-0: is OnlinePartition, and has no stored state"),
        (
            break_with(leader_and_isr=replace(LED, leader=NO_LEADER)),
            "t-0: is OnlinePartition, and has no leader",
        ),
        (break_with(leader_and_isr=replace(LED, leader_epoch=-1)), "t-0: has a negative epoch"),
        (
            break_with(assignment=Assignment(replicas=(1, 2), adding=(2,), removing=(2,))),
            "t-0: adding and removing",
        ),
        (fail_log_dir_of_unregistered, r"\[9\]: have failed log directories"),
        (delete_unknown_topic, r"\['u'\]: is being deleted"),
    ],
)
def test_a_contradiction_is_found_after_each_step(break_it, what):
    controller = loaded()
    break_it(controller.context, controller.context.partition(NAME))
    with pytest.raises(InvariantError, match=what):
        controller.validate(is_settled=False)


@pytest.mark.parametrize(
    ("break_it", "what"),
    [
        (remove_leader, "t-0: replica 1 is OnlineReplica on an offline broker"),
        (break_with(replicas={1: ReplicaState.ONLINE}), "t-0: states"),
        (break_with(leader_and_isr=replace(LED, isr=(1, 4))), r"t-0: ISR \(1, 4\) of replicas"),
        (break_with(state=PartitionState.NON_EXISTENT), "t-0: is NonExistentPartition"),
    ],
)
def test_a_contradiction_is_found_between_events(break_it, what):
    controller = loaded()
    break_it(controller.context, controller.context.partition(NAME))
    controller.validate(is_settled=False)
    with pytest.raises(InvariantError, match=what):
        controller.validate(is_settled=True)
