"""Group membership of a consumer (Java's ConsumerCoordinator).

    poll        takes part in a rebalance if there is one; commits if a commit is due
    join        JoinGroup: member id, subscribed topics, supported assignors
    lead        the group's leader assigns the partitions of all members
    sync        SyncGroup: the leader sends the assignment, every member receives its part
    heartbeat   keeps the session, and reports that the group rebalances
    commit      offsets: with retries (sync), or once (async)
    leave       LeaveGroup: the group need not wait for the session timeout

JoinGroup and SyncGroup proceed while the application works; callbacks and changes of the assignment
happen only inside `poll`. Members may use other clients: the names, versions and data of the
assignors are Java's.
"""

import asyncio
import contextlib
from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from typing import Final, NamedTuple, Protocol, TypeVar

from odradek.client.cluster import GROUP, GROUP_COORDINATOR, Cluster
from odradek.client.connection import Connection
from odradek.client.consumer.settings import ConsumerSettings
from odradek.client.errors import ClientTimeoutError
from odradek.client.group.assignors import ASSIGNORS, Assignor, assignor_of
from odradek.client.group.offsets import (
    GroupMetadata,
    OffsetAndMetadata,
    offset_fetch,
    read_offsets,
)
from odradek.client.group.protocol import (
    NO_GENERATION,
    PROTOCOL_TYPE,
    MemberSubscription,
    decode_assignment,
    decode_subscription,
    encode_assignment,
    encode_subscription,
)
from odradek.model.errors import ApiError, ErrorCode, OdradekError
from odradek.model.partition import TopicPartition
from odradek.net.retry import Retries, retry
from odradek.wire.messages.heartbeat import HeartbeatRequest, HeartbeatResponse
from odradek.wire.messages.join_group import (
    JoinGroupRequest,
    JoinGroupRequestProtocol,
    JoinGroupResponse,
)
from odradek.wire.messages.leave_group import (
    LeaveGroupRequest,
    LeaveGroupResponse,
    MemberIdentity,
)
from odradek.wire.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
    OffsetCommitResponse,
)
from odradek.wire.messages.offset_fetch import OffsetFetchResponse
from odradek.wire.messages.sync_group import (
    SyncGroupRequest,
    SyncGroupRequestAssignment,
    SyncGroupResponse,
)

T = TypeVar("T")
Offsets = Mapping[TopicPartition, OffsetAndMetadata]

# JoinGroup is answered when all members have joined, which takes up to the rebalance timeout.
_JOIN_SLACK_MS: Final = 5_000
_IDENTITIES_FROM: Final = 3
_OTHER_COORDINATOR: Final = (ErrorCode.NOT_COORDINATOR, ErrorCode.COORDINATOR_NOT_AVAILABLE)
_LATER: Final = (
    *_OTHER_COORDINATOR,
    ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    ErrorCode.REQUEST_TIMED_OUT,
    ErrorCode.UNSTABLE_OFFSET_COMMIT,
)
_NO_MEMBER: Final = (
    ErrorCode.UNKNOWN_MEMBER_ID,
    ErrorCode.ILLEGAL_GENERATION,
    ErrorCode.FENCED_INSTANCE_ID,
)


class CommitFailedError(OdradekError):
    """The partitions were assigned to other members (Java's CommitFailedException)."""


class RebalanceListener(Protocol):
    """Callbacks of a rebalance (Java's ConsumerRebalanceListener). They are awaited."""

    async def revoked(self, partitions: Collection[TopicPartition]) -> None:
        """Partitions will be assigned to other members; their offsets can still be committed."""

    async def assigned(self, partitions: Collection[TopicPartition]) -> None:
        """Partitions were assigned to this member."""

    async def lost(self, partitions: Collection[TopicPartition]) -> None:
        """The membership was lost: other members may own these partitions already."""


class Subscriber(Protocol):
    """What the coordinator needs from its consumer."""

    @property
    def topics(self) -> Collection[str]:
        """The subscribed topics, or those that match the pattern."""

    @property
    def listener(self) -> RebalanceListener | None:
        """The application's callbacks; None if there are none."""

    def owned(self) -> Sequence[TopicPartition]:
        """The partitions that are assigned now."""

    def take_over(self, partitions: Collection[TopicPartition]) -> None:
        """Replace the assignment by that of the new generation."""

    def positions(self) -> Offsets:
        """The offsets to commit."""

    def wake(self) -> None:
        """Make a waiting `poll` check for changes."""


class _Joined(NamedTuple):
    generation: int
    member_id: str
    assignor: Assignor
    assignment: Sequence[TopicPartition]


class ConsumerCoordinator:
    """The membership of one consumer in its group."""

    def __init__(
        self, cluster: Cluster, settings: ConsumerSettings, group_id: str, subscriber: Subscriber
    ) -> None:
        self._cluster = cluster
        self._settings = settings
        self._group_id = group_id
        self._subscriber = subscriber
        self._assignors = [assignor_of(name) for name in settings.assignors]
        self._is_cooperative = all(assignor.is_cooperative for assignor in self._assignors)
        self._loop = asyncio.get_running_loop()
        self._member_id = ""
        self._generation = NO_GENERATION
        self._metadata = GroupMetadata(self._group_id, instance_id=settings.instance_id)
        self._assignor: Assignor | None = None
        self._reason = ""
        self._must_join = True
        self._prepared = False
        self._joining: asyncio.Task[_Joined] | None = None
        self._heart: asyncio.Task[None] | None = None
        self._fatal: Exception | None = None
        self._lost = False
        self._polled_s = self._loop.time()
        self._next_commit_s = self._loop.time() + settings.commit_interval_ms / 1000
        self._committing: set[asyncio.Task[None]] = set()
        self._held: Sequence[TopicPartition] = ()  # the last assignment, and its generation
        self._held_in = NO_GENERATION
        self._counts: dict[str, int] = {}  # the partition counts of the last assignment

    # -------------------------------------------------------------------------- for the consumer

    def metadata(self) -> GroupMetadata:
        """Member id and generation of the last assignment (Java's `groupMetadata`).

        They are kept when the membership is lost: a transaction that commits offsets without a
        generation is not fenced by the group (KIP-447).
        """
        return self._metadata

    @property
    def is_joined(self) -> bool:
        """Whether the member has its assignment, and no rebalance is in progress."""
        return not self._must_join and self._joining is None

    def rejoin(self, reason: str) -> None:
        """Join again at the next `poll`, because the subscription or metadata has changed."""
        if not self._must_join:
            self._reason = reason
            self._must_join = True

    def counts_changed(self) -> None:
        """Join again if this member leads the group and partition counts have changed."""
        now = {topic: self._count(topic) for topic in self._counts}
        if self._counts and now != self._counts:
            self.rejoin(f"cached metadata has changed from {self._counts} to {now}")

    def _count(self, topic: str) -> int:
        return len(self._cluster.metadata.partitions(topic))

    async def poll(self, deadline_s: float) -> None:
        """Take part in a rebalance until `deadline_s`; commit if a commit is due.

        Raises:
            ApiError: the group refuses this member.
        """
        self._polled_s = self._loop.time()
        if self._fatal is not None:
            error, self._fatal = self._fatal, None
            raise error
        while self._must_join or self._joining is not None or self._lost:
            if self._lost:
                await self._tell_lost()
            if not self._prepared:
                self._prepared = True
                await self._prepare()
            if self._joining is None:
                self._must_join = False
                self._joining = self._loop.create_task(self._join())
            timeout_s = max(0.0, deadline_s - self._loop.time())
            await asyncio.wait({self._joining}, timeout=timeout_s)
            if not self._joining.done():
                return
            joining, self._joining = self._joining, None
            self._prepared = False
            try:
                joined = joining.result()
            except BaseException:
                self._must_join = True
                raise
            await self._complete(joined)
            self._polled_s = self._loop.time()
        self.commit_if_due()

    async def close(self) -> None:
        """Commit, revoke the assignment, leave the group. A static member sends no LeaveGroup."""
        if self._joining is not None:
            self._joining.cancel()
            await asyncio.gather(self._joining, return_exceptions=True)
            self._joining = None
        if self._generation != NO_GENERATION:
            await self._commit_last()
            await self._revoke(self._subscriber.owned())
        self._subscriber.take_over(())
        await self._stop_heart()
        for task in list(self._committing):
            task.cancel()
        await asyncio.gather(*self._committing, return_exceptions=True)
        if self._settings.instance_id is None:
            await self._leave("the consumer is being closed")
        self._drop_membership()

    # ------------------------------------------------------------------------- the rebalance

    async def _prepare(self) -> None:
        """Before a join: commit, and revoke what this protocol requires (eager: everything)."""
        if self._generation == NO_GENERATION:
            owned = self._subscriber.owned()
            if owned:
                await self._tell_lost()
            return
        await self._commit_last()
        if not self._is_cooperative:
            await self._revoke(self._subscriber.owned())
            self._subscriber.take_over(())
            return
        # A cooperative member revokes partitions of topics that it no longer subscribes to.
        removed = [p for p in self._subscriber.owned() if p.topic not in self._subscriber.topics]
        if removed:
            await self._revoke(removed)
            self._subscriber.take_over([p for p in self._subscriber.owned() if p not in removed])

    async def _complete(self, joined: _Joined) -> None:
        """After a join: apply the assignment and run the callbacks."""
        before = list(self._subscriber.owned())
        now = list(joined.assignment)
        self._assignor = joined.assignor
        self._metadata = self._metadata._replace(
            generation=joined.generation, member_id=joined.member_id
        )
        if self._is_cooperative:
            revoked = [partition for partition in before if partition not in now]
            added = [partition for partition in now if partition not in before]
            if revoked:
                await self._revoke(revoked)
                self.rejoin("need to revoke partitions and re-join")
        else:
            added = now
        self._subscriber.take_over(now)
        if self._heart is None or self._heart.done():
            self._heart = self._loop.create_task(self._beat())
        listener = self._subscriber.listener
        if listener is not None:
            await listener.assigned(added)

    async def _revoke(self, partitions: Collection[TopicPartition]) -> None:
        listener = self._subscriber.listener
        if listener is not None and partitions:
            await listener.revoked(list(partitions))

    async def _tell_lost(self) -> None:
        self._lost = False
        owned = list(self._subscriber.owned())
        self._subscriber.take_over(())
        listener = self._subscriber.listener
        if listener is not None and owned:
            await listener.lost(owned)

    async def _join(self) -> _Joined:
        """Send JoinGroup and SyncGroup, repeated until both succeed.

        Raises:
            ApiError: the group refuses this member.
        """
        retries = Retries(self._cluster.retry_pause_s)
        while True:
            try:
                return await self._join_once()
            except ConnectionError:
                self._drop_coordinator()
            except ApiError as error:
                code = error.code
                if code is ErrorCode.MEMBER_ID_REQUIRED:
                    continue
                if code in _OTHER_COORDINATOR:
                    self._drop_coordinator()
                elif code is ErrorCode.FENCED_INSTANCE_ID:
                    raise
                elif code in _NO_MEMBER:
                    self._drop_membership()
                elif code is not ErrorCode.REBALANCE_IN_PROGRESS and code not in _LATER:
                    raise
            await retries.pause()

    async def _join_once(self) -> _Joined:
        settings = self._settings
        owned = list(self._subscriber.owned())
        request = JoinGroupRequest(
            group_id=self._group_id,
            session_timeout_ms=settings.session_timeout_ms,
            rebalance_timeout_ms=settings.poll_interval_ms_max,
            member_id=self._member_id,
            group_instance_id=settings.instance_id,
            protocol_type=PROTOCOL_TYPE,
            protocols=[
                JoinGroupRequestProtocol(
                    name=assignor.name, metadata=encode_subscription(self._member(assignor, owned))
                )
                for assignor in self._assignors
            ],
            reason=self._reason or None,
        )
        connection = await self._connection()
        answer = await connection.request(
            request,
            JoinGroupResponse,
            timeout_ms=max(
                settings.poll_interval_ms_max + _JOIN_SLACK_MS, settings.client.request_timeout_ms
            ),
        )
        if answer.error_code == ErrorCode.MEMBER_ID_REQUIRED:
            self._member_id = answer.member_id
        _check(answer.error_code, f"JoinGroup for {self._group_id}")
        self._member_id = answer.member_id
        self._generation = answer.generation_id
        name = answer.protocol_name or ""
        assignor = ASSIGNORS.get(name)
        if assignor is None:
            raise ApiError(ErrorCode.INCONSISTENT_GROUP_PROTOCOL, f"unknown protocol {name!r}")
        is_leader = answer.leader == answer.member_id
        self._counts = {}
        assignments = await self._lead(assignor, answer) if is_leader else {}
        assignment = await self._sync(connection, assignor, assignments)
        self._reason = ""
        return _Joined(answer.generation_id, answer.member_id, assignor, assignment)

    def _member(self, assignor: Assignor, owned: Sequence[TopicPartition]) -> MemberSubscription:
        return MemberSubscription(
            topics=tuple(self._subscriber.topics),
            owned=tuple(owned),
            generation=self._generation,
            # An eager member has revoked everything; the sticky assignor still needs what it owned.
            user_data=assignor.user_data(self._held, self._held_in),
            rack=self._settings.rack or None,
        )

    async def _lead(self, assignor: Assignor, answer: JoinGroupResponse) -> dict[str, bytes]:
        """Assign the partitions of all topics that any member subscribes to."""
        members = {
            member.member_id: decode_subscription(member.metadata, member.group_instance_id)
            for member in answer.members
        }
        topics = sorted({topic for member in members.values() for topic in member.topics})
        await self._cluster.refresh(topics)
        counts = {topic: self._count(topic) for topic in topics}
        self._counts = counts
        known = {topic: count for topic, count in counts.items() if count}
        if answer.skip_assignment:
            return {}
        assignment = assignor.assign(known, members)
        return {member: encode_assignment(partitions) for member, partitions in assignment.items()}

    async def _sync(
        self, connection: Connection, assignor: Assignor, assignments: Mapping[str, bytes]
    ) -> list[TopicPartition]:
        request = SyncGroupRequest(
            group_id=self._group_id,
            generation_id=self._generation,
            member_id=self._member_id,
            group_instance_id=self._settings.instance_id,
            protocol_type=PROTOCOL_TYPE,
            protocol_name=assignor.name,
            assignments=[
                SyncGroupRequestAssignment(member_id=member, assignment=assignment)
                for member, assignment in assignments.items()
            ],
        )
        answer = await connection.request(
            request,
            SyncGroupResponse,
            timeout_ms=max(
                self._settings.poll_interval_ms_max + _JOIN_SLACK_MS,
                self._settings.client.request_timeout_ms,
            ),
        )
        _check(answer.error_code, f"SyncGroup for {self._group_id}")
        assignment = decode_assignment(answer.assignment)
        self._held, self._held_in = assignment, self._generation
        return assignment

    # ------------------------------------------------------------------------- the heartbeat

    async def _beat(self) -> None:
        settings = self._settings
        interval_s = settings.heartbeat_interval_ms / 1000
        heard_s = self._loop.time()
        while self._generation != NO_GENERATION:
            await asyncio.sleep(interval_s)
            if self._joining is not None:
                heard_s = self._loop.time()
                continue
            if self._loop.time() - self._polled_s > settings.poll_interval_ms_max / 1000:
                await self._leave("consumer poll timeout has expired.")
                self._membership_lost("consumer poll timeout has expired.")
                return
            try:
                await self._heartbeat()
                heard_s = self._loop.time()
            except (ConnectionError, OdradekError):
                if self._loop.time() - heard_s > settings.session_timeout_ms / 1000:
                    self._drop_coordinator()

    async def _heartbeat(self) -> None:
        request = HeartbeatRequest(
            group_id=self._group_id,
            generation_id=self._generation,
            member_id=self._member_id,
            group_instance_id=self._settings.instance_id,
        )
        sent_in = self._generation
        connection = await self._connection()
        answer = await connection.request(
            request, HeartbeatResponse, timeout_ms=self._settings.session_timeout_ms
        )
        code = ErrorCode(answer.error_code)
        if self._generation != sent_in or self._joining is not None:
            return
        if code in _OTHER_COORDINATOR:
            self._drop_coordinator()
        elif code is ErrorCode.REBALANCE_IN_PROGRESS:
            self.rejoin("group is already rebalancing")
            self._subscriber.wake()
        elif code is ErrorCode.FENCED_INSTANCE_ID:
            self._fatal = ApiError(code, f"group instance {self._settings.instance_id}")
            self._membership_lost("fenced")
        elif code in _NO_MEMBER:
            self._membership_lost(f"encountered {code.name} from heartbeat response")

    def _membership_lost(self, reason: str) -> None:
        self._drop_membership()
        self._lost = True
        self._must_join = False
        self.rejoin(reason)
        self._subscriber.wake()

    def _drop_membership(self) -> None:
        self._generation = NO_GENERATION
        self._member_id = ""

    async def _stop_heart(self) -> None:
        if self._heart is not None:
            self._heart.cancel()
            await asyncio.gather(self._heart, return_exceptions=True)
            self._heart = None

    async def _leave(self, reason: str) -> None:
        """Send LeaveGroup; failures are ignored, because the session expires anyway."""
        if not self._member_id or self._settings.instance_id is not None:
            return
        with contextlib.suppress(ConnectionError, OdradekError, TimeoutError):
            async with asyncio.timeout(self._settings.client.request_timeout_ms / 1000):
                connection = await self._connection()
                request = LeaveGroupRequest(group_id=self._group_id)
                if connection.version_of(LeaveGroupRequest.SCHEMA.request_key) >= _IDENTITIES_FROM:
                    request.members = [MemberIdentity(member_id=self._member_id, reason=reason)]
                else:
                    request.member_id = self._member_id
                await connection.request(request, LeaveGroupResponse)

    # ------------------------------------------------------------------------------ offsets

    def commit_if_due(self) -> None:
        """Commit automatically, every `auto.commit.interval.ms`."""
        if not self._settings.commits_by_itself or self._loop.time() < self._next_commit_s:
            return
        self._next_commit_s = self._loop.time() + self._settings.commit_interval_ms / 1000
        self.commit_async(self._subscriber.positions(), None)

    async def _commit_last(self) -> None:
        """Commit before a revocation, with retries; errors are ignored."""
        if not self._settings.commits_by_itself:
            return
        with contextlib.suppress(OdradekError, ConnectionError):
            await self.commit(self._subscriber.positions())

    def commit_async(
        self,
        offsets: Offsets,
        done: Callable[[Offsets, Exception | None], None] | None,
    ) -> None:
        """Commit once, without retries; then calls `done` with the offsets and the error."""

        async def attempt() -> None:
            error: Exception | None = None
            try:
                await self._commit_once(offsets)
            except (OdradekError, ConnectionError) as failure:
                error = failure
            if done is not None:
                done(offsets, error)

        if not offsets and done is None:
            return
        task = self._loop.create_task(attempt())
        self._committing.add(task)
        task.add_done_callback(self._committing.discard)

    async def commit(self, offsets: Offsets, timeout_ms: int | None = None) -> None:
        """Commit, with retries.

        Raises:
            CommitFailedError: the partitions were assigned to other members.
            ApiError: the broker refuses permanently.
            ClientTimeoutError: not within `default.api.timeout.ms`.
        """
        # Earlier asynchronous commits must not overwrite this one.
        if self._committing:
            await asyncio.wait(self._committing)
        await self._patiently("committing offsets", lambda: self._commit_once(offsets), timeout_ms)

    async def _commit_once(self, offsets: Offsets) -> None:
        if not offsets:
            return
        if self._generation != self._metadata.generation:  # the partitions may have other owners
            raise CommitFailedError("the group rebalances, or has removed this consumer: call poll")
        topics: dict[str, OffsetCommitRequestTopic] = {}
        for (topic, partition), committed in sorted(offsets.items()):
            topics.setdefault(topic, OffsetCommitRequestTopic(name=topic)).partitions.append(
                OffsetCommitRequestPartition(
                    partition_index=partition,
                    committed_offset=committed.offset,
                    committed_leader_epoch=committed.leader_epoch,
                    committed_metadata=committed.metadata,
                )
            )
        request = OffsetCommitRequest(
            group_id=self._group_id,
            generation_id_or_member_epoch=self._generation,
            member_id=self._member_id,
            group_instance_id=self._settings.instance_id,
            topics=list(topics.values()),
        )
        connection = await self._connection()
        answer = await connection.request(request, OffsetCommitResponse)
        codes = [part.error_code for topic in answer.topics for part in topic.partitions]
        failed = [ErrorCode(code) for code in codes if code]
        if not failed:
            return
        code = next((code for code in failed if code not in _LATER), failed[0])
        if code in _NO_MEMBER or code is ErrorCode.REBALANCE_IN_PROGRESS:
            if code is ErrorCode.REBALANCE_IN_PROGRESS:
                self.rejoin("the group is already rebalancing")
            elif self._generation == request.generation_id_or_member_epoch:
                self._membership_lost(f"encountered {code.name} while committing")
            raise CommitFailedError(
                "Offset commit cannot be completed since the consumer is not part of an active "
                "group for auto partition assignment; it is likely that the consumer was kicked "
                f"out of the group ({code.name})."
            )
        if code in _OTHER_COORDINATOR:
            self._drop_coordinator()
        raise ApiError(code, f"OffsetCommit for {self._group_id}")

    async def committed(
        self, partitions: Collection[TopicPartition], timeout_ms: int | None = None
    ) -> dict[TopicPartition, OffsetAndMetadata]:
        """The group's committed offsets; partitions without one are left out.

        Raises:
            ApiError: the broker refuses permanently.
            ClientTimeoutError: not within `default.api.timeout.ms`.
        """
        if not partitions:
            return {}
        return await self._patiently(
            "fetching committed offsets", lambda: self._committed_once(partitions), timeout_ms
        )

    async def _committed_once(
        self, partitions: Collection[TopicPartition]
    ) -> dict[TopicPartition, OffsetAndMetadata]:
        connection = await self._connection()
        request = offset_fetch(connection, self._group_id, partitions, stable=True)
        found, codes = read_offsets(await connection.request(request, OffsetFetchResponse))
        if codes:
            failed = [ErrorCode(code) for code in codes]
            first = next((each for each in failed if each not in _LATER), failed[0])
            if first in _OTHER_COORDINATOR:
                self._drop_coordinator()
            raise ApiError(first, f"OffsetFetch for {self._group_id}")
        return found

    # ---------------------------------------------------------------------------- the parts

    async def _connection(self) -> Connection:
        return await self._cluster.coordinator(GROUP_COORDINATOR, self._group_id, GROUP)

    def _drop_coordinator(self) -> None:
        self._cluster.drop_coordinator(GROUP_COORDINATOR, self._group_id)

    async def _patiently(
        self, what: str, attempt: Callable[[], Awaitable[T]], timeout_ms: int | None
    ) -> T:
        """Retry until success, a permanent error or the time-out."""
        timeout_ms = self._settings.client.api_timeout_ms if timeout_ms is None else timeout_ms

        def failed(error: Exception) -> None:
            if not isinstance(error, ApiError):
                self._drop_coordinator()
            elif error.code not in _LATER:
                raise error

        pause_s, on = self._cluster.retry_pause_s, (ApiError, ConnectionError)
        try:
            async with asyncio.timeout(timeout_ms / 1000):
                return await retry(attempt, pause_s, on=on, failed=failed)
        except TimeoutError:
            raise ClientTimeoutError(
                f"Timeout of {timeout_ms}ms expired before successfully {what}"
            ) from None


def _check(code: int, what: str) -> None:
    if code:
        raise ApiError(ErrorCode(code), what)
