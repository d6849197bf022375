"""The straight path of the usual produce request: one batch for one partition.

Small requests are most of what a broker handles, and most of their cost is in the steps between the
bytes and the log. So a request that `odradek.record.one_batch` can read is appended and answered in
one function here. Everything unusual, and everything that is refused before the append, is left to
`ProduceApi.handle`, which reads the frame again: `UsualProduce.handle` returns False, and has
changed nothing.

Versions:
    see `odradek.wire.messages.produce`
"""

from typing import Final, TypeAlias

from odradek.broker.apis.produce import ALL, ProduceApi, ProduceCall
from odradek.broker.replication.partition import Partition
from odradek.broker.serving.purgatory import DataRequest
from odradek.log.disk import StorageError
from odradek.log.log_config import NEVER
from odradek.log.slices import Appended
from odradek.model.acl import AclOperation, ResourceType
from odradek.model.clock import MonotonicMs
from odradek.model.errors import ApiError, ErrorCode
from odradek.model.names import INTERNAL_TOPICS
from odradek.net.connection import Connection
from odradek.record.batch import ATTRIBUTES_AT, BatchHeader
from odradek.record.crc32c import crc32c
from odradek.record.one_batch import CHECKSUM_BYTES_MAX, OneBatch, fastest_read
from odradek.wire.api_keys import ApiKey
from odradek.wire.header import RequestHeader
from odradek.wire.messages.produce import ProducePartitionResult, encode_appended

_NOT_LEADER: Final = ErrorCode.NOT_LEADER_OR_FOLLOWER
_WRITE: Final = AclOperation.WRITE
_TOPIC: Final = ResourceType.TOPIC
_PRODUCE: Final = int(ApiKey.PRODUCE)
_COUNT: Final = 12  # where the fields of a batch header have the number of records
# The first fields of a `ProducePartitionResult`.
AppendedFields: TypeAlias = tuple[int, int, int, int, int]
_new = tuple.__new__  # half of what the constructor of a NamedTuple costs


class UsualProduce:
    """Handles the usual requests of a `ProduceApi`."""

    def __init__(self, produce: ProduceApi) -> None:
        self._produce = produce
        self._find_led = produce.replicas.find_led
        self._monotonic_ms = produce.clock.monotonic_ms
        self._quotas = produce.quotas
        self._purgatory = produce.purgatory
        self._topics = produce.metrics.topics
        self._answered = produce.metrics.requests.answered
        self._answered_at_once = produce.metrics.requests.answered_at_once
        self._read = fastest_read()

    def handle(self, connection: Connection, frame: memoryview) -> bool:
        """Append and answer a usual request, now or when committed; False for any other."""
        usual = self._read(frame)
        if usual is None:
            return False
        (version, correlation_id, client_id, acks, timeout_ms,
         topic, index, batch, fields, has_keys) = usual  # fmt: skip
        partition = self._find_led(topic, index)
        if not isinstance(partition, Partition):
            return False
        leader, log_of, rules = partition.leader, partition.log, partition.rules
        size_bytes = len(batch)
        if (
            leader is None
            or log_of is None
            or (acks != 1 and (acks != ALL or leader.is_under_min_isr))
            or not rules.only_checks
            or (rules.compacted and not has_keys)
            or size_bytes > rules.message_bytes_max
            or log_of.config.flush_messages != NEVER
            or topic in INTERNAL_TOPICS
            or self._produce.is_closed
            or ((refused := connection.session.refusals.remembered) and (topic, index) in refused)
            or (size_bytes > CHECKSUM_BYTES_MAX and crc32c(batch[ATTRIBUTES_AT:]) != fields[4])
        ):
            return False
        session = connection.session
        session.begin(_PRODUCE, client_id)
        if not session.authorize(_WRITE, _TOPIC, topic):
            self._refuse(connection, usual, None)
            return True
        started_ms = connection.active_ms
        batch_header = _new(BatchHeader, fields)
        appended = None
        if leader.followers or partition.watches is not None:
            appended = self._pass_on(connection, usual, partition, batch_header)
        else:
            try:
                appended = partition.append(batch, batch_header, started_ms)
            except (ApiError, StorageError) as error:
                self._refuse(connection, usual, error)
        if appended is None:
            return True
        self._topics[topic].produced(fields[_COUNT], size_bytes)
        result = (
            index, 0, appended.first_offset, appended.log_append_time_ms, log_of.log_start_offset,
        )  # fmt: skip
        if acks == ALL and leader.high_watermark <= appended.last_offset:
            header = _new(RequestHeader, (_PRODUCE, version, correlation_id, client_id))
            call = UsualProduceCall(self, connection, header, (topic, size_bytes), result)
            partition.wait_for_commit(appended.last_offset + 1, call, 0)
            self._purgatory.wait(call, timeout_ms)
        else:
            response = self.response(
                connection, version, correlation_id, topic, size_bytes, result,
                started_ms, connection.begun_ms,
            )  # fmt: skip
            connection.respond((response,))
        return True

    def response(  # noqa: PLR0913, PLR0917 - plain arguments, on the data path
        self,
        connection: Connection,
        version: int,
        correlation_id: int,
        topic: str,
        size_bytes: int,
        result: AppendedFields,
        started_ms: MonotonicMs,
        begun_ms: MonotonicMs,
        waits_since_ms: int = 0,
    ) -> bytes:
        """Count a request that was carried out, and encode its response.

        The times are when it was received, begun, and began to wait (0: it did not).
        """
        throttle_ms = self._quotas.produced(connection.session, size_bytes)
        if throttle_ms:
            self._produce.throttle(connection, throttle_ms)
        monotonic_ms = self._monotonic_ms()
        if monotonic_ms == started_ms and not throttle_ms:
            self._answered_at_once(_PRODUCE, version)
        else:
            self._answered(
                _PRODUCE,
                version,
                monotonic_ms - started_ms,
                queue_ms=begun_ms - started_ms,
                remote_ms=monotonic_ms - waits_since_ms if waits_since_ms else 0,
                throttle_ms=throttle_ms,
            )
        return encode_appended(correlation_id, version, topic, result, throttle_ms)

    def _pass_on(
        self, connection: Connection, usual: OneBatch, partition: Partition, header: BatchHeader
    ) -> Appended | None:
        """Append a batch that followers or consumers wait for; None: the request is refused."""
        leader = partition.leader
        in_flight, batch = connection.in_flight, usual[7]
        more_follow = connection.session.pipelining.more_follow(len(batch), in_flight)
        # The followers get the batch before anything else is done. If more has arrived, or a
        # producer with several requests in flight may send more, they get all of it in the next
        # turn, or later if more is about to follow.
        gathers = not in_flight and not connection.has_more and self._purgatory.gather()
        try:
            appended = partition.append(
                batch,
                header,
                monotonic_ms=connection.active_ms,
                more_follow=more_follow,
            )
        except (ApiError, StorageError) as error:
            self._refuse(connection, usual, error)
            return None
        finally:
            if gathers:
                self._purgatory.look()
        if partition.leader is not leader:  # reading the batch for a follower has failed
            self._refuse(connection, usual, ApiError(partition.error or _NOT_LEADER))
            return None
        return appended

    def failed(self, waiting: "UsualProduceCall", error: ErrorCode) -> tuple[bytes]:
        """The response of an appended request of which it is not known whether it is committed."""
        call = ProduceCall(self._produce, waiting.connection, waiting.header)
        call.started_ms, call.begun_ms = waiting.started_ms, waiting.begun_ms
        call.waits_since_ms = waiting.waits_since_ms
        topic, call.size_bytes = waiting.batch
        call.failed = True
        call.topics.append((topic, [ProducePartitionResult(waiting.result[0], error)]))
        return self._produce.answer(call)

    def finish(self, waiting: "UsualProduceCall") -> None:
        """It is answered, or its client has disconnected."""
        self._purgatory.finish(waiting)

    def _call(self, connection: Connection, usual: OneBatch) -> ProduceCall:
        header = RequestHeader(_PRODUCE, *usual[:3])
        return ProduceCall(self._produce, connection, header)

    def _refuse(
        self, connection: Connection, usual: OneBatch, error: ApiError | StorageError | None
    ) -> None:
        """Answer a request that was not appended. None: the client may not write to the topic."""
        produce, topic, index = self._produce, usual[5], usual[6]
        call = self._call(connection, usual)
        call.failed = True
        if error is None:
            result = ProducePartitionResult(index, ErrorCode.TOPIC_AUTHORIZATION_FAILED)
        elif isinstance(error, StorageError):
            produce.replicas.storage_failed(error)
            result = ProducePartitionResult(index, ErrorCode.KAFKA_STORAGE_ERROR)
        else:
            result = produce.refuse(call, topic, index, error)
        call.topics.append((topic, [result]))
        produce.note_refusals(call)
        connection.respond(produce.answer(call))


class UsualProduceCall(DataRequest):
    """A usual request that is appended, and waits until all in-sync replicas have the batch."""

    __slots__ = ("_api", "_slot", "batch", "result")
    operation = "Produce"

    def __init__(
        self,
        api: UsualProduce,
        connection: Connection,
        header: RequestHeader,
        batch: tuple[str, int],
        result: AppendedFields,
    ) -> None:
        """`batch`: its topic and its size. Its bytes are the connection's, and may be gone."""
        super().__init__(connection, header)
        self.batch = batch
        self.result = result
        self._api = api
        self._slot = connection.later(self._abandoned)

    def committed(self, slot: int) -> Connection | None:  # noqa: ARG002 - it has one partition
        """The high watermark has passed its batch."""
        if self.done:
            return None
        header = self.header
        self._api.finish(self)
        response = self._api.response(
            self.connection, header.api_version, header.correlation_id, *self.batch, self.result,
            self.started_ms, self.begun_ms, self.waits_since_ms,
        )  # fmt: skip
        self._slot.put((response,))
        return self.connection

    def failed_at(self, slot: int, error: ErrorCode) -> None:  # noqa: ARG002 - as above
        """It cannot be known any more here whether its batch is committed."""
        if not self.done:
            self._api.finish(self)
            self._slot.put(self._api.failed(self, error))
            self.connection.release()

    def expire(self) -> None:
        self.failed_at(0, ErrorCode.REQUEST_TIMED_OUT)

    def _abandoned(self) -> None:
        """The client has disconnected."""
        if not self.done:
            self._api.finish(self)
