"""Checks replicas, logs and metadata after operations on them (`Partition.validate` and others).

The offsets are compared after each operation. The rest is checked after every so many-th operation
on a partition, and after each one that is rare: a truncation, a deletion of segments. A state that
contradicts itself stays so for longer; the property tests check after each operation.

Every broker of a simulation runs in this Python process: the methods are wrapped for the time of a
run. Nothing of this exists in a shipped broker.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, Final

from odradek.broker.cluster.metadata_cache import MetadataCache
from odradek.broker.replication.partition import Partition
from odradek.log.log import Log
from odradek.model.invariants import InvariantError
from odradek.sim.checks.coverage import VALIDATED_EVERY

_OF_PARTITIONS: Final = (
    "append",
    "become_follower",
    "become_leader",
    "brokers_changed",
    "config_changed",
    "delete_records",
    "follow",
    "follower_fetched",
    "isr_refused",
    "isr_stored",
    "removed",
    "wait_for_commit",
)
_OF_LOGS: Final = ("delete_old_segments", "truncate_fully_and_start_at", "truncate_to")
_OF_METADATA: Final = ("leader_announced", "leader_lost", "leader_reached", "update")


@contextmanager
def validated(violated: Callable[[str], None]) -> Iterator[None]:
    """Report what does not hold of replicas after operations within the block."""
    operations = 0

    def partition_changed(partition: Partition) -> None:
        nonlocal operations
        operations += 1
        log = partition.log
        if operations % VALIDATED_EVERY == 0:
            _validate(partition, violated)
        elif log is not None and not log.log_start_offset <= log.high_watermark <= log.leo:
            _validate(log, violated)

    def changed(subject: Log | MetadataCache) -> None:
        _validate(subject, violated)

    looks: list[tuple[type, tuple[str, ...], Callable[[Any], None]]] = [
        (Partition, _OF_PARTITIONS, partition_changed),
        (Log, _OF_LOGS, changed),
        (MetadataCache, _OF_METADATA, changed),
    ]
    before = [(owner, name, getattr(owner, name)) for owner, names, _ in looks for name in names]
    for owner, names, look in looks:
        for name in names:
            setattr(owner, name, _followed_by(getattr(owner, name), look))
    try:
        yield
    finally:
        for owner, name, method in before:
            setattr(owner, name, method)


def _followed_by(method: Callable[..., Any], look: Callable[[Any], None]) -> Callable[..., Any]:
    def called(subject: Any, *rest: Any, **named: Any) -> Any:
        result = method(subject, *rest, **named)
        look(subject)
        return result

    return called


def _validate(subject: Partition | Log | MetadataCache, violated: Callable[[str], None]) -> None:
    try:
        subject.validate()
    except InvariantError as error:
        violated(f"after an operation, {error}")
