"""The states of partitions and replicas in the controller's mind, and their legal transitions.

The two tables are the law: `enter_*` refuses what they do not list, and a refusal means that
the controller has lost its mind - it stops, and the next one begins from what is stored.
"""

from collections.abc import Mapping
from enum import Enum
from typing import Final


class PartitionState(Enum):
    """Where a partition is in its life."""

    NON_EXISTENT = "NonExistentPartition"
    NEW = "NewPartition"
    ONLINE = "OnlinePartition"
    OFFLINE = "OfflinePartition"


class ReplicaState(Enum):
    """Where a replica of a partition is in its life."""

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
    _P.OFFLINE: frozenset({_P.NEW, _P.ONLINE, _P.OFFLINE}),  # had a leader; it is gone
}
REPLICA_FROM: Final[Mapping[ReplicaState, frozenset[ReplicaState]]] = {
    _R.NON_EXISTENT: frozenset({_R.DELETION_SUCCESSFUL}),
    _R.NEW: frozenset({_R.NON_EXISTENT}),
    _R.ONLINE: frozenset({_R.NEW, _R.ONLINE, _R.OFFLINE, _R.DELETION_INELIGIBLE}),
    _R.OFFLINE: frozenset({_R.NEW, _R.ONLINE, _R.OFFLINE, _R.DELETION_INELIGIBLE}),
    _R.DELETION_STARTED: frozenset({_R.OFFLINE}),  # told to stop and delete its files
    _R.DELETION_SUCCESSFUL: frozenset({_R.DELETION_STARTED}),
    _R.DELETION_INELIGIBLE: frozenset({_R.OFFLINE, _R.DELETION_STARTED}),  # dead, or it refused
}
