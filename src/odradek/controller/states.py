"""The states of the partition and the replica state machine, and their legal transitions.

`enter_*` refuses a transition that is not in the two tables. A refusal is an assertion: the
controller resigns, and the next one loads what is stored.
"""

from collections.abc import Mapping
from enum import Enum
from typing import Final


class PartitionState(Enum):
    """As in Kafka's PartitionStateMachine."""

    NON_EXISTENT = "NonExistentPartition"
    NEW = "NewPartition"
    ONLINE = "OnlinePartition"
    OFFLINE = "OfflinePartition"


class ReplicaState(Enum):
    """As in Kafka's ReplicaStateMachine."""

    NON_EXISTENT = "NonExistentReplica"
    NEW = "NewReplica"
    ONLINE = "OnlineReplica"
    OFFLINE = "OfflineReplica"
    DELETION_STARTED = "ReplicaDeletionStarted"
    DELETION_SUCCESSFUL = "ReplicaDeletionSuccessful"
    DELETION_INELIGIBLE = "ReplicaDeletionIneligible"


_P = PartitionState
_R = ReplicaState

# What a state may be entered from.
PARTITION_FROM: Final[Mapping[PartitionState, frozenset[PartitionState]]] = {
    _P.NON_EXISTENT: frozenset({_P.OFFLINE}),  # deleted
    _P.NEW: frozenset({_P.NON_EXISTENT}),  # has replicas, has never had a leader
    _P.ONLINE: frozenset({_P.NEW, _P.ONLINE, _P.OFFLINE}),  # has a leader
    _P.OFFLINE: frozenset({_P.NEW, _P.ONLINE, _P.OFFLINE}),  # had a leader, which is offline
}
REPLICA_FROM: Final[Mapping[ReplicaState, frozenset[ReplicaState]]] = {
    _R.NON_EXISTENT: frozenset({_R.DELETION_SUCCESSFUL}),
    _R.NEW: frozenset({_R.NON_EXISTENT}),
    _R.ONLINE: frozenset({_R.NEW, _R.ONLINE, _R.OFFLINE, _R.DELETION_INELIGIBLE}),
    _R.OFFLINE: frozenset({_R.NEW, _R.ONLINE, _R.OFFLINE, _R.DELETION_INELIGIBLE}),
    _R.DELETION_STARTED: frozenset({_R.OFFLINE}),  # StopReplica with deletion is sent
    _R.DELETION_SUCCESSFUL: frozenset({_R.DELETION_STARTED}),
    _R.DELETION_INELIGIBLE: frozenset({_R.OFFLINE, _R.DELETION_STARTED}),  # offline, or it refused
}
