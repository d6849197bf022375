"""Checks replicas and logs after operations on them: `Partition.validate`, `Log.validate`.

The offsets are compared after each operation. The rest is checked after every so many-th operation
on a partition, and after each one that is rare: a truncation, a deletion of segments. A state that
contradicts itself stays so for longer; the property tests check after each operation.

Every broker of a simulation runs in this Python process: the methods are wrapped for the time of a
run. Nothing of this exists in a shipped broker.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, Final

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

    before = [
        *((Partition, name, getattr(Partition, name)) for name in _OF_PARTITIONS),
        *((Log, name, getattr(Log, name)) for name in _OF_LOGS),
    ]
    for owner, name, method in before[: len(_OF_PARTITIONS)]:
        setattr(owner, name, _followed_by(method, partition_changed))
    for owner, name, method in before[len(_OF_PARTITIONS) :]:
        setattr(owner, name, _followed_by(method, lambda log: _validate(log, violated)))
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


def _validate(subject: Partition | Log, violated: Callable[[str], None]) -> None:
    try:
        subject.validate()
    except InvariantError as error:
        violated(f"after an operation, {error}")
