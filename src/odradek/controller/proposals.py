"""Partition states that the controller proposes to the store, and their outcomes."""

from dataclasses import dataclass
from enum import Enum, auto
from typing import Final, NamedTuple

from odradek.controller.causes import Cause
from odradek.controller.isr_history import IsrHistory
from odradek.model.partition import LeaderAndIsr, TopicPartition

NO_VERSION: Final = -1  # `partition_epoch` of what is not stored yet: its node is to be created


class StoredState(NamedTuple):
    """A partition's state as it stands in the store, and which controller wrote it."""

    leader_and_isr: LeaderAndIsr
    controller_epoch: int
    modified_id: int = 1 << 62  # the store's transaction that wrote it; unless known: just now
    history: IsrHistory | None = None


class Purpose(Enum):
    """Why a partition's state is to change: by which rule it is decided, again if need be."""

    FIRST_LEADER = auto()
    OFFLINE_ELECTION = auto()
    LAST_REPLICA_ELECTION = auto()  # by log ends, where each in-sync replica may lack records
    UNCLEAN_ELECTION = auto()  # as offline, with unclean election allowed
    PREFERRED_ELECTION = auto()
    SHUTDOWN_ELECTION = auto()
    REASSIGNMENT_ELECTION = auto()  # into the target of a reassignment
    NEW_ASSIGNMENT = auto()  # the same leader and ISR in a new epoch: all learn the replicas
    SHRINK = auto()  # take replicas that went offline out of the ISR
    LEADER_REQUEST = auto()  # AlterPartition
    DELETION = auto()  # end the last leader epoch before the replicas are deleted


@dataclass(frozen=True, slots=True)
class Proposal:
    """Write this state, if the node still has the version it was derived from."""

    partition: TopicPartition
    proposed: LeaderAndIsr
    purpose: Purpose
    cause: Cause
    history: IsrHistory | None = None  # to be written with it


class Accepted(NamedTuple):
    """A proposal stands in the store, with this version."""

    proposal: Proposal
    partition_epoch: int


class Conflicting(NamedTuple):
    """Another client wrote first: the state that is stored; None if the topic is removed."""

    proposal: Proposal
    current: StoredState | None


Outcome = Accepted | Conflicting
