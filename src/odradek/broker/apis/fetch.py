"""Fetch (1), versions 0-17: read record batches, as a consumer or as a follower.

Behaviour:
    * Answered when `min_bytes` are readable, when something has to be answered at once (an error, a
      diverging epoch), or after `max_wait_ms`. A follower gets a newer HW within milliseconds, or
      at once if consumers may read from it.
    * The first partition with data gives at least one batch, also if a limit is 0; after it the
      response stays within `max_bytes`.
    * Consumers read up to the high watermark, or up to the last stable offset with the list of
      aborted transactions; followers up to the end of the log.
    * A follower's fetch acknowledges everything below its offset. Only clients with CLUSTER_ACTION
      may fetch as followers, and only with the id of a registered broker and with its broker epoch,
      if they send one (CVE-2018-1288).
    * Records beyond the first MiB are read from the log while the response is sent. A fetch
      behind other requests of its connection is handled when these are answered. One that waits is
      answered when another API's request follows (not with `odradek.metadata.hold.ms=0`).
    * A consumer's refusal names the new leader (v12+) and its address (v16+), if known (KIP-951).
    * Incremental sessions: see `odradek.replica.fetch_session`. An incremental response names
      only partitions with records or changes; a full one names all.
    * v0-9: see `odradek.broker.apis.old_fetch`.

Versions:
    see `odradek.wire.messages.fetch`
"""

import random
from collections.abc import Callable, Coroutine, Mapping, Sequence
from typing import Any, Final

from odradek.broker.cluster.metadata_cache import MetadataCache
from odradek.broker.replication.current_leaders import CurrentLeaders
from odradek.broker.replication.fetch_errors import FetchErrors
from odradek.broker.replication.fetching import (
    Fetcher,
    Nearest,
    Reading,
    has_what_it_says,
    requested,
)
from odradek.broker.replication.partition import Partition
from odradek.broker.replication.replica_manager import ReplicaManager
from odradek.broker.serving.purgatory import DataRequest, Purgatory
from odradek.broker.serving.quotas import Quotas
from odradek.broker.serving.session import Session
from odradek.broker.serving.worker import Worker
from odradek.config.broker import BrokerConfig
from odradek.log.disk import StorageError
from odradek.log.slices import ColdRead
from odradek.model.acl import CLUSTER_NAME, AclOperation, ResourceType
from odradek.model.clock import MonotonicMs
from odradek.model.errors import ErrorCode
from odradek.net.connection import Connection, ResponseSlot
from odradek.net.turns import Turns
from odradek.obs.metrics import FETCH_CONSUMER, FETCH_FOLLOWER, BrokerMetrics
from odradek.replica.fetch_session import (
    FINAL_EPOCH,
    INITIAL_EPOCH,
    NO_SESSION,
    FetchSessionCache,
    PartitionKey,
    RequestedPartition,
    SessionPartition,
)
from odradek.replica.leader import LeaderReplica
from odradek.replica.throttle import ReplicationQuota
from odradek.replica.transitions import is_registered
from odradek.wire.codec import DATA_ELEMENTS_MAX, decoder, sliced_decoder
from odradek.wire.header import RequestHeader
from odradek.wire.messages.fetch import (
    FetchRequest,
    PartitionData,
    encode_fetch_response,
    follower_of,
)
from odradek.wire.schema import Buffer

READ_COMMITTED: Final = 1
BY_TOPIC_ID_SINCE: Final = 13
RACK_SINCE: Final = 11
_DEBUGGER: Final = -2
LARGE_BYTES: Final = 16 << 10  # a request above this size is decoded in slices


class FetchApi:
    """Handles Fetch; has the fetch sessions of one broker."""

    def __init__(  # noqa: PLR0913
        self,
        replicas: ReplicaManager,
        purgatory: Purgatory,
        *,
        quotas: Quotas,
        metrics: BrokerMetrics,
        randomness: random.Random,
        monotonic_ms: Callable[[], MonotonicMs],
        throttle: Callable[[Connection, int], None],
        metadata: MetadataCache,
        broker_epochs: Callable[[], Mapping[int, int]],
        config: BrokerConfig,
        nearest: Callable[[LeaderReplica, int, str], int | None] | None = None,
        throttle_replicas: ReplicationQuota | None = None,
        turns: Turns,
        worker: Worker,
        old_calls: "Mapping[int, type[FetchCall]]",
    ) -> None:
        """`nearest` selects replicas by rack (KIP-392); None: consumers read from the leader.

        `broker_epochs` are those of the registered brokers, as far as they have been read.
        """
        self.nearest = nearest
        self._throttle_replicas = throttle_replicas
        self.sessions = FetchSessionCache(slots=config.max_incremental_fetch_session_cache_slots)
        self.fetch_bytes_max = config.fetch_max_bytes
        self.replicas = replicas
        self.purgatory = purgatory
        self.quotas = quotas
        self.metrics = metrics
        self._errors = FetchErrors(metrics.requests, replicas)
        self._random = randomness
        self.monotonic_ms = monotonic_ms
        self._throttle = throttle
        self._metadata = metadata
        self._broker_epochs = broker_epochs
        self._turns = turns
        self.worker = worker
        self._old_calls = old_calls  # by version; others are a FetchCall
        self.answers_early = metadata.expected.hold_ms > 0
        self._leaders = CurrentLeaders(replicas, metadata, config.broker_id)

    def handle(
        self, connection: Connection, header: RequestHeader, position: int, frame: memoryview
    ) -> Coroutine[Any, Any, None] | None:
        """Answer now, or wait in the purgatory. Returns the rest of a large request."""
        if connection.in_flight:
            connection.put_back(frame)  # its response would wait in memory for theirs
            return None
        if len(frame) > LARGE_BYTES:
            return self._in_slices(connection, header, position, frame, connection.later())
        decode = decoder(FetchRequest, header.api_version)
        request, _ = decode(frame, position, DATA_ELEMENTS_MAX)
        follower_id = follower_of(request)
        session: Session = connection.session
        if follower_id >= 0 and not session.authorize(
            AclOperation.CLUSTER_ACTION, ResourceType.CLUSTER, CLUSTER_NAME
        ):
            connection.respond(refused_follower(header, request))
            return None
        if follower_id >= 0:
            self.quotas.exempt(session)
        fetcher = self._fetcher(request, header.api_version, follower_id)
        if isinstance(fetcher, ErrorCode):
            connection.respond(_refused(header, fetcher))
            return None
        call = self._old_calls.get(header.api_version, FetchCall)
        call(self, connection, header, request, fetcher).run()
        return None

    async def _in_slices(
        self,
        connection: Connection,
        header: RequestHeader,
        position: int,
        frame: memoryview,
        slot: ResponseSlot,
    ) -> None:
        """Begin a request of many partitions, in turns with other work.

        It reads without interruption, so that no partition becomes ready unnoticed meanwhile.
        """
        turns = self._turns
        decode = sliced_decoder(FetchRequest, header.api_version)
        request, _ = await turns.run(decode(frame, position, DATA_ELEMENTS_MAX))
        follower_id = follower_of(request)
        if follower_id >= 0 and not connection.session.authorize(
            AclOperation.CLUSTER_ACTION, ResourceType.CLUSTER, CLUSTER_NAME
        ):
            slot.fill(refused_follower(header, request))
            return
        await turns.next()
        fetcher = self._fetcher(request, header.api_version, follower_id)
        if isinstance(fetcher, ErrorCode):
            slot.fill(_refused(header, fetcher))
            return
        call = self._old_calls.get(header.api_version, FetchCall)(
            self, connection, header, request, fetcher
        )
        call.take(slot)
        await turns.next()
        if not call.done:
            call.run()

    # ---------------------------------------------------------------------- sessions

    def _fetcher(
        self, request: FetchRequest, api_version: int, follower_id: int
    ) -> Fetcher | ErrorCode:
        """The session that this request continues, or a new one."""
        by_topic_id = api_version >= BY_TOPIC_ID_SINCE
        monotonic_ms = self.monotonic_ms()
        if request.session_epoch not in (INITIAL_EPOCH, FINAL_EPOCH):
            resumed = self.sessions.resume(
                request.session_id,
                request.session_epoch,
                by_topic_id=by_topic_id,
                monotonic_ms=monotonic_ms,
            )
            if isinstance(resumed, ErrorCode):
                return resumed
            assert isinstance(resumed, Fetcher)
            if resumed.follower_id != follower_id:
                return ErrorCode.FETCH_SESSION_ID_NOT_FOUND  # the session of another follower
            if resumed.waiting is not None and not resumed.waiting.done:
                # The fetcher has given up the earlier request, and continues at other offsets.
                resumed.waiting.expire()
            self._wants(resumed, request, follower_id, monotonic_ms)
            if not 0 < len(resumed.partitions) <= resumed.partitions_max:
                # As in Kafka an empty session is closed; so is one that has become too large. The
                # fetcher then asks for another.
                self.sessions.close(resumed.id)
                resumed.id = NO_SESSION
            return resumed
        if request.session_id != NO_SESSION:
            self._end(self.sessions.close(request.session_id))
        fetcher = Fetcher(
            self._find,
            self.purgatory,
            by_topic_id=by_topic_id,
            follower_id=follower_id,
            monotonic_ms=monotonic_ms,
        )
        self._wants(fetcher, request, follower_id, monotonic_ms)
        if request.session_epoch == INITIAL_EPOCH and fetcher.partitions:
            drawn = self._random.randrange(1, 1 << 31)
            self._end(self.sessions.admit(fetcher, session_id=drawn, monotonic_ms=monotonic_ms))
        return fetcher

    def _wants(
        self, fetcher: Fetcher, request: FetchRequest, follower_id: int, monotonic_ms: MonotonicMs
    ) -> None:
        if request.forgotten_topics_data:
            by_id = fetcher.by_topic_id
            fetcher.leave(
                fetcher.drop(
                    [
                        (topic.topic_id if by_id else topic.topic, index)
                        for topic in request.forgotten_topics_data
                        for index in topic.partitions
                    ]
                )
            )
        named = requested(request, by_topic_id=fetcher.by_topic_id)
        if named:
            fetcher.update(named)
        if follower_id >= 0:
            state = request.replica_state
            epoch = state.replica_epoch if state is not None else -1
            fetcher.is_registered = self.is_registered(follower_id, epoch)
            if fetcher.is_registered:
                self._acknowledged(fetcher, named, epoch, monotonic_ms)

    def is_registered(self, follower_id: int, broker_epoch: int) -> bool:
        """Whether a fetch with this replica id can be that of a broker (CVE-2018-1288)."""
        return is_registered(
            follower_id,
            broker_epoch,
            announced=self._metadata.brokers,
            registered=self._broker_epochs(),
        )

    def _acknowledged(
        self,
        fetcher: Fetcher,
        named: Sequence[RequestedPartition],
        follower_epoch: int,
        monotonic_ms: MonotonicMs,
    ) -> None:
        """A follower has everything below the offsets of its fetch.

        A follower that has registered again and continues its session acknowledges all partitions:
        it is the same process and has lost nothing. In idle partitions it names none of them
        again, and could not join the ISR with the former broker epoch (KIP-903).
        """
        keys = [item.key for item in named]
        if follower_epoch != fetcher.follower_epoch:
            fetcher.follower_epoch, keys = follower_epoch, list(fetcher.partitions)
        for key in keys:
            self.acknowledge(fetcher, fetcher.partitions[key], monotonic_ms)

    def acknowledge(
        self, fetcher: Fetcher, wanted: SessionPartition, monotonic_ms: MonotonicMs
    ) -> None:
        """A follower has everything below the offset of its fetch, if its log is the leader's."""
        partition = fetcher.partition_of(wanted)
        if (
            isinstance(partition, Partition)
            and partition.check_epoch(wanted.current_leader_epoch) is ErrorCode.NONE
            and has_what_it_says(partition, wanted)
        ):
            self.replicas.follower_fetched(
                partition,
                fetcher.follower_id,
                wanted.fetch_offset,
                monotonic_ms,
                fetcher.follower_epoch,
                wanted.follower_log_start_offset,
            )
            fetcher.acknowledged(wanted, partition)

    def _find(self, key: PartitionKey, follower_id: int) -> Partition | ErrorCode:
        del follower_id
        topic, index = key
        if isinstance(topic, str):
            return self.replicas.find(topic, index)
        name = self.replicas.topic_name(topic)
        if name is None:
            known = self._metadata.topic_by_id(topic)
            return ErrorCode.NOT_LEADER_OR_FOLLOWER if known else ErrorCode.UNKNOWN_TOPIC_ID
        return self.replicas.find(name, index)

    def _end(self, session: object) -> None:
        if isinstance(session, Fetcher):
            session.leave_all()

    # ----------------------------------------------------------------------- answers

    def answer(self, call: "FetchCall", reading: Reading) -> list[bytes | bytearray | memoryview]:
        """Encode a response and count it."""
        connection, header = call.connection, call.header
        is_follower = call.fetcher.follower_id >= 0
        if not is_follower:
            throttle_ms = self.quotas.fetched(connection.session, reading.bytes)
            if throttle_ms:
                return self._throttled(call, reading, throttle_ms)
        topics: dict[bytes | str, list[PartitionData]] = {}
        failed, errors, session = False, self._errors, connection.session
        for wanted, answer in reading.sent():
            topics.setdefault(wanted.key[0], []).append(answer)
            if answer.error_code:
                failed = not is_follower
                errors.count(session, wanted, answer.error_code, is_follower=is_follower)
            if answer.records and is_follower:
                self._count_replicated(wanted, len(answer.records))
            if answer.records and not is_follower and isinstance(wanted.target, Partition):
                name = wanted.target.topic_partition.topic
                self.metrics.topics[name].fetched(len(answer.records))
        self.metrics.fetched(reading.bytes, follower=is_follower)
        self._count(call)
        return encode_fetch_response(
            header.correlation_id,
            header.api_version,
            topics=list(topics.items()),
            session_id=call.fetcher.id,
            node_endpoints=self._leaders.name_in_fetch(call, topics.items()) if failed else (),
        )

    def _throttled(
        self, call: "FetchCall", reading: Reading, throttle_ms: int
    ) -> list[bytes | bytearray | memoryview]:
        """Answer nothing but the throttle time (KIP-219); the partitions stay ready.

        The client begins again if this is the first answer of a session: the session is closed.
        """
        reading.close()
        header, fetcher = call.header, call.fetcher
        if call.request.session_epoch == INITIAL_EPOCH and fetcher.id != NO_SESSION:
            self.sessions.close(fetcher.id)
            fetcher.id = NO_SESSION
        self._throttle(call.connection, throttle_ms)
        self._count(call, throttle_ms)
        return encode_fetch_response(
            header.correlation_id,
            header.api_version,
            topics=[],
            throttle_time_ms=throttle_ms,
            session_id=fetcher.id,
        )

    def _count(self, call: "FetchCall", throttle_ms: int = 0) -> None:
        kind = FETCH_FOLLOWER if call.fetcher.follower_id >= 0 else FETCH_CONSUMER
        call.count(self.metrics.requests, kind, self.monotonic_ms(), throttle_ms)

    def _count_replicated(self, wanted: SessionPartition, count_bytes: int) -> None:
        quota, partition = self._throttle_replicas, wanted.target
        if quota is not None and isinstance(partition, Partition) and partition.leader_throttled:
            quota.record(count_bytes, self.monotonic_ms())

    def waits(self, partition: Partition, follower_id: int) -> bool:
        """Whether a throttled follower that is not in sync has exceeded the leader's quota."""
        quota, leader = self._throttle_replicas, partition.leader
        return (
            quota is not None
            and partition.leader_throttled
            and leader is not None
            and follower_id not in leader.isr.committed
            and quota.is_exceeded(self.monotonic_ms())
        )

    def storage_failed(self, error: StorageError) -> None:
        """A read failed: its log directory goes offline, which answers the waiting requests."""
        self.replicas.storage_failed(error)


class FetchCall(DataRequest):
    """One fetch request, answered now or later."""

    __slots__ = (
        "_allowed", "_api", "_bytes_max", "_bytes_min", "_slot", "_warmed", "fetcher", "request",
    )  # fmt: skip
    operation = "Fetch"
    reading_class = Reading

    def __init__(
        self,
        api: FetchApi,
        connection: Connection,
        header: RequestHeader,
        request: FetchRequest,
        fetcher: Fetcher,
    ) -> None:
        super().__init__(connection, header)
        self.request = request
        self.fetcher = fetcher
        self._api = api
        self._slot: ResponseSlot | None = None
        self._allowed: dict[str, bool] = {}
        self._warmed = False
        self._bytes_max = min(request.max_bytes, api.fetch_bytes_max)
        if fetcher.follower_id < 0:
            allowed = api.quotas.fetch_bytes_max(connection.session)
            self._bytes_max = min(self._bytes_max, allowed)
        self._bytes_min = min(request.min_bytes, max(self._bytes_max, 1))  # 0 waits for a batch
        self.patient = api.nearest is None

    def run(self) -> None:
        """Read for the first time: answer, or wait."""
        reading = self._read()
        if reading.cold is not None or not self._is_enough(reading):
            reading.close()
            self._wait(reading)
        elif self._slot is not None:
            self._finish(reading)
        else:
            self.connection.respond(self._answer(reading))
            self._over()

    def take(self, slot: ResponseSlot) -> None:
        """Use the response slot that was reserved before the request was decoded."""
        self._slot = slot
        slot.lost = self._abandoned

    def look_again(self) -> None:
        """Read again: a partition is ready."""
        reading = self._read()
        if reading.cold is None and self._is_enough(reading):
            self._finish(reading)
            return
        reading.close()
        if reading.cold is not None:
            self._warm(reading.cold)
        else:
            self._sleep(reading)

    def expire(self) -> None:
        """The time is up: answer with what is in memory, or with nothing."""
        self._finish(self._read())

    # ------------------------------------------------------------------------ inside

    def _read(self) -> Reading:
        reading = self.reading_class(
            self.fetcher,
            bytes_max=self._bytes_max,
            read_committed=self.request.isolation_level == READ_COMMITTED,
            may_read=self._may_read,
            storage_failed=self._api.storage_failed,
            wait=self._warmed,
            nearest=self._nearest(),
            may_follow=self._may_leave_leader,
            waits=self._waits if self.fetcher.follower_id >= 0 else None,
            straight=self.connection.sends_files,
        )
        reading.read_ready()
        return reading

    def _waits(self, partition: Partition) -> bool:
        return self._api.waits(partition, self.fetcher.follower_id)

    @property
    def _may_leave_leader(self) -> bool:
        """Whether this is a consumer that may read from a follower.

        A consumer with the replica id -2 always may (Kafka's `DEBUGGING_CONSUMER_ID`).
        """
        if self.header.api_version < RACK_SINCE:
            return False
        follower_id = self.fetcher.follower_id
        return follower_id == _DEBUGGER or (self._api.nearest is not None and follower_id < 0)

    def _nearest(self) -> Nearest | None:
        nearest, rack = self._api.nearest, self.request.rack_id
        if nearest is None or not rack or not self._may_leave_leader:
            return None
        return lambda leader, offset: nearest(leader, offset, rack)

    def _may_read(self, topic: str) -> bool:
        allowed = self._allowed.get(topic)
        if allowed is None:
            allowed = self._allowed[topic] = self.fetcher.follower_id >= 0 or bool(
                self.connection.session.authorize(AclOperation.READ, ResourceType.TOPIC, topic)
            )
        return allowed

    def _is_enough(self, reading: Reading) -> bool:
        return (
            reading.urgent
            or (reading.new_high_watermark and not self.patient)
            or reading.bytes >= self._bytes_min
            or self.request.max_wait_ms <= 0
            or not self.fetcher.partitions
        )

    def _sleep(self, reading: Reading) -> None:
        self.fetcher.sleep(self, max(self._bytes_min - reading.bytes, 1))
        if reading.new_high_watermark:
            self.fetcher.wake_soon(self)

    def _wait(self, reading: Reading) -> None:
        if self._slot is None:
            self._slot = self.connection.later(self._abandoned)
        if self._api.answers_early:
            self._slot.hurry = self.expire
        self._sleep(reading)
        self._api.purgatory.wait(self, max(self.request.max_wait_ms, 0))
        if reading.cold is not None:
            self._warm(reading.cold)

    def _warm(self, cold: ColdRead) -> None:
        """Load data into memory, then read again."""

        def loaded(error: StorageError | None) -> None:
            if error is not None:
                self._api.storage_failed(error)
            if not self.done:
                self._warmed = True
                self._api.purgatory.wake(self)

        cold.load(loaded)

    def _abandoned(self) -> None:
        if not self.done:
            self._finish(None)

    def _finish(self, reading: Reading | None) -> None:
        self.finish_with(self._answer(reading) if reading is not None else [])

    def finish_with(self, chunks: list[bytes | bytearray | memoryview]) -> None:
        """Send the response of a request that waited."""
        self._api.purgatory.finish(self)
        assert self._slot is not None
        slot, self._slot = self._slot, None
        slot.fill(chunks)
        self._over()

    def _answer(self, reading: Reading) -> list[bytes | bytearray | memoryview]:
        if self.request.session_epoch in (INITIAL_EPOCH, FINAL_EPOCH):
            reading.describe_rest()
        return self._api.answer(self, reading)

    def _over(self) -> None:
        if self.fetcher.waiting is self:
            self.fetcher.waiting = None
        if self.fetcher.id == NO_SESSION:
            self.fetcher.leave_all()


def refused_follower(header: RequestHeader, request: FetchRequest) -> list[Buffer]:
    """The answer to a follower's fetch without CLUSTER_ACTION: an error for each partition."""
    by_id = header.api_version >= BY_TOPIC_ID_SINCE
    topics = [
        (
            topic.topic_id if by_id else topic.topic,
            [
                PartitionData(
                    partition_index=asked.partition,
                    error_code=ErrorCode.TOPIC_AUTHORIZATION_FAILED,
                    aborted_transactions=None,
                    high_watermark=-1,
                )
                for asked in topic.partitions
            ],
        )
        for topic in request.topics
    ]
    return encode_fetch_response(header.correlation_id, header.api_version, topics=topics)


def _refused(header: RequestHeader, error: ErrorCode) -> list[Buffer]:
    return encode_fetch_response(
        header.correlation_id, header.api_version, topics=[], error_code=error
    )
