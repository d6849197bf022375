"""The records of Produce v0-2, and all records that a worker checks.

A set of messages (formats v0 and v1) is converted to one batch before it is appended: a short one
on the event loop, others in the worker (`odradek.record.conversion`). An empty set is answered
without error and without offset, as by Kafka.

Versions:
    see `odradek.wire.messages.produce`
"""

import time
from typing import Final, NamedTuple

from odradek.broker.replication.partition import Partition
from odradek.model.clock import WallMs
from odradek.model.errors import ApiError, ErrorCode
from odradek.obs.metrics import BrokerMetrics
from odradek.record.batch import MAGIC, MAGIC_AT, BatchHeader
from odradek.record.conversion import convert_up, is_short, no_pause
from odradek.record.validate import (
    PRODUCE_VERSION_WITH_ZSTD,
    UNFINISHED,
    ValidatedBatch,
    ValidationRules,
    look_inside,
    validate_produced,
)
from odradek.wire.api_keys import ApiKey

# The header of what is not converted yet.
_NOT_CONVERTED: Final = BatchHeader(0, 0, -1, 0, 0, 0, 0, -1, -1, -1, -1, -1, 0)
_PAUSE_S: Final = 0.0001


def let_loop_run() -> None:
    """Called in the worker now and then: release the interpreter lock to the event loop."""
    time.sleep(_PAUSE_S)


def validate_old(
    view: memoryview,
    rules: ValidationRules,
    *,
    wall_ms: WallMs,
    api_version: int,
    spend_ns: int,
) -> ValidatedBatch:
    """Validate what a producer sent in Produce v0-2, as `validate_produced` does for later ones.

    Raises:
        ApiError: with Kafka's error code; NONE for a set without messages.
    """
    if len(view) > MAGIC_AT and view[MAGIC_AT] == MAGIC:
        # As in Kafka: the codec of such a batch is not limited by the version.
        version = max(api_version, PRODUCE_VERSION_WITH_ZSTD)
        return validate_produced(
            view, rules, wall_ms=wall_ms, api_version=version, spend_ns=spend_ns
        )
    if spend_ns <= 0 or not is_short(view):
        return ValidatedBatch(view, _NOT_CONVERTED, UNFINISHED)
    return _converted(view, rules, wall_ms, in_worker=False)


def _converted(
    view: memoryview, rules: ValidationRules, wall_ms: WallMs, *, in_worker: bool
) -> ValidatedBatch:
    began_ns = time.perf_counter_ns()
    pause = let_loop_run if in_worker else no_pause
    converted = convert_up(view, rules, wall_ms=wall_ms, pause=pause)
    if converted is None:
        raise ApiError(ErrorCode.NONE, "a set without messages")
    return converted._replace(cost_ns=max(time.perf_counter_ns() - began_ns, 1))


class UncheckedBatch(NamedTuple):
    """A batch whose records a worker checks, or messages that it converts."""

    slot: int
    partition: Partition
    view: memoryview
    header: BatchHeader
    rules: ValidationRules

    def look_inside(self, wall_ms: WallMs) -> ValidatedBatch | Exception:
        """Called in the worker; an exception is returned, not raised."""
        try:
            if self.header is _NOT_CONVERTED:
                return _converted(self.view, self.rules, wall_ms, in_worker=True)
            return look_inside(self.view, self.header, self.rules, wall_ms=wall_ms)
        except Exception as error:
            return error


def count_converted(metrics: BrokerMetrics, topic: str, batch: ValidatedBatch) -> None:
    """Count a conversion of `validate_old` or of the worker."""
    records = batch.header.record_count
    metrics.topics[topic].produce_conversions += records
    metrics.converted(ApiKey.PRODUCE, batch.cost_ns / 1_000_000, len(batch.view))
