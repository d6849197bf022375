"""Prefetching for a consumer: fetched batches wait here until `poll` takes their records.

A partition is not fetched again before its records were taken, so memory is bounded by
`fetch.max.bytes` for each broker. Records fetched before a seek are dropped.
"""

from collections.abc import Callable
from typing import Final

from odradek.client.cluster import Cluster
from odradek.client.consumer.fetched import CompletedFetch, ConsumerRecord
from odradek.client.consumer.settings import ConsumerSettings
from odradek.client.consumer.subscription import SubscriptionState
from odradek.client.errors import NoOffsetError
from odradek.client.fetch.fetcher import ClientFetcher, FetchPosition
from odradek.client.fetch.offsets import EARLIEST, LATEST
from odradek.client.fetch.requests import FetchLimits
from odradek.model.errors import ApiError
from odradek.model.partition import TopicPartition
from odradek.wire.messages.fetch import PartitionData

RESETS: Final = {"earliest": EARLIEST, "latest": LATEST}  # by auto.offset.reset


class ConsumerFetcher:
    """The fetches of one consumer; a `FetchListener`."""

    def __init__(
        self,
        cluster: Cluster,
        settings: ConsumerSettings,
        assigned: SubscriptionState,
        arrived: Callable[[], None],
    ) -> None:
        """`arrived` is called when `take` has records to return or an error to raise."""
        self._settings = settings
        self._assigned = assigned
        self._buffer: list[CompletedFetch] = []
        self._errors: list[Exception] = []
        self._reset_default = RESETS.get(settings.offset_reset)
        limits = FetchLimits(
            bytes_max=settings.fetch_bytes_max,
            partition_bytes_max=settings.partition_bytes_max,
            bytes_min=settings.fetch_bytes_min,
            wait_ms_max=settings.fetch_wait_ms_max,
            reads_committed=settings.reads_committed,
            rack=settings.rack,
        )
        self._fetcher = ClientFetcher(
            cluster,
            self,
            limits,
            arrived=arrived,
        )

    async def close(self) -> None:
        """Cancel the requests in flight."""
        await self._fetcher.close()

    def ask(self) -> None:
        """Send a Fetch to each broker that has none in flight."""
        self._fetcher.send()

    # ------------------------------------------------------------------------- taking

    def take(self, records_max: int) -> list[ConsumerRecord]:
        """At most `records_max` fetched records; advances the positions.

        Raises:
            ApiError, NoOffsetError: a partition cannot be read any further.
        """
        taken: list[ConsumerRecord] = []
        waiting: list[CompletedFetch] = []
        while self._buffer and len(taken) < records_max:
            fetched = self._buffer.pop(0)
            assigned = self._assigned.get(fetched.partition)
            if assigned is None or assigned.visit != fetched.visit:
                continue
            if assigned.is_paused:
                waiting.append(fetched)
                continue
            try:
                records = fetched.take(records_max - len(taken))
            except ApiError as error:
                if taken:
                    self._errors.append(error)
                    break
                raise
            taken += records
            assigned.offset = fetched.next_offset
            if fetched.leader_epoch >= 0:
                assigned.leader_epoch = fetched.leader_epoch
            if len(taken) == records_max:
                self._buffer.insert(0, fetched)
        self._buffer += waiting
        if not taken and self._errors:
            raise self._errors.pop(0)
        return taken

    def drop(self) -> None:
        """Drop fetched records of partitions that are not assigned any more."""
        self._buffer = [f for f in self._buffer if f.partition in self._assigned]

    @property
    def has_something(self) -> bool:
        """Whether `take` would return records or raise an error."""
        if self._errors:
            return True
        for fetched in self._buffer:
            assigned = self._assigned.get(fetched.partition)
            if assigned is not None and assigned.visit == fetched.visit and not assigned.is_paused:
                return True
        return False

    # ------------------------------------------------------------- for the ClientFetcher

    def to_fetch(self) -> list[TopicPartition]:
        """The partitions that have a position and no fetched records."""
        here = {fetched.partition for fetched in self._buffer}
        return [partition for partition in self._assigned.fetchable() if partition not in here]

    def position(self, partition: TopicPartition) -> FetchPosition | None:
        """The position of an assigned partition, if it is known."""
        assigned = self._assigned.get(partition)
        if assigned is None or not assigned.has_position:
            return None
        return FetchPosition(assigned.offset, assigned.leader_epoch, assigned.visit)

    def has_room(self, in_flight: int) -> bool:  # noqa: ARG002  memory is bounded by `to_fetch`
        """A Fetch may be sent to each broker at the same time."""
        return True

    def fetched(
        self, partition: TopicPartition, position: FetchPosition, data: PartitionData
    ) -> None:
        """Keep the records until they are taken."""
        assigned = self._assigned[partition]
        assigned.end_offset = data.high_watermark
        assigned.last_stable_offset = data.last_stable_offset
        assigned.log_start_offset = data.log_start_offset
        if not data.records:
            return
        fetched = CompletedFetch(
            partition,
            data.records,
            offset=position.offset,
            visit=position.visit,
            aborted=data.aborted_transactions or (),
            checks_crcs=self._settings.checks_crcs,
        )
        self._buffer.append(fetched)

    async def out_of_range(
        self, partition: TopicPartition, position: FetchPosition, diverged_at: int | None
    ) -> None:
        """Reset the position by the policy; after a truncation (KIP-320), to the divergence."""
        if diverged_at is None and self._reset_default is not None:
            self._assigned.reset(partition, self._reset_default)
        elif diverged_at is None:
            why = f"Fetch position {position.offset} is out of range for partition {partition}"
            self._errors.append(NoOffsetError(f"{why}, and auto.offset.reset is none"))
        elif self._reset_default is not None:
            self._assigned.seek(partition, min(diverged_at, position.offset))
        else:
            why = f"Truncation of partition {partition} detected at {diverged_at}, position"
            self._errors.append(
                NoOffsetError(f"{why} {position.offset}, and auto.offset.reset is none")
            )
            self._assigned.seek(partition, position.offset)

    def delayed(self, partition: TopicPartition, error: Exception) -> None:
        """A consumer waits for ever."""

    def failed(self, error: Exception) -> None:
        """Have `take` raise the error."""
        self._errors.append(error)
