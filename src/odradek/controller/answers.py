"""The controller's answers to requests of brokers and clients."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import NamedTuple

from odradek.model.errors import ErrorCode
from odradek.model.partition import Assignment, LeaderAndIsr, TopicPartition


@dataclass(frozen=True, slots=True)
class IsrChangesAnswer:
    """AlterPartition: for each partition the state that stands, or why it is not changed."""

    error: ErrorCode
    partitions: Mapping[TopicPartition, LeaderAndIsr | ErrorCode]


@dataclass(frozen=True, slots=True)
class ShutdownAnswer:
    """ControlledShutdown: the partitions that the broker still leads."""

    error: ErrorCode
    remaining: tuple[TopicPartition, ...] = ()


@dataclass(frozen=True, slots=True)
class ElectionsAnswer:
    """ElectLeaders: NONE where an election was held, and the state of those partitions."""

    errors: Mapping[TopicPartition, ErrorCode]
    leaders: Mapping[TopicPartition, LeaderAndIsr]


class Refusal(NamedTuple):
    """Why something is not done, as the response says it."""

    error: ErrorCode
    message: str


@dataclass(frozen=True, slots=True)
class ReassignmentsAnswer:
    """AlterPartitionReassignments: None where the reassignment was started."""

    refusals: Mapping[TopicPartition, Refusal | None]


@dataclass(frozen=True, slots=True)
class ReassignmentsList:
    """ListPartitionReassignments: the assignments of partitions that are being reassigned."""

    assignments: Mapping[TopicPartition, Assignment]


AnyAnswer = (
    IsrChangesAnswer | ShutdownAnswer | ElectionsAnswer | ReassignmentsAnswer | ReassignmentsList
)
