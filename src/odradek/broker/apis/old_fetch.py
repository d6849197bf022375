"""Fetch v0-9: what old consumers get.

Behaviour:
    * v0-9: UNSUPPORTED_COMPRESSION_TYPE for a topic with `compression.type=zstd`.
    * v0-5: NOT_LEADER_OR_FOLLOWER in place of KAFKA_STORAGE_ERROR, which these clients do not know.
    * v0-3: batches are converted to messages of format v0 (Fetch v0-1) or v1 (v2-3); see
      `odradek.record.conversion`. UNSUPPORTED_VERSION if `message.downconversion.enable` is false.
    * v0-2 have no limit for the whole response. It holds a MiB of records at most, or one batch,
      so that a conversion takes no more memory; the partitions take turns in being the first.
    * The first batch is converted as a whole, however large, in v0-2, too. Kafka 3.9 answers
      nothing if it is larger than the client's limit, and the consumer never gets further.
    * A range of control batches only is skipped, and the request waits for what follows. Kafka
      3.9 answers half a message, and consumers report that a message is too large.

A short conversion runs on the event loop, others in the worker. Meanwhile the request waits.

Versions:
    see `odradek.wire.messages.fetch`
"""

import logging
import time
from collections.abc import Mapping
from typing import Final, NamedTuple

from odradek.broker.apis.fetch import FetchApi, FetchCall
from odradek.broker.apis.old_produce import let_loop_run
from odradek.broker.replication.fetching import LATE_BYTES, Fetcher, Reading
from odradek.broker.replication.partition import Partition
from odradek.model.errors import ApiError, ErrorCode
from odradek.net.connection import Connection
from odradek.record.batch import CODEC_MASK, iter_batches
from odradek.record.compression import Codec
from odradek.record.conversion import SHORT_BYTES, ConvertedDown, convert_down, no_pause
from odradek.replica.fetch_session import SessionPartition
from odradek.wire.api_keys import ApiKey
from odradek.wire.header import RequestHeader
from odradek.wire.messages.fetch import FetchRequest, PartitionData

log = logging.getLogger(__name__)

ZSTD_SINCE: Final = 10
STORAGE_ERROR_SINCE: Final = 6
FORMAT_2_SINCE: Final = 4
RESPONSE_LIMIT_SINCE: Final = 3
FORMAT_1_SINCE: Final = 2
_HASH: Final = 2654435761  # Knuth's multiplicative hash: request ids may grow in steps


class OldReading(Reading):
    """Refuses topics whose codec the client does not know."""

    __slots__ = ()

    def _checked(self, wanted: SessionPartition) -> Partition | ErrorCode:
        found = super()._checked(wanted)
        if isinstance(found, Partition) and found.rules.codec is Codec.ZSTD:
            return ErrorCode.UNSUPPORTED_COMPRESSION_TYPE
        return found


class ConvertingReading(OldReading):
    """Refuses topics whose records may not be converted."""

    __slots__ = ()
    may_leave_in_file = False

    def _checked(self, wanted: SessionPartition) -> Partition | ErrorCode:
        found = super()._checked(wanted)
        if (
            isinstance(found, Partition)
            and found.log is not None
            and not found.log.config.message_downconversion_enable
            and self._fetcher.follower_id < 0
        ):
            return ErrorCode.UNSUPPORTED_VERSION
        return found


class OldFetchCall(FetchCall):
    """A request of v4-9."""

    __slots__ = ()
    reading_class = OldReading

    def _answer(self, reading: Reading) -> list[bytes | bytearray | memoryview]:
        if self.header.api_version < STORAGE_ERROR_SINCE:
            for _, answer in reading.answers:
                if answer.error_code == ErrorCode.KAFKA_STORAGE_ERROR:
                    answer.error_code = ErrorCode.NOT_LEADER_OR_FOLLOWER
        return super()._answer(reading)


class _Conversion(NamedTuple):
    """The records of one partition."""

    wanted: SessionPartition
    answer: PartitionData
    view: memoryview

    def run(self, magic: int, *, in_worker: bool) -> ConvertedDown | Exception:
        """Called in the worker; an exception is returned, not raised."""
        pause = let_loop_run if in_worker else no_pause
        try:
            return convert_down(self.view, magic, self.wanted.fetch_offset, pause=pause)
        except Exception as error:
            return error


class ConvertingFetchCall(OldFetchCall):
    """A request of v0-3."""

    __slots__ = ("_is_converting", "_is_over_time")
    reading_class = ConvertingReading

    def __init__(
        self,
        api: FetchApi,
        connection: Connection,
        header: RequestHeader,
        request: FetchRequest,
        fetcher: Fetcher,
    ) -> None:
        super().__init__(api, connection, header, request, fetcher)
        self._bytes_max = min(self._bytes_max, LATE_BYTES)
        self._bytes_min = min(self._bytes_min, max(self._bytes_max, 1))
        self._is_converting = False
        self._is_over_time = False
        if header.api_version < RESPONSE_LIMIT_SINCE and fetcher.ready:
            ready = list(fetcher.ready.items())
            first = (header.correlation_id * _HASH >> 16) % len(ready)
            fetcher.ready = dict(ready[first:] + ready[:first])

    def run(self) -> None:
        """Read for the first time; the response follows when the records are converted."""
        if self._slot is None:
            self.take(self.connection.later())
        self._api.purgatory.wait(self, max(self.request.max_wait_ms, 0))
        self.look_again()

    def look_again(self) -> None:
        """Read again, unless a conversion is under way."""
        if not self._is_converting:
            super().look_again()

    def expire(self) -> None:
        """The time is up: answer with what is in memory, or with what is being converted."""
        self._is_over_time = True
        if not self._is_converting:
            super().expire()

    def _finish(self, reading: Reading | None) -> None:
        conversions = [] if reading is None else _conversions(reading)
        if reading is None or not conversions:
            super()._finish(reading)
            return
        magic = 1 if self.header.api_version >= FORMAT_1_SINCE else 0
        is_short = _is_short(conversions)
        began_ns = time.perf_counter_ns()

        def work() -> list[ConvertedDown | Exception]:
            return [each.run(magic, in_worker=not is_short) for each in conversions]

        def done(results: list[ConvertedDown | Exception]) -> None:
            self._is_converting = False
            if not self.done:  # otherwise the client has disconnected
                took_ms = (time.perf_counter_ns() - began_ns) / 1_000_000
                self._converted(reading, conversions, results, took_ms)

        self._is_converting = True
        if is_short:
            done(work())
        else:
            self._api.worker.run(work, done)

    def _converted(
        self,
        reading: Reading,
        conversions: list[_Conversion],
        results: list[ConvertedDown | Exception],
        took_ms: float,
    ) -> None:
        """Answer with the converted records; or read on, if there are none of them."""
        memory_bytes = 0
        is_empty = not any(answer.error_code for _, answer in reading.answers)
        for each, result in zip(conversions, results, strict=True):
            answer = each.answer
            if isinstance(result, Exception):
                is_empty = False
                _fail(answer, result)
                continue
            is_empty = is_empty and not result.messages
            answer.records = result.messages
            memory_bytes += len(each.view) + len(result.messages)
            if isinstance(each.wanted.target, Partition):
                topic = self._api.metrics.topics[each.wanted.target.topic_partition.topic]
                topic.fetch_conversions += result.records
        self._api.metrics.converted(ApiKey.FETCH, took_ms, memory_bytes)
        if is_empty and not self._is_over_time and _skip(conversions, results):
            self.look_again()
        else:
            super()._finish(reading)


def _conversions(reading: Reading) -> list[_Conversion]:
    return [
        _Conversion(wanted, answer, memoryview(answer.records))
        for wanted, answer in reading.answers
        if answer.records
    ]


def _is_short(conversions: list[_Conversion]) -> bool:
    """Whether the records can be converted on the event loop."""
    if sum(len(each.view) for each in conversions) > SHORT_BYTES:
        return False
    for each in conversions:
        try:
            if any(header.attributes & CODEC_MASK for _, header in iter_batches(each.view)):
                return False
        except ApiError:  # messages of an old segment
            return False
    return True


def _fail(answer: PartitionData, error: Exception) -> None:
    if isinstance(error, ApiError):
        answer.error_code = error.code
    else:
        log.error("records could not be converted", exc_info=error)
        answer.error_code = ErrorCode.UNKNOWN_SERVER_ERROR
    answer.records = None
    answer.high_watermark = answer.last_stable_offset = answer.log_start_offset = -1


def _skip(conversions: list[_Conversion], results: list[ConvertedDown | Exception]) -> bool:
    """Read on after batches that had nothing to convert; False if there were none."""
    skipped = False
    for each, result in zip(conversions, results, strict=True):
        if isinstance(result, ConvertedDown) and result.next_offset is not None:
            each.wanted.fetch_offset = result.next_offset
            skipped = True
    return skipped


OLD_CALLS: Final[Mapping[int, type[FetchCall]]] = {
    version: ConvertingFetchCall if version < FORMAT_2_SINCE else OldFetchCall
    for version in range(ZSTD_SINCE)
}
