"""Fetching from one leader: all partitions that it leads and this broker follows, in one fetch.

    send      an incremental fetch (KIP-227): it names only partitions that are new or have moved
    answer    handled in the callback that received it: checksums, one write a partition, epochs,
              the high watermark - and only then the next fetch, which acknowledges it
    diverged  the leader does not have the end of this log: truncate by epoch and fetch again
              (`replica.follower`)
    refused   a partition with an error waits for a pause, or for the next LeaderAndIsr; so does
              one whose truncation has changed nothing. What lasts is logged and reported
              (`replica.failures`)

The next fetch is not sent before the append: it would acknowledge what is not written. Nor is it
sent before the flush, if `flush.messages` asks for one: Kafka's fetcher flushes within the append.
A broken connection is made again after `replica.fetch.backoff.ms`.
"""

import asyncio
import logging
from collections.abc import Callable, Iterator
from typing import Final, NamedTuple

from odradek.broker.cluster.peers import Peer, PeerError
from odradek.broker.replication.leader_probe import PROBE_MS, LeaderProbe
from odradek.broker.replication.logged_failures import LoggedFailures
from odradek.broker.replication.partition import Partition
from odradek.broker.replication.truncation import ends_of, restart, truncate, truncate_diverged
from odradek.broker.serving.tasks import Tasks
from odradek.log.disk import StorageError
from odradek.log.log_config import NEVER
from odradek.log.slices import UnexpectedOffsetError
from odradek.model.clock import Clock, MonotonicMs
from odradek.model.cluster import EndPoint
from odradek.model.errors import ApiError, ErrorCode, MalformedRequestError
from odradek.model.partition import TopicPartition
from odradek.net.channel import Channel, Connector
from odradek.replica.fetch_session import INITIAL_EPOCH, NO_SESSION, next_epoch
from odradek.replica.follower import EpochEnd, out_of_range
from odradek.replica.throttle import ReplicationQuota
from odradek.wire.api_keys import ApiKey
from odradek.wire.follower_fetch import (
    AskedPartition,
    FetchedPartition,
    FollowerFetchWriter,
    FollowerLimits,
    PartitionKey,
    read_any,
    read_usual,
)
from odradek.wire.messages.fetch import FOLLOWER_VERSION
from odradek.wire.messages.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopic,
)

log = logging.getLogger(__name__)

# A new leader may receive LeaderAndIsr a moment after its followers: after the first errors the
# follower asks again soon, each time after twice as long, up to `replica.fetch.backoff.ms`.
_FIRST_PAUSE_MS: Final = 10
_NO_ANSWER: Final = "the leader does not answer"

_EARLIEST: Final = -2
_LATEST: Final = -1
_SESSION_ERRORS: Final = frozenset(
    {
        ErrorCode.FETCH_SESSION_ID_NOT_FOUND,
        ErrorCode.INVALID_FETCH_SESSION_EPOCH,
        ErrorCode.FETCH_SESSION_TOPIC_ID_ERROR,
    }
)


class FetchOptions(NamedTuple):
    """The options of a follower's fetches: `replica.fetch.*`, `replica.socket.timeout.ms`."""

    max_wait_ms: int
    min_bytes: int
    partition_bytes_max: int
    response_bytes_max: int
    backoff_ms: int
    timeout_ms: int


class _Followed:
    """One partition that is fetched, and in which leader epoch."""

    __slots__ = ("is_asked", "is_held_back", "lag", "leader_epoch", "partition", "pause_ms")

    def __init__(self, partition: Partition) -> None:
        self.partition = partition
        self.leader_epoch = partition.leader_epoch
        self.is_asked = False  # a request has named it in this leader epoch, since the last error
        self.is_held_back = False  # pausing after an error, or looking for the leader's offsets
        self.lag = 0  # records below the leader's high watermark that were not fetched yet
        self.pause_ms = _FIRST_PAUSE_MS  # after the next error


def fetch_partition(index: int, followed: _Followed, bytes_max: int) -> AskedPartition:
    """The request for what a partition's leader has after this replica's log end."""
    log_ = followed.partition.log
    assert log_ is not None
    epoch, last_epoch = followed.leader_epoch, log_.epochs.latest_epoch
    return index, epoch, log_.leo, last_epoch, log_.log_start_offset, bytes_max


def _nothing() -> None:
    pass


class ReplicaFetcher:
    """Fetches all partitions that one other broker leads (Kafka's `ReplicaFetcherThread`)."""

    def __init__(  # noqa: PLR0913 - everything external to a follower
        self,
        leader: EndPoint,
        *,
        broker_id: int,
        broker_epoch: Callable[[], int],
        connector: Connector,
        loop: asyncio.AbstractEventLoop,
        clock: Clock,
        options: FetchOptions,
        tasks: Tasks,
        storage_failed: Callable[[StorageError], None],
        quota: ReplicationQuota | None = None,
    ) -> None:
        self._quota = quota  # for throttled partitions, shared by the fetchers of all leaders
        self.leader = leader
        self.failures = LoggedFailures(leader.connection_string, clock)
        self.fetched_bytes = 0  # of record batches
        # Called when the connection to the leader is lost, and when there is one.
        self.lost: Callable[[], None] = _nothing
        self.reached: Callable[[], None] = _nothing
        self._broker_id = broker_id
        self._broker_epoch = broker_epoch
        self._connector = connector
        self._loop = loop
        self._clock = clock
        self._options = options
        self._tasks = tasks
        self._storage_failed = storage_failed
        self._client_id = f"broker-{broker_id}-fetcher"
        limits = FollowerLimits(options.max_wait_ms, options.min_bytes, options.response_bytes_max)
        self._writer = FollowerFetchWriter(self._client_id, broker_id, limits)
        self._followed: dict[PartitionKey, _Followed] = {}
        self._aside: dict[PartitionKey, _Followed] = {}  # the ones that are held back
        self._failing: dict[PartitionKey, _Followed] = {}  # held back since the last good answer
        # And the ones that the next fetch waits for.
        self._flushing: dict[PartitionKey, _Followed] = {}
        # The partitions that the next request adds to the session, and removes from it.
        self._to_name: dict[PartitionKey, _Followed] = {}
        self._to_remove: dict[PartitionKey, None] = {}
        self._session_id = NO_SESSION
        self._session_epoch = INITIAL_EPOCH
        self._channel: Channel | None = None
        self._is_under_way = False  # a fetch, or a connection
        self._is_stopped = False
        self._sent_ms = 0
        self._peer = Peer(
            leader.host,
            leader.port,
            connector=connector,
            clock=clock,
            client_id=self._client_id,
            timeout_ms=options.timeout_ms,
        )
        self.probe = LeaderProbe(self._peer, broker_id, tasks.start)

    # ------------------------------------------------------------------- what is fetched

    def __len__(self) -> int:
        return len(self._followed)

    def lags(self) -> Iterator[tuple[TopicPartition, int]]:
        """The records below the leader's high watermark that are not here, of each partition."""
        return ((each.partition.topic_partition, each.lag) for each in self._followed.values())

    @property
    def held_back(self) -> int:
        """The number of partitions that are not fetched now because of an error."""
        return len(self._aside)

    def follow(self, partition: Partition) -> None:
        """Fetch this partition from now on, or in its new leader epoch."""
        key = (partition.topic_id, partition.topic_partition.partition)
        followed = self._followed[key] = _Followed(partition)
        self._forget_failures(key, partition)
        self._to_name[key] = followed
        self._to_remove.pop(key, None)
        self._flushing.pop(key, None)
        self._wait_for_disk(key, followed)
        self._go_on()

    def leave(self, partition: Partition) -> None:
        """Stop fetching this partition."""
        key = (partition.topic_id, partition.topic_partition.partition)
        if self._followed.pop(key, None) is not None:
            self._forget_failures(key, partition)
            self._to_name.pop(key, None)
            self._to_remove[key] = None
            if self._flushing.pop(key, None) is not None:
                self._go_on()

    def _forget_failures(self, key: PartitionKey, partition: Partition) -> None:
        self._aside.pop(key, None)
        self._failing.pop(key, None)
        self.failures.ended(partition.topic_partition)

    def stop(self) -> None:
        """Stop fetching, and close the connections."""
        self._is_stopped = True
        self._followed.clear()
        self._aside.clear()
        self._failing.clear()
        self._flushing.clear()
        self._disconnect()
        self._peer.close()

    @property
    def unanswered_since(self) -> MonotonicMs | None:
        """When the oldest request without a response was sent; None if there is no such request."""
        return None if self._channel is None else self._channel.oldest_request_ms

    def check_silence(self) -> None:
        """Disconnect from a leader that has not answered for too long; log what lasts.

        To be called about every `max_wait_ms`.
        """
        since_ms = self.unanswered_since
        if since_ms is not None:
            silent_ms = self._clock.monotonic_ms() - since_ms - self._options.max_wait_ms
            if silent_ms > PROBE_MS:
                self.failures.failed(None, _NO_ANSWER, since_ms)
            if silent_ms > self._options.timeout_ms:
                self._disconnect()
        self.failures.log_lasting()

    @property
    def is_answering(self) -> bool:
        """Whether there is a connection, and no response is overdue."""
        sent_ms = self.unanswered_since
        silent_ms = 0 if sent_ms is None else self._clock.monotonic_ms() - sent_ms
        return self._channel is not None and silent_ms <= self._options.max_wait_ms + PROBE_MS

    # ------------------------------------------------------------------------ the loop

    def _go_on(self, *, at_once: bool = False) -> None:
        """Send the next fetch, unless one is under way or there is nothing to fetch."""
        if (
            self._is_under_way
            or self._is_stopped
            or self._flushing
            or not self._followed
            or (self._aside and len(self._aside) >= len(self._followed))
        ):
            return
        self._is_under_way = True
        if self._channel is None:
            self._tasks.start(self._connect(), f"fetcher to {self.leader.connection_string}")
        elif at_once:
            self._send()
        else:
            # In the next turn, so that partitions of one LeaderAndIsr go into one request.
            self._loop.call_soon(self._send)

    async def _connect(self) -> None:
        channel = Channel(monotonic_ms=self._clock.monotonic_ms, ended=self._ended)
        try:
            async with asyncio.timeout(self._options.timeout_ms / 1000):
                await self._connector.connect(lambda: channel, self.leader.host, self.leader.port)
        except OSError as error:
            self.failures.failed(None, str(error) or _NO_ANSWER)
            self.lost()
            self._later()
            return
        if self._is_stopped:  # while it connected
            channel.close()
            return
        self._channel = channel
        self.probe.connected()
        self.reached()
        self._session_id, self._session_epoch = NO_SESSION, INITIAL_EPOCH
        self._send()

    def _ended(self) -> None:
        """The connection is closed; the waiting request has already been answered with None."""
        self._channel = None
        if not self._is_stopped:
            self.lost()
        self.probe.disconnected()

    def _disconnect(self) -> None:
        channel, self._channel = self._channel, None
        if channel is not None:
            channel.close()

    def _later(self) -> None:
        """Send the next fetch after the backoff."""
        self._loop.call_later(self._options.backoff_ms / 1000, self._again)

    def _again(self) -> None:
        self._is_under_way = False
        self._go_on()

    def _send(self) -> None:
        channel = self._channel
        if self._flushing:  # it began after this call was scheduled
            self._is_under_way = False
            return
        if channel is None or self._is_stopped:
            self._is_under_way = False
            if not self._is_stopped:
                self._later_from_idle()
            return
        if channel.stale_ms is not None and channel.is_stale:
            self._disconnect()
            self._tasks.start(self._connect(), f"fetcher to {self.leader.connection_string}")
            return
        channel.send(
            (self._request(channel.next_correlation_id),),
            api_key=ApiKey.FETCH,
            api_version=FOLLOWER_VERSION,
            answered=self._answered,
        )

    def _later_from_idle(self) -> None:
        self._is_under_way = True
        self._later()

    def _request(self, correlation_id: int) -> bytes:
        """The frame of the next fetch."""
        bytes_max = self._options.partition_bytes_max
        session_id, session_epoch = self._session_id, self._session_epoch
        if session_epoch == INITIAL_EPOCH:  # a new session: name all partitions
            self._to_name = {k: f for k, f in self._followed.items() if not f.is_held_back}
            self._to_remove.clear()
        elif len(self._to_name) == 1 and not self._to_remove:
            (topic_id, index), followed = self._to_name.popitem()
            followed.is_asked = True
            asked = fetch_partition(index, followed, bytes_max)
            return self._writer.one(
                correlation_id, self._broker_epoch(), session_id, session_epoch, topic_id, asked
            )
        topics: dict[bytes, list[AskedPartition]] = {}
        for (topic_id, index), followed in self._to_name.items():
            followed.is_asked = True
            asked = fetch_partition(index, followed, bytes_max)
            if topic_id in topics:
                topics[topic_id].append(asked)
            else:
                topics[topic_id] = [asked]
        removed: dict[bytes, list[int]] = {}
        for topic_id, index in self._to_remove:
            removed.setdefault(topic_id, []).append(index)
        self._to_name.clear()
        self._to_remove.clear()
        session = session_id, session_epoch
        return self._writer.any(correlation_id, self._broker_epoch(), session, topics, removed)

    # -------------------------------------------------------------------------- answers

    def _answered(self, frame: memoryview | None, position: int) -> None:
        self._is_under_way = False
        if self._is_stopped:
            return
        if frame is None:
            self._later_from_idle()
            return
        try:
            response = read_usual(frame, position) or read_any(frame, position)
        except MalformedRequestError as error:
            log.warning("%s: %s", self.leader.connection_string, error)
            self.failures.failed(None, f"invalid response: {error}")
            self._disconnect()
            self._later_from_idle()
            return
        error_code, session_id, fetched = response
        if error_code:
            self._refused(ErrorCode(error_code))
            return
        if self.failures:
            self.failures.progressed(None)
        self._session_id = session_id
        self._session_epoch = next_epoch(self._session_epoch)
        if session_id == NO_SESSION:
            self._session_epoch = INITIAL_EPOCH  # the leader keeps no session: name all each time
        for each in fetched:
            followed = self._followed.get(each[0])
            # Errors for a request of an earlier leader epoch (such as FENCED_LEADER_EPOCH)
            # say nothing about the present one, which the next request names.
            if followed is not None and followed.is_asked and not followed.is_held_back:
                self._process(followed, each)
        if self._failing:
            self._end_failures()
        self._go_on(at_once=True)

    def _end_failures(self) -> None:
        """An answer may leave out a partition without an error and with nothing new."""
        answered = [
            (key, followed)
            for key, followed in self._failing.items()
            if followed.is_asked and not followed.is_held_back
        ]
        for key, followed in answered:
            del self._failing[key]
            followed.pause_ms = _FIRST_PAUSE_MS
            self.failures.progressed(followed.partition.topic_partition)

    def _refused(self, error: ErrorCode) -> None:
        was_new = self._session_epoch == INITIAL_EPOCH
        self._session_id, self._session_epoch = NO_SESSION, INITIAL_EPOCH
        if error in _SESSION_ERRORS and not was_new:
            self._go_on()
            return
        log.warning("%s refuses our fetch: %s", self.leader.connection_string, error.name)
        self.failures.failed(None, error.name)
        self._later_from_idle()

    def _process(self, followed: _Followed, fetched: FetchedPartition) -> None:
        key, error_code, high_watermark, log_start_offset, diverging_epoch, records = fetched
        partition = followed.partition
        held = partition.log
        if partition.leader_epoch != followed.leader_epoch or held is None:
            return  # it has another leader now: the answer is out of date
        try:
            if error_code:
                self._handle_error(key, followed, ErrorCode(error_code))
            elif diverging_epoch is not None:
                leader_end = EpochEnd(diverging_epoch.epoch, diverging_epoch.end_offset)
                self._diverged(key, followed, leader_end, log_start_offset)
            else:
                moved = partition.follow(
                    records, high_watermark=high_watermark, log_start_offset=log_start_offset
                )
                lag = high_watermark - held.leo
                if lag > 0 or followed.lag:
                    followed.lag = max(0, lag)
                self.fetched_bytes += len(records)
                if moved:
                    self._to_name[key] = followed
                    if held.config.flush_messages != NEVER:
                        self._wait_for_disk(key, followed)
                if partition.follower_throttled:
                    self._throttle(key, followed, len(records), high_watermark)
        except StorageError as error:
            self._storage_failed(error)
            self._after_storage_error(key, followed, error)
        except (ApiError, UnexpectedOffsetError) as error:
            log.warning("%s: %s; asked again", partition.topic_partition, error)
            self.failures.failed(partition.topic_partition, str(error))
            self._hold_back(key, followed, self._options.backoff_ms)

    def _diverged(
        self, key: PartitionKey, followed: _Followed, leader_end: EpochEnd, leader_start: int
    ) -> None:
        if truncate_diverged(followed.partition, leader_end, leader_start=leader_start):
            self._to_name[key] = followed
        else:
            self._pause(key, followed, f"it diverges after {leader_end}")

    def _wait_for_disk(self, key: PartitionKey, followed: _Followed) -> None:
        """Delay fetches that would acknowledge records which have to be flushed first."""
        held = followed.partition.log
        if held is None or held.counted_end == held.leo:
            return

        def flushed(error: StorageError | None) -> None:
            if self._flushing.get(key) is not followed:
                return  # it is no longer followed, or in another leader epoch
            del self._flushing[key]
            if error is None:
                self._wait_for_disk(key, followed)  # the log may have been truncated meanwhile
            self._go_on()

        self._flushing[key] = followed
        held.flush_rest(flushed)

    def _throttle(
        self, key: PartitionKey, followed: _Followed, size_bytes: int, high_watermark: int
    ) -> None:
        """Pause a throttled, lagging partition when the replication quota is exceeded."""
        quota, held = self._quota, followed.partition.log
        if quota is None or held is None:
            return
        monotonic_ms = self._clock.monotonic_ms()
        quota.record(size_bytes, monotonic_ms)
        if held.leo < high_watermark and quota.is_exceeded(monotonic_ms):
            self._hold_back(key, followed, self._options.backoff_ms)

    # ------------------------------------------------------------------------- refusals

    def _handle_error(self, key: PartitionKey, followed: _Followed, error: ErrorCode) -> None:
        if error is ErrorCode.OFFSET_OUT_OF_RANGE:
            self._set_aside(key, followed)
            self._tasks.start(self._find_range(key, followed), f"range of {key[1]}")
        elif error is ErrorCode.FENCED_LEADER_EPOCH:
            # There is a newer leader epoch; it is fetched again after LeaderAndIsr.
            self.failures.failed(followed.partition.topic_partition, error.name)
            self._set_aside(key, followed)
        else:
            self._pause(key, followed, error.name)

    def _pause(self, key: PartitionKey, followed: _Followed, reason: str) -> None:
        """Fetch it again after a pause, which doubles while there is no progress."""
        self.failures.failed(followed.partition.topic_partition, reason)
        pause_ms = min(followed.pause_ms, self._options.backoff_ms)
        followed.pause_ms = 2 * pause_ms
        self._hold_back(key, followed, pause_ms)

    def _after_storage_error(
        self, key: PartitionKey, followed: _Followed, error: StorageError
    ) -> None:
        """Fetch again later if the log directory stays online: then the controller has no reason
        to send LeaderAndIsr again.
        """
        if error.left_nothing:
            self.failures.failed(followed.partition.topic_partition, str(error))
            self._hold_back(key, followed, self._options.backoff_ms)
        else:
            self.leave(followed.partition)

    def _hold_back(self, key: PartitionKey, followed: _Followed, pause_ms: int) -> None:
        """Fetch this partition again after a pause; the others continue."""
        self._set_aside(key, followed)

        def again() -> None:
            self._take_up(key, followed)

        self._loop.call_later(pause_ms / 1000, again)

    def _set_aside(self, key: PartitionKey, followed: _Followed) -> None:
        """Remove it from the session: otherwise the leader would answer its error at once."""
        followed.is_held_back = True
        followed.is_asked = False
        self._aside[key] = self._failing[key] = followed
        self._to_name.pop(key, None)
        self._to_remove[key] = None

    def _take_up(self, key: PartitionKey, followed: _Followed) -> None:
        """Fetch it again, if it is still followed in that leader epoch."""
        followed.is_held_back = False
        if self._followed.get(key) is followed:
            del self._aside[key]
            self._to_name[key] = followed
            self._to_remove.pop(key, None)
            self._go_on()

    async def _find_range(self, key: PartitionKey, followed: _Followed) -> None:
        """Our LEO is not in the leader's log: ask for its start and end, and truncate to them."""
        partition = followed.partition
        try:
            start = await self._leader_offset(partition, followed.leader_epoch, _EARLIEST)
            end = await self._leader_offset(partition, followed.leader_epoch, _LATEST)
            held = partition.log
            if held is None or partition.leader_epoch != followed.leader_epoch:
                return
            before = ends_of(held)
            verdict = out_of_range(leo=held.leo, leader_start=start, leader_end=end)
            if verdict.truncate_to is not None:
                truncate(partition, held, verdict.truncate_to, "ends there")
            elif verdict.restart_at is not None:
                restart(partition, held, verdict.restart_at)
        except StorageError as error:
            self._storage_failed(error)
            self._after_storage_error(key, followed, error)
        except (PeerError, ApiError) as error:
            log.warning("%s: %s; asked again", partition.topic_partition, error)
            self.failures.failed(partition.topic_partition, f"OFFSET_OUT_OF_RANGE, then {error}")
            self._hold_back(key, followed, self._options.backoff_ms)
        else:
            if ends_of(held) != before:
                self._take_up(key, followed)
            else:
                # Our log end is in the leader's log, and its epoch is not: as if the leader had
                # been elected in an epoch that is below that of our log.
                own = f"epoch {held.epochs.latest_epoch} at offset {held.leo}"
                reason = f"OFFSET_OUT_OF_RANGE (its log is {start} to {end}, and has no {own})"
                self._pause(key, followed, reason)

    async def _leader_offset(self, partition: Partition, leader_epoch: int, when: int) -> int:
        topic, index = partition.topic_partition
        asked = ListOffsetsPartition(
            partition_index=index, current_leader_epoch=leader_epoch, timestamp=when
        )
        response = await self._peer.ask(
            ListOffsetsRequest(
                replica_id=self._broker_id,
                topics=[ListOffsetsTopic(name=topic, partitions=[asked])],
            ),
            ListOffsetsResponse,
        )
        answer = response.topics[0].partitions[0]
        if answer.error_code:
            raise ApiError(ErrorCode(answer.error_code))
        return answer.offset
