"""Streaming reads: `spark.readStream.format("odradek").load()`, for PySpark 4.2 and newer.

PySpark keeps one reader in a process of its own beside the driver, as long as the query runs, and
calls it at each trigger. The only state that survives a restart is the offsets.
"""

import logging
import time
from collections.abc import Iterator, Sequence
from typing import Any

from pyspark.sql.datasource import DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadLimit,
    ReadMaxRows,
    ReadMinRows,
    SupportsTriggerAvailableNow,
)

from odradek.client.cluster import Cluster
from odradek.model.errors import OdradekError
from odradek.model.partition import TopicPartition
from odradek.spark.connections import CONNECTIONS
from odradek.spark.offsets import Piece, behind, cut, from_json, limited, losses, to_json
from odradek.spark.options import OptionError, ReadOptions
from odradek.spark.quick_ack import QuickAcknowledged
from odradek.spark.ranges import earliest, latest, lost, offsets_at, partitions_of
from odradek.spark.reading import OffsetRange, read_piece
from odradek.spark.stream_topics import Seen, StreamTopics

_log = logging.getLogger("odradek.spark")

Stored = dict[str, dict[str, int]]


class TopicStreamReader(QuickAcknowledged, DataSourceStreamReader, SupportsTriggerAvailableNow):  # type: ignore[misc]
    """Decides the end offsets of each trigger, divides it into tasks, and reads them."""

    def __init__(self, options: ReadOptions, columns: Sequence[str]) -> None:
        self._options = options
        self._columns = tuple(columns)
        self._topics = StreamTopics(options)
        self._known: dict[TopicPartition, int] = {}  # the last end offsets
        self._target: dict[TopicPartition, int] | None = None  # of Trigger.AvailableNow
        self._triggered_s: float | None = None

    # --------------------------------------------------------------------- end offsets

    def initialOffset(self) -> Stored:  # noqa: N802  pyspark's
        """The start offsets of a query without a checkpoint."""
        return to_json(CONNECTIONS.run(self._initial(self._cluster())))

    async def _initial(self, cluster: Cluster) -> dict[TopicPartition, int]:
        partitions = await partitions_of(cluster, self._options)
        return await offsets_at(
            cluster, self._options, self._options.start, partitions, side="starting"
        )

    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802  pyspark's
        """The limit by maxOffsetsPerTrigger and minOffsetsPerTrigger, or none."""
        if self._options.offsets_per_trigger_max is not None:
            return ReadMaxRows(self._options.offsets_per_trigger_max)
        if self._options.offsets_per_trigger_min is not None:
            return ReadMinRows(self._options.offsets_per_trigger_min)
        return ReadAllAvailable()

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802  pyspark's
        """Fix the end offsets of this run, which may take several triggers."""
        self._target = CONNECTIONS.run(self._ends(self._cluster()))

    def latestOffset(self, start: Stored, limit: ReadLimit) -> Stored:  # noqa: N802  pyspark's
        """The end offsets of the next trigger."""
        begin = from_json(start)
        cluster = self._cluster()
        seen = CONNECTIONS.run(self._look(cluster, begin))
        end = self._target
        if end is None:
            end = CONNECTIONS.run(latest(cluster, self._options, seen.partitions))
        end = {name: offset for name, offset in end.items() if name.topic not in seen.replaced}
        end = {**{name: begin[name] for name in seen.kept}, **end}
        self._known = dict(end)
        begin = {**CONNECTIONS.run(self._begin_of_new(cluster, begin, end)), **begin}
        if isinstance(limit, ReadAllAvailable) or seen.replaced:
            return to_json(end)
        if self._target is None and not self._is_enough(behind(begin, end)):
            return start
        self._triggered_s = time.monotonic()
        if isinstance(limit, ReadMaxRows):
            return to_json(limited(begin, end, limit.max_rows))
        return to_json(end)

    def _is_enough(self, available: int) -> bool:
        """Whether a trigger is due: minOffsetsPerTrigger reached, or maxTriggerDelay passed."""
        least = self._options.offsets_per_trigger_min
        if least is None or available >= least:
            return True
        if self._triggered_s is None:
            self._triggered_s = time.monotonic()
        waited_ms = (time.monotonic() - self._triggered_s) * 1_000
        return waited_ms >= self._options.trigger_delay_ms_max and available > 0

    def reportLatestOffset(self) -> Stored | None:  # noqa: N802  pyspark's
        """The end offsets of the partitions, for the query's progress."""
        return to_json(self._known) if self._known else None

    async def _ends(self, cluster: Cluster) -> dict[TopicPartition, int]:
        seen = await self._look(cluster, {})
        return await latest(cluster, self._options, seen.partitions)

    async def _look(self, cluster: Cluster, begin: dict[TopicPartition, int]) -> Seen:
        """Read the metadata of the query's topics.

        Raises:
            LostDataError: a topic was deleted or replaced, and failOnDataLoss is true.
        """
        seen = await self._topics.look(cluster, begin)
        for topic in seen.missing:
            lost(self._options, f"topic {topic!r} does not exist")
        for topic in seen.replaced:
            lost(self._options, f"topic {topic!r} was deleted and created again")
        return seen

    async def _begin_of_new(
        self,
        cluster: Cluster,
        begin: dict[TopicPartition, int],
        end: dict[TopicPartition, int],
    ) -> dict[TopicPartition, int]:
        """The start offsets of new partitions: their first record."""
        new = [partition for partition in end if partition not in begin]
        firsts = await earliest(cluster, self._options, new)
        for partition, first in firsts.items():
            if first > 0:
                lost(
                    self._options,
                    f"Added partition {partition} starts from {first} instead of 0",
                )
        return firsts

    # ---------------------------------------------------------------------------- tasks

    def partitions(self, start: Stored, end: Stored) -> list[InputPartition]:
        """The tasks of one trigger."""
        begin, upto = from_json(start), from_json(end)
        pieces = CONNECTIONS.run(self._pieces(self._cluster(), begin, upto))
        return [
            OffsetRange(piece)
            for piece in cut(
                pieces,
                min_partitions=self._options.min_partitions,
                records_max=self._options.records_per_partition_max,
            )
        ]

    async def _pieces(
        self,
        cluster: Cluster,
        begin: dict[TopicPartition, int],
        upto: dict[TopicPartition, int],
    ) -> list[Piece]:
        topics = {partition.topic for partition in (*begin, *upto)}
        found = await self._topics.find(cluster, topics)
        there = {TopicPartition(topic, n) for topic, numbers in found.items() for n in numbers}
        firsts = await earliest(cluster, self._options, there & {*begin, *upto})
        begin = {**{name: firsts[name] for name in upto if name in firsts}, **begin}
        for what in losses(begin, upto, firsts):
            lost(self._options, what)
        return [
            Piece(name, min(max(begin[name], firsts[name]), end), end)
            for name, end in upto.items()
            if name in firsts
        ]

    def read(self, partition: InputPartition) -> Iterator[Any]:
        """The records of one task as Arrow record batches."""
        return read_piece(self._options, self._columns, partition)

    # --------------------------------------------------------------------------- commit

    def commit(self, end: Stored) -> None:
        """Commit the offsets before `end`, which are processed, to the group of commitGroupId.

        Progress is in the checkpoint; these offsets are only for Kafka's lag tools. So an error is
        logged, and does not stop the query.
        """
        from odradek.client.admin.groups import commit_offsets  # noqa: PLC0415  few queries need it

        group = self._options.commit_group
        if group is None:
            return
        try:
            outcomes = CONNECTIONS.run(commit_offsets(self._cluster(), group, from_json(end)))
            for error in filter(None, outcomes.values()):
                raise error
        except (OdradekError, ConnectionError) as error:
            _log.warning("offsets of group %s were not committed: %s", group, error)

    def stop(self) -> None:
        """The query ends, and this process with it."""

    def _cluster(self) -> Cluster:
        return CONNECTIONS.cluster(self._options.kafka, self._options.subject)


class RefusedStreamReader(DataSourceStreamReader):  # type: ignore[misc]  # pyspark is not typed for us
    """A streaming read with invalid options: each call raises the error."""

    def __init__(self, error: OptionError) -> None:
        self._error = str(error)

    def initialOffset(self) -> Stored:  # noqa: N802  pyspark's
        """The first call for a query without a checkpoint."""
        raise OptionError(self._error)

    def latestOffset(self, start: Stored, limit: ReadLimit) -> Stored:  # noqa: N802, ARG002
        """The first call for a query with a checkpoint."""
        raise OptionError(self._error)

    def partitions(self, start: Stored, end: Stored) -> list[InputPartition]:  # noqa: ARG002
        """The first call for a query that repeats its last batch."""
        raise OptionError(self._error)

    def read(self, partition: InputPartition) -> Iterator[Any]:  # noqa: ARG002
        """Never called: no task is planned."""
        raise OptionError(self._error)
