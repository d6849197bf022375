"""The straight path of a follower's usual fetch: it continues a session, and nothing is wrong.

With replicas, two fetches of followers belong to every produce request, and most of what they cost
is in the steps between their bytes and the log, as for `odradek.broker.apis.usual_produce`. So a
frame that `read_usual_fetch` can read acknowledges and reads here in a few functions. Everything
unusual is left to `FetchApi`: `UsualFetchApi.handle` returns False and has changed nothing, and
`FollowerCall` reads in the general way.

Versions:
    see `odradek.wire.messages.fetch`
"""

from typing import Final, TypeAlias

from odradek.broker.apis.fetch import LARGE_BYTES, FetchApi, FetchCall, refused_follower
from odradek.broker.replication.fetching import LATE_BYTES, Fetcher
from odradek.broker.replication.partition import Partition
from odradek.log.disk import StorageError
from odradek.log.segment import Segment
from odradek.model.acl import CLUSTER_NAME, AclOperation, ResourceType
from odradek.model.clock import MonotonicMs
from odradek.net.connection import Connection
from odradek.obs.metrics import FETCH_FOLLOWER
from odradek.replica.fetch_session import SessionPartition
from odradek.wire.api_keys import ApiKey
from odradek.wire.codec import DATA_ELEMENTS_MAX, decoder
from odradek.wire.header import RequestHeader, decode_request_header
from odradek.wire.messages.fetch import FOLLOWER_VERSION, FetchRequest
from odradek.wire.usual_fetch import (
    UsualAnswer,
    UsualFetch,
    encode_usual_response,
    read_usual_fetch,
)

_CLUSTER_ACTION: Final = AclOperation.CLUSTER_ACTION
_CLUSTER: Final = ResourceType.CLUSTER
_FETCH: Final = int(ApiKey.FETCH)
_new = tuple.__new__  # half of what the constructor of a NamedTuple costs


class UsualFetchApi:
    """Handles the usual fetches of the followers of a `FetchApi`."""

    def __init__(self, fetch: FetchApi) -> None:
        self._fetch = fetch

    def handle(self, connection: Connection, frame: memoryview) -> bool:
        """Acknowledge, and answer now or when there are records; False: it is not a usual fetch."""
        if len(frame) > LARGE_BYTES or connection.in_flight:
            return False
        usual = read_usual_fetch(frame)
        if usual is None:
            return False
        fetch = self._fetch
        fetcher = fetch.sessions.find(usual.session_id)
        if (
            not isinstance(fetcher, Fetcher)
            or fetcher.epoch != usual.session_epoch
            or not fetcher.by_topic_id
            or fetcher.follower_id != usual.replica_id
            or fetcher.follower_epoch != usual.replica_epoch
            or fetcher.waiting is not None
            or not fetch.is_registered(usual.replica_id, usual.replica_epoch)
        ):
            return False
        known = fetcher.partitions
        named: list[tuple[SessionPartition, Partition]] = []
        for each in usual.partitions:
            wanted = known.get(each[:2])
            if wanted is None or not isinstance(wanted.target, Partition):
                return False
            named.append((wanted, wanted.target))
        session = connection.session
        session.begin(_FETCH, usual.client_id)
        if not session.authorize(_CLUSTER_ACTION, _CLUSTER, CLUSTER_NAME):
            _refuse(connection, frame)  # here: asked again, the audit log would have it twice
            return True
        fetch.quotas.exempt(session)
        monotonic_ms = connection.begun_ms
        fetch.sessions.resume(
            usual.session_id, usual.session_epoch, by_topic_id=True, monotonic_ms=monotonic_ms
        )
        fetcher.is_registered = True
        for (wanted, partition), each in zip(named, usual.partitions, strict=True):
            (
                _, _, wanted.current_leader_epoch, wanted.fetch_offset, wanted.last_fetched_epoch,
                wanted.follower_log_start_offset, wanted.max_bytes,
            ) = each  # fmt: skip
            # As `FetchSession.update` does: behind the partitions that are ready already.
            fetcher.ready.pop(wanted.key, None)
            fetcher.ready[wanted.key] = wanted
            self._acknowledge(fetcher, wanted, partition, monotonic_ms)
        header = _new(
            RequestHeader, (_FETCH, FOLLOWER_VERSION, usual.correlation_id, usual.client_id)
        )
        FollowerCall(fetch, connection, header, _request_of(fetcher, usual), fetcher).run()
        return True

    def _acknowledge(
        self,
        fetcher: Fetcher,
        wanted: SessionPartition,
        partition: Partition,
        monotonic_ms: MonotonicMs,
    ) -> None:
        """`FetchApi.acknowledge`, if the follower's log ends in the latest leader epoch."""
        log, fetch = partition.log, self._fetch
        if (
            log is None
            or partition.is_removed
            or wanted.current_leader_epoch != partition.leader_epoch
            or wanted.last_fetched_epoch != log.epochs.latest_epoch
            or not log.log_start_offset <= wanted.fetch_offset <= log.leo
        ):
            fetch.acknowledge(fetcher, wanted, monotonic_ms)
            return
        isr = partition.follower_fetched(
            fetcher.follower_id,
            wanted.fetch_offset,
            monotonic_ms,
            fetcher.follower_epoch,
            wanted.follower_log_start_offset,
        )
        if isr is not None:
            fetch.replicas.ask_for_isr(partition, isr)
        fetcher.acknowledged(wanted, partition)


def _refuse(connection: Connection, frame: memoryview) -> None:
    """Answer a client that may not fetch as a follower."""
    header, position = decode_request_header(frame)
    request, _ = decoder(FetchRequest, FOLLOWER_VERSION)(frame, position, DATA_ELEMENTS_MAX)
    connection.respond(refused_follower(header, request))


def _request_of(fetcher: Fetcher, usual: UsualFetch) -> FetchRequest:
    """What the general path reads of a request; made once, as long as the limits are the same."""
    known = fetcher.usual_request
    if known is None or (known.max_wait_ms, known.min_bytes, known.max_bytes) != usual.limits:
        wait_ms, min_bytes, max_bytes = usual.limits
        known = fetcher.usual_request = FetchRequest(
            max_wait_ms=wait_ms, min_bytes=min_bytes, max_bytes=max_bytes, session_epoch=1
        )
    return known


# A ready partition, its answer, and where its records are; they are read when it is sent.
_Answered: TypeAlias = tuple[SessionPartition, UsualAnswer, Segment | None, int]
# What one pass over the ready partitions has found: the answers, the size of all records, and
# whether an answer without records has a newer HW.
_Found: TypeAlias = tuple[list[_Answered], int, bool]
_NOTHING: Final[_Found] = ([], 0, False)


class FollowerCall(FetchCall):
    """A usual fetch of a follower, answered now or later."""

    __slots__ = ()

    def run(self) -> None:
        found = self._find() if self.fetcher.ready else _NOTHING
        if found is not None and not self._suffices(found):
            slot = self._slot = self.connection.later(self._abandoned)
            api = self._api
            if api.answers_early:
                slot.hurry = self.expire
            self._sleep_on(found)
            api.purgatory.wait(self, self.request.max_wait_ms)
            return
        frame = self._encoded(found)
        if frame is None:
            super().run()
        else:
            self.connection.respond([frame])
            self._over()

    def look_again(self) -> None:
        found = self._find()
        if found is not None and not self._suffices(found):
            self._sleep_on(found)
            return
        frame = self._encoded(found)
        if frame is None:
            super().look_again()
        else:
            self.finish_with([frame])

    def expire(self) -> None:
        frame = self._encoded(self._find())
        if frame is None:
            super().expire()
        else:
            self.finish_with([frame])

    def _suffices(self, found: _Found) -> bool:
        _, size_bytes, has_moved = found
        return (
            size_bytes >= self._bytes_min
            or (has_moved and not self.patient)
            or self.request.max_wait_ms <= 0
            or not self.fetcher.partitions  # its session was closed meanwhile
        )

    def _sleep_on(self, found: _Found) -> None:
        _, size_bytes, has_moved = found
        self.fetcher.sleep(self, self._bytes_min - size_bytes)
        if has_moved:
            self.fetcher.wake_soon(self)

    def _find(self) -> _Found | None:
        """What to answer of the ready partitions; None if the general way has to find it."""
        fetcher = self.fetcher
        follower_id = fetcher.follower_id
        found: list[_Answered] = []
        unchanged: list[SessionPartition] = []
        size_bytes, has_moved = 0, False
        for wanted in fetcher.ready.values():
            partition = wanted.target
            left_bytes = self._bytes_max - size_bytes
            if not isinstance(partition, Partition) or left_bytes <= 0:
                return None
            log, leader = partition.log, partition.leader
            if (
                log is None
                or leader is None
                or partition.error
                or partition.is_removed
                or partition.leader_throttled
                or follower_id not in leader.followers
                or wanted.current_leader_epoch != partition.leader_epoch
                or wanted.last_fetched_epoch != log.epochs.latest_epoch
                or wanted.sent_high_watermark < 0
                or wanted.sent_log_start_offset != log.log_start_offset
            ):
                return None
            segment, position, size = None, 0, 0
            if wanted.fetch_offset != log.leo:
                # Whole batches: a part of one costs what a batch costs, and is sent again.
                batches = log.recent(wanted.fetch_offset, min(wanted.max_bytes, left_bytes))
                if batches is None:
                    return None
                segment, position, size = batches
                size_bytes += size
                if size_bytes > LATE_BYTES:  # too much to hold in memory
                    return None
            elif wanted.sent_high_watermark == log.high_watermark:
                unchanged.append(wanted)
                continue
            else:
                has_moved = True
            state = (log.high_watermark, log.last_stable_offset, log.log_start_offset)
            found.append((wanted, (wanted.key, state, size), segment, position))
        for wanted in unchanged:
            fetcher.answered(wanted)
        return found, size_bytes, has_moved

    def _encoded(self, found: _Found | None) -> bytearray | None:
        """The frame of the response; it is counted, and the session notes what it contains.

        None: the general way has to answer, because `_find` has left it to that, or because
        records cannot be read from the page cache.
        """
        if found is None:
            return None
        fetcher, api = self.fetcher, self._api
        answers, size_bytes, _ = found
        frame, positions = encode_usual_response(
            self.header.correlation_id, fetcher.id, [answer for _, answer, _, _ in answers]
        )
        if size_bytes and not self._read_into(frame, positions, answers):
            return None
        ready = fetcher.ready
        for wanted, (key, state, size), _, _ in answers:
            wanted.sent_high_watermark = state[0]
            del ready[key]
            if size:  # as after every read: a fetcher may not advance its offset
                ready[key] = wanted
        api.metrics.fetched(size_bytes, follower=True)
        self.count(api.metrics.requests, FETCH_FOLLOWER, api.monotonic_ms())
        return frame

    def _read_into(self, frame: bytearray, positions: list[int], answers: list[_Answered]) -> bool:
        """Read all records into the frame; False: not all are in the page cache."""
        view = memoryview(frame)
        try:
            for at, (_, (_, _, size), segment, position) in zip(positions, answers, strict=True):
                room = view[at : at + size]
                if segment is not None and not segment.file.read_into(position, room):
                    return False
        except StorageError as error:
            # Noted at the first failure: the next read may succeed. Then the general way answers.
            self._api.storage_failed(error)
            return False
        return True
