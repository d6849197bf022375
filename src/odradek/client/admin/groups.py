"""Admin requests about groups and transactions.

They go to the coordinator, which is looked up again after NOT_COORDINATOR. General functions are in
`odradek.client.admin.topics`.
"""

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import Final, NamedTuple, TypeVar

from odradek.client.admin.topics import Outcome, persist
from odradek.client.cluster import GROUP_COORDINATOR, TRANSACTION_COORDINATOR, Cluster
from odradek.client.connection import Connection
from odradek.client.fetch.leaders import try_leaders
from odradek.client.group.offsets import OffsetAndMetadata, offset_fetch, read_offsets
from odradek.client.group.protocol import decode_assignment
from odradek.client.kafka_errors import check, failure, known_code
from odradek.model.errors import ApiError, ErrorCode, MalformedRequestError
from odradek.model.partition import TopicPartition, by_topic
from odradek.wire.messages.offset_fetch import OffsetFetchResponse
from odradek.wire.schema import Message

CONSUMER_PROTOCOL: Final = "consumer"
DEAD: Final = "Dead"
_LATER: Final = (
    ErrorCode.NOT_COORDINATOR,
    ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
    ErrorCode.UNSTABLE_OFFSET_COMMIT,
)

R = TypeVar("R", bound=Message)


async def ask_coordinator(
    cluster: Cluster,
    kind: int,
    key: str,
    message: Message | Callable[[Connection], Message],
    answer: type[R],
    codes: Callable[[R], Iterable[int]],
) -> R:
    """Send a request to the coordinator of a group or transactional id; follows the coordinator.

    Raises:
        ApiError, ConnectionError: the last error, after the time-out.
    """

    async def attempt() -> R:
        connection = await cluster.coordinator(kind, key)
        request = message(connection) if callable(message) else message
        response = await connection.request(request, answer)
        for code in codes(response):
            if code in _LATER:
                cluster.drop_coordinator(kind, key)
                raise ApiError(known_code(code))
        return response

    return await persist(cluster, attempt)


async def _every_broker(cluster: Cluster) -> list[Connection]:
    await cluster.refresh()
    return [await cluster.broker(node) for node in sorted(await cluster.nodes())]


# --------------------------------------------------------------------------------------- groups


class GroupListing(NamedTuple):
    """A group in a list. State and type are empty if a broker does not report them."""

    group_id: str
    state: str
    type: str


async def list_groups(
    cluster: Cluster, *, states: Sequence[str] = (), types: Sequence[str] = ()
) -> list[GroupListing]:
    """The consumer groups of all brokers.

    Raises:
        ApiError: a broker refuses; UNSUPPORTED_VERSION if it does not support the filters.
        ConnectionError: a broker cannot be reached.
    """
    from odradek.wire.messages import list_groups as wire  # noqa: PLC0415

    found = {}
    for connection in await _every_broker(cluster):
        request = wire.ListGroupsRequest(states_filter=list(states), types_filter=list(types))

        async def attempt(
            connection: Connection = connection, request: wire.ListGroupsRequest = request
        ) -> wire.ListGroupsResponse:
            response = await connection.request(request, wire.ListGroupsResponse)
            check(response.error_code)
            return response

        for group in (await persist(cluster, attempt)).groups:
            if group.protocol_type in ("", CONSUMER_PROTOCOL):
                found[group.group_id] = GroupListing(
                    group.group_id, group.group_state, group.group_type.capitalize()
                )
    return list(found.values())


class MemberDescription(NamedTuple):
    """A member of a group with its assigned partitions."""

    member_id: str
    instance_id: str | None
    client_id: str
    host: str
    partitions: tuple[TopicPartition, ...]


class GroupDescription(NamedTuple):
    """A group, its members and its coordinator (id, host, port)."""

    group_id: str
    state: str
    protocol_type: str
    assignor: str
    members: tuple[MemberDescription, ...]
    coordinator: tuple[int, str, int]


async def describe_group(cluster: Cluster, group_id: str) -> GroupDescription:
    """Describe one group; the state is Dead if it does not exist.

    Raises:
        ApiError: the coordinator refuses.
    """
    from odradek.wire.messages import describe_groups as wire  # noqa: PLC0415

    response = await ask_coordinator(
        cluster,
        GROUP_COORDINATOR,
        group_id,
        wire.DescribeGroupsRequest(groups=[group_id]),
        wire.DescribeGroupsResponse,
        lambda r: (group.error_code for group in r.groups),
    )
    (group,) = response.groups
    if group.error_code == ErrorCode.GROUP_ID_NOT_FOUND:  # from DescribeGroups v6
        group.group_state = DEAD
    else:
        check(group.error_code)
    return GroupDescription(
        group_id=group.group_id,
        state=group.group_state,
        protocol_type=group.protocol_type,
        assignor=group.protocol_data,
        members=tuple(
            MemberDescription(m.member_id, m.group_instance_id, m.client_id, m.client_host,
                   _assigned(m.member_assignment))
            for m in group.members
        ),
        coordinator=await _where(cluster, group_id),
    )  # fmt: skip


def _assigned(data: bytes | bytearray | memoryview) -> tuple[TopicPartition, ...]:
    if not data:
        return ()
    try:
        return tuple(decode_assignment(data))
    except MalformedRequestError:
        return ()  # not the consumer protocol


async def _where(cluster: Cluster, group_id: str) -> tuple[int, str, int]:
    connection = await cluster.coordinator(GROUP_COORDINATOR, group_id)
    for node in cluster.metadata.nodes.values():
        if connection.name in (f"{node.host}:{node.port}", f"[{node.host}]:{node.port}"):
            return node.id, node.host, node.port
    host, _, port = connection.name.rpartition(":")
    return -1, host, int(port)


async def committed_offsets(
    cluster: Cluster, group_id: str, *, stable: bool = False
) -> dict[TopicPartition, OffsetAndMetadata]:
    """All committed offsets of a group; `stable` waits for those of pending transactions.

    Raises:
        ApiError: the coordinator refuses.
    """
    response = await ask_coordinator(
        cluster,
        GROUP_COORDINATOR,
        group_id,
        lambda connection: offset_fetch(connection, group_id, None, stable=stable),
        OffsetFetchResponse,
        lambda r: read_offsets(r)[1],
    )
    found, codes = read_offsets(response)
    for code in codes:
        check(code)
    return found


async def commit_offsets(
    cluster: Cluster, group_id: str, offsets: Mapping[TopicPartition, int | OffsetAndMetadata]
) -> dict[TopicPartition, Outcome]:
    """Commit offsets for a group without members, each with its metadata if it has some."""
    from odradek.wire.messages import offset_commit as wire  # noqa: PLC0415

    request = wire.OffsetCommitRequest(
        group_id=group_id,
        topics=[
            wire.OffsetCommitRequestTopic(
                name=name,
                partitions=[
                    wire.OffsetCommitRequestPartition(
                        partition_index=index,
                        committed_offset=mark.offset,
                        committed_metadata=mark.metadata,
                    )
                    for index in indexes
                    for mark in [_with_metadata(offsets[TopicPartition(name, index)])]
                ],
            )
            for name, indexes in by_topic(offsets).items()
        ],
    )
    response = await ask_coordinator(
        cluster,
        GROUP_COORDINATOR,
        group_id,
        request,
        wire.OffsetCommitResponse,
        lambda r: (p.error_code for topic in r.topics for p in topic.partitions),
    )
    return {
        TopicPartition(topic.name, p.partition_index): failure(p.error_code)
        for topic in response.topics
        for p in topic.partitions
    }


def _with_metadata(offset: int | OffsetAndMetadata) -> OffsetAndMetadata:
    return OffsetAndMetadata(offset) if isinstance(offset, int) else offset


async def remove_members(cluster: Cluster, group_id: str, member_ids: Iterable[str]) -> None:
    """Remove members from a group, as if they had left it.

    Raises:
        ApiError: the group's coordinator refuses it.
    """
    from odradek.wire.messages.leave_group import (  # noqa: PLC0415 - loaded when used
        LeaveGroupRequest,
        LeaveGroupResponse,
        MemberIdentity,
    )

    message = LeaveGroupRequest(
        group_id=group_id, members=[MemberIdentity(member_id=each) for each in member_ids]
    )
    response = await ask_coordinator(
        cluster,
        GROUP_COORDINATOR,
        group_id,
        message,
        LeaveGroupResponse,
        lambda answer: (answer.error_code,),
    )
    for code in (response.error_code, *(member.error_code for member in response.members)):
        if code:
            raise ApiError(known_code(code))


async def delete_group(cluster: Cluster, group_id: str) -> Outcome:
    """Delete a group without members, with its offsets."""
    from odradek.wire.messages import delete_groups as wire  # noqa: PLC0415

    response = await ask_coordinator(
        cluster,
        GROUP_COORDINATOR,
        group_id,
        wire.DeleteGroupsRequest(groups_names=[group_id]),
        wire.DeleteGroupsResponse,
        lambda r: (result.error_code for result in r.results),
    )
    (result,) = response.results
    return failure(result.error_code)


async def delete_offsets(
    cluster: Cluster, group_id: str, partitions: Iterable[TopicPartition]
) -> dict[TopicPartition, Outcome]:
    """Delete committed offsets of topics that the group does not subscribe to.

    Raises:
        ApiError: the coordinator refuses the whole request.
    """
    from odradek.wire.messages import offset_delete as wire  # noqa: PLC0415

    request = wire.OffsetDeleteRequest(
        group_id=group_id,
        topics=[
            wire.OffsetDeleteRequestTopic(
                name=name,
                partitions=[
                    wire.OffsetDeleteRequestPartition(partition_index=index) for index in indexes
                ],
            )
            for name, indexes in by_topic(partitions).items()
        ],
    )
    response = await ask_coordinator(
        cluster,
        GROUP_COORDINATOR,
        group_id,
        request,
        wire.OffsetDeleteResponse,
        lambda r: (r.error_code,),
    )
    check(response.error_code)
    return {
        TopicPartition(topic.name, p.partition_index): failure(p.error_code)
        for topic in response.topics
        for p in topic.partitions
    }


# --------------------------------------------------------------------------------- transactions


class TransactionListing(NamedTuple):
    """A transactional id in a list, with its coordinator's broker id."""

    transactional_id: str
    coordinator: int
    producer_id: int
    state: str


async def list_transactions(cluster: Cluster, *, duration_ms: int = -1) -> list[TransactionListing]:
    """The transactional ids of all brokers.

    `duration_ms` restricts them to those with a transaction that is open for longer.

    Raises:
        ApiError, ConnectionError: a broker refuses, or cannot be reached.
    """
    from odradek.wire.messages import list_transactions as wire  # noqa: PLC0415

    found = []
    await cluster.refresh()
    for node in sorted(await cluster.nodes()):
        connection = await cluster.broker(node)
        request = wire.ListTransactionsRequest(duration_filter=duration_ms)
        response = await connection.request(request, wire.ListTransactionsResponse)
        check(response.error_code)
        found += [
            TransactionListing(t.transactional_id, node, t.producer_id, t.transaction_state)
            for t in response.transaction_states
        ]
    return found


class TransactionDescription(NamedTuple):
    """The coordinator's state of a transactional id. `started_ms` is -1 without a transaction."""

    transactional_id: str
    coordinator: int
    producer_id: int
    producer_epoch: int
    state: str
    timeout_ms: int
    started_ms: int
    partitions: tuple[TopicPartition, ...]


async def describe_transaction(cluster: Cluster, transactional_id: str) -> TransactionDescription:
    """Describe one transactional id.

    Raises:
        ApiError: TRANSACTIONAL_ID_NOT_FOUND, or the coordinator refuses.
    """
    from odradek.wire.messages import describe_transactions as wire  # noqa: PLC0415

    response = await ask_coordinator(
        cluster,
        TRANSACTION_COORDINATOR,
        transactional_id,
        wire.DescribeTransactionsRequest(transactional_ids=[transactional_id]),
        wire.DescribeTransactionsResponse,
        lambda r: (state.error_code for state in r.transaction_states),
    )
    (state,) = response.transaction_states
    if state.error_code == ErrorCode.TRANSACTIONAL_ID_NOT_FOUND:
        raise ApiError(
            ErrorCode.TRANSACTIONAL_ID_NOT_FOUND,
            f"The transactional id {transactional_id} could not be found",
        )
    check(state.error_code)
    connection = await cluster.coordinator(TRANSACTION_COORDINATOR, transactional_id)
    nodes = [n.id for n in cluster.metadata.nodes.values()
             if connection.name == f"{n.host}:{n.port}"]  # fmt: skip
    return TransactionDescription(
        transactional_id=state.transactional_id,
        coordinator=nodes[0] if nodes else -1,
        producer_id=state.producer_id,
        producer_epoch=state.producer_epoch,
        state=state.transaction_state,
        timeout_ms=state.transaction_timeout_ms,
        started_ms=state.transaction_start_time_ms,
        partitions=tuple(
            TopicPartition(topic.topic, index)
            for topic in state.topics
            for index in topic.partitions
        ),
    )


async def knows_transactional_id(cluster: Cluster, transactional_id: str) -> bool:
    """Whether the coordinator has a transactional id, which expires when it is not used.

    False for brokers before 3.0, which cannot be asked.

    Raises:
        ApiError: the coordinator refuses.
    """
    try:
        await describe_transaction(cluster, transactional_id)
    except ApiError as error:
        if error.code in (ErrorCode.TRANSACTIONAL_ID_NOT_FOUND, ErrorCode.UNSUPPORTED_VERSION):
            return False
        raise
    return True


async def transactions_of(
    cluster: Cluster, producers: Collection[int]
) -> dict[int, TransactionDescription]:
    """The coordinators' transactions of these producer ids.

    A transaction that is open in a partition, but missing here, is hanging: no coordinator will
    end it.

    Raises:
        ApiError, ConnectionError: a broker refuses, or cannot be reached.
    """
    known: dict[int, TransactionDescription] = {}
    if not producers:
        return known
    for listed in await list_transactions(cluster):
        if listed.producer_id not in producers:
            continue
        try:
            response = await describe_transaction(cluster, listed.transactional_id)
        except ApiError as error:
            if error.code != ErrorCode.TRANSACTIONAL_ID_NOT_FOUND:
                raise
            continue
        known[response.producer_id] = response
    return known


async def partitions_in_transactions(
    cluster: Cluster, producers: Collection[int]
) -> dict[int, tuple[TopicPartition, ...]]:
    """The partitions of the transactions of these producer ids.

    Raises:
        ApiError, ConnectionError: a broker refuses, or cannot be reached.
    """
    known = await transactions_of(cluster, producers)
    return {producer_id: found.partitions for producer_id, found in known.items()}


class ProducerDescription(NamedTuple):
    """A replica's state of a producer. Offsets and sequences are -1 if there are none."""

    producer_id: int
    producer_epoch: int
    coordinator_epoch: int
    last_sequence: int
    last_timestamp_ms: int
    transaction_start_offset: int


async def describe_producers(
    cluster: Cluster, partitions: Sequence[TopicPartition], *, broker: int | None = None
) -> dict[TopicPartition, list[ProducerDescription] | ApiError]:
    """The active producers of partitions, as the leaders (or one broker) report them."""
    from odradek.wire.messages import describe_producers as wire  # noqa: PLC0415

    async def ask(
        connection: Connection, asked: Collection[TopicPartition]
    ) -> dict[TopicPartition, list[ProducerDescription] | ApiError]:
        request = wire.DescribeProducersRequest(
            topics=[
                wire.TopicRequest(name=name, partition_indexes=indexes)
                for name, indexes in by_topic(asked).items()
            ]
        )
        response = await connection.request(request, wire.DescribeProducersResponse)
        return {
            TopicPartition(topic.name, p.partition_index): failure(p.error_code, p.error_message)
            or [
                ProducerDescription(
                    producer.producer_id,
                    producer.producer_epoch,
                    producer.coordinator_epoch,
                    producer.last_sequence,
                    producer.last_timestamp,
                    producer.current_txn_start_offset,
                )
                for producer in p.active_producers
            ]
            for topic in response.topics
            for p in topic.partitions
        }

    if broker is not None:
        await cluster.refresh()
        return await ask(await cluster.broker(broker), partitions)
    return await try_leaders(cluster, dict.fromkeys(partitions), ask)


async def abort_transaction(
    cluster: Cluster,
    partition: TopicPartition,
    *,
    producer_id: int,
    producer_epoch: int,
    coordinator_epoch: int,
) -> None:
    """Write an abort marker into one partition, which ends a hanging transaction there.

    Raises:
        ApiError: the partition's leader refuses.
    """
    from odradek.wire.messages import write_txn_markers as wire  # noqa: PLC0415

    topic = wire.WritableTxnMarkerTopic(
        name=partition.topic, partition_indexes=[partition.partition]
    )
    marker = wire.WritableTxnMarker(
        producer_id=producer_id,
        producer_epoch=producer_epoch,
        transaction_result=False,
        topics=[topic],
        coordinator_epoch=coordinator_epoch,
    )

    async def attempt() -> None:
        await cluster.refresh([partition.topic])
        connection = await cluster.leader(partition)
        response = await connection.request(
            wire.WriteTxnMarkersRequest(markers=[marker]), wire.WriteTxnMarkersResponse
        )
        for written in response.markers:
            for result in written.topics:
                for p in result.partitions:
                    check(p.error_code)

    await persist(cluster, attempt)
