"""The decision to commit a batch of a streaming query, which the driver keeps in the cluster.

The transactions of a batch's tasks are committed one by one, so a driver that is killed between two
of them leaves some committed and others open. Before the first one, it therefore writes down which
transactions the batch has. From then on a repetition of the batch writes no rows: its driver
commits the named transactions that are still open. The tasks of the repetition may differ in
number, order and rows from those that wrote the batch.

    DECIDED   the transactions are being committed, or have been
    PARTIAL   some of them had ended without a commit (transaction.timeout.ms has passed, or another
              producer had the same transactional id). Their tasks have to write their rows again,
              so the batch has to be repeated with the tasks it had

A decision is a committed offset of the group PREFIX-QUERY-commit: the offset is the number of the
batch, and the metadata lists the transactions. A broker limits the metadata of an offset to
`offset.metadata.max.bytes` (4,096). A batch of more than `TRANSACTIONS_OF_A_PART` transactions is
written as several parts, each with a group of its own; the first part is written last and makes the
decision valid.
"""

import base64
import struct
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from enum import Enum
from typing import Final

from odradek.client.admin.groups import commit_offsets, committed_offsets
from odradek.client.cluster import Cluster
from odradek.client.group.offsets import OffsetAndMetadata
from odradek.client.producer.batches import ProducerIdAndEpoch
from odradek.client.producer.transactions import OpenTransaction
from odradek.model.errors import OdradekError
from odradek.model.partition import TopicPartition
from odradek.spark.fingerprint import Fingerprint

TRANSACTIONS_OF_A_PART: Final = 180
_FORMAT: Final = "1"
_COMMAS: Final = 6  # between the fields; the last field may have more
# Number of the task, producer id, producer epoch, whether transaction.version is 2 or higher.
_TRANSACTION: Final = struct.Struct(">iqh?")


class CommitPhase(Enum):
    """How far a decision has been carried out."""

    DECIDED = "decided"
    PARTIAL = "partial"


class DecisionError(OdradekError):
    """A decision cannot be read; the text has the group and the reason."""


@dataclass(frozen=True, slots=True)
class QueryNames:
    """The transactional ids and groups of one streaming query."""

    prefix: str  # the option transactionalIdPrefix
    query: str  # Spark's id of the query, which a restart keeps

    def of_task(self, task: int) -> str:
        """The transactional id of a task, and the group in which it marks what it has written."""
        return f"{self.prefix}-{self.query}-{task}"

    def task_of(self, transactional_id: str) -> int | None:
        """The number of the task; None for the transactional id of anything else."""
        start, _, number = transactional_id.rpartition("-")
        is_ours = start == f"{self.prefix}-{self.query}" and number.isdecimal()
        return int(number) if is_ours else None

    def of_part(self, part: int) -> str:
        """The group of a part of the decision."""
        return f"{self.prefix}-{self.query}-commit" + (f"-{part}" if part else "")


@dataclass(frozen=True, slots=True)
class BatchDecision:
    """The transactions that make up a batch.

    `run` is Spark's id of the query's run; `tasks` is the number of the batch's tasks, including
    those without rows, which have no transaction; `rows` is the fingerprint of the whole batch.
    `key` is the partition whose offset in the groups of the decision is committed; it has to exist.
    """

    batch: int
    key: TopicPartition
    run: str
    tasks: int
    rows: Fingerprint
    phase: CommitPhase
    transactions: tuple[tuple[int, OpenTransaction], ...] = ()  # by number of the task


async def read_decision(cluster: Cluster, names: QueryNames) -> BatchDecision | None:
    """The last decision of a query, without its transactions; None if it has none.

    Raises:
        DecisionError: the metadata is not that of a decision.
        ApiError, ConnectionError: the group's coordinator refuses, or cannot be reached.
    """
    found = await _read_part(cluster, names, 0)
    return None if found is None else found[0]


async def read_whole_decision(cluster: Cluster, names: QueryNames, batch: int) -> BatchDecision:
    """The decision on this batch, with its transactions.

    Raises:
        DecisionError: there is none, or a part of it is missing.
        ApiError, ConnectionError: a group's coordinator refuses, or cannot be reached.
    """
    first, parts = await _part_of(cluster, names, 0, batch)
    transactions = list(first.transactions)
    for part in range(1, parts):
        more, _ = await _part_of(cluster, names, part, batch)
        transactions += more.transactions
    return replace(first, transactions=tuple(transactions))


async def write_decision(cluster: Cluster, names: QueryNames, decision: BatchDecision) -> None:
    """Write a decision, which is valid when this returns.

    Raises:
        ApiError, ConnectionError: a group's coordinator refuses, or cannot be reached. The
            decision may be valid or not.
    """
    texts = list(_texts(decision))
    for part in reversed(range(len(texts))):
        mark = OffsetAndMetadata(decision.batch, metadata=texts[part])
        outcomes = await commit_offsets(cluster, names.of_part(part), {decision.key: mark})
        for error in outcomes.values():
            if error is not None:
                raise error


async def _part_of(
    cluster: Cluster, names: QueryNames, part: int, batch: int
) -> tuple[BatchDecision, int]:
    found = await _read_part(cluster, names, part)
    if found is None or found[0].batch != batch:
        has = "nothing" if found is None else f"batch {found[0].batch}"
        raise DecisionError(
            f"exactlyOnce: group {names.of_part(part)} should have the decision on batch {batch}, "
            f"and has {has}. Its offsets have expired or were deleted, or another query has the "
            "same checkpoint"
        )
    return found


async def _read_part(
    cluster: Cluster, names: QueryNames, part: int
) -> tuple[BatchDecision, int] | None:
    group = names.of_part(part)
    offsets = await committed_offsets(cluster, group)
    if not offsets:
        return None
    # A query that writes to several topics may have committed under several keys.
    _, key = max((mark.offset, key) for key, mark in offsets.items())
    return _parsed(names, group, key, offsets[key])


def _texts(decision: BatchDecision) -> Iterator[str]:
    """The metadata of each part."""
    starts = range(0, max(1, len(decision.transactions)), TRANSACTIONS_OF_A_PART)
    for start in starts:
        packed = b"".join(
            _TRANSACTION.pack(task, *transaction.identity, transaction.is_version_2)
            for task, transaction in decision.transactions[start : start + TRANSACTIONS_OF_A_PART]
        )
        yield ",".join(
            (
                _FORMAT,
                str(len(starts)),
                str(decision.tasks),
                f"{decision.rows.rows}:{decision.rows.digest:x}",
                decision.phase.value,
                base64.b64encode(packed).decode(),
                decision.run,
            )
        )


def _parsed(
    names: QueryNames, group: str, key: TopicPartition, mark: OffsetAndMetadata
) -> tuple[BatchDecision, int]:
    """The decision of a part, and the number of parts."""
    try:
        version, parts, tasks, rows, phase, packed, run = mark.metadata.split(",", _COMMAS)
        count, _, digest = rows.partition(":")
        decision = BatchDecision(
            mark.offset,
            key,
            run,
            int(tasks),
            Fingerprint(int(count), int(digest, 16)),
            CommitPhase(phase),
            tuple(_unpacked(names, base64.b64decode(packed, validate=True))),
        )
        return decision, _parts_of(version, parts)
    except (ValueError, struct.error) as error:
        raise DecisionError(
            f"exactlyOnce: group {group} has an offset with metadata {mark.metadata[:80]!r}, which "
            f"is not a decision that this version reads ({error}). Give transactionalIdPrefix a "
            "prefix that nothing else uses, or use the version that wrote it"
        ) from None


def _parts_of(version: str, parts: str) -> int:
    if version != _FORMAT:
        raise ValueError(f"it is of version {version}")
    return int(parts)


def _unpacked(names: QueryNames, packed: bytes) -> Iterator[tuple[int, OpenTransaction]]:
    for task, producer_id, epoch, is_version_2 in _TRANSACTION.iter_unpack(packed):
        identity = ProducerIdAndEpoch(producer_id, epoch)
        yield task, OpenTransaction(names.of_task(task), identity, is_version_2)


def numbered(
    names: QueryNames, transactions: Sequence[OpenTransaction]
) -> tuple[tuple[int, OpenTransaction], ...]:
    """Transactions of tasks with the tasks' numbers, in their order."""
    found = ((names.task_of(each.transactional_id), each) for each in transactions)
    return tuple(sorted((task, each) for task, each in found if task is not None))
