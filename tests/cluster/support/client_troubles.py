"""Problems that clients have with each other, with names, quotas and listeners.

Each is caused by requests of clients with names of their own; the cluster itself is well.
"""

import contextlib
import socket
import ssl
import time
from typing import Any

from peers import Peer, framed, producing
from troubles import Home, wait_for

from odradek.model.errors import ErrorCode
from odradek.record.records import Record, build_batch
from odradek.wire.messages.end_txn import EndTxnRequest, EndTxnResponse
from odradek.wire.messages.find_coordinator import FindCoordinatorRequest, FindCoordinatorResponse
from odradek.wire.messages.heartbeat import HeartbeatRequest, HeartbeatResponse
from odradek.wire.messages.init_producer_id import InitProducerIdRequest, InitProducerIdResponse
from odradek.wire.messages.join_group import (
    JoinGroupRequest,
    JoinGroupRequestProtocol,
    JoinGroupResponse,
)
from odradek.wire.messages.metadata import MetadataRequest, MetadataRequestTopic, MetadataResponse
from odradek.wire.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
    OffsetCommitResponse,
)
from odradek.wire.messages.produce import ProduceResponse
from odradek.wire.schema import Message

GROUP, TRANSACTION = 0, 1


def ask(peer: Peer, client_id: str, message: Message, answer: type[Any], version: int) -> Any:
    """The answer to a request of the client with this id."""
    peer.send(framed(message, version, client_id=client_id))
    return peer.answer(answer, version)


def coordinator(home: Home, key: str, kind: int) -> Peer:
    """A connection to the coordinator of a group or a transactional id."""

    def found() -> Peer | None:
        with home.peer(0) as peer:
            request = FindCoordinatorRequest(key=key, key_type=kind)
            reported = peer.request(request, FindCoordinatorResponse, 2)
        return None if reported.error_code else home.peer(reported.node_id)

    peer: Peer = wait_for(found)
    return peer


def fence_producers(home: Home, transactional_id: str, *clients: str) -> None:
    """Have two producers begin with one transactional id in turn, and end the other's epoch."""
    begin = InitProducerIdRequest(transactional_id=transactional_id, transaction_timeout_ms=60_000)
    with coordinator(home, transactional_id, TRANSACTION) as peer:

        def begun(client: str) -> Any:
            def tried() -> Any:
                answer = ask(peer, client, begin, InitProducerIdResponse, 4)
                return None if answer.error_code else answer

            return wait_for(tried)

        before = begun(clients[1])
        for client, other in (clients, clients[::-1]):
            now = begun(client)
            end = EndTxnRequest(
                transactional_id=transactional_id, producer_id=before.producer_id,
                producer_epoch=before.producer_epoch, committed=True,
            )  # fmt: skip
            answer = ask(peer, other, end, EndTxnResponse, 3)
            assert answer.error_code == ErrorCode.PRODUCER_FENCED
            before = now


def joining_as(group: str, protocol: str, instance_id: str | None = None) -> JoinGroupRequest:
    return JoinGroupRequest(
        group_id=group, session_timeout_ms=60_000, rebalance_timeout_ms=300_000, member_id="",
        group_instance_id=instance_id, protocol_type="consumer",
        protocols=[JoinGroupRequestProtocol(name=protocol, metadata=b"\0" * 10)],
    )  # fmt: skip


def join(peer: Peer, client_id: str, request: JoinGroupRequest, version: int) -> Any:
    """Join as soon as the coordinator has loaded the group."""

    def joined() -> Any:
        answer = ask(peer, client_id, request, JoinGroupResponse, version)
        later = (ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, ErrorCode.NOT_COORDINATOR)
        return None if answer.error_code in later else answer

    return wait_for(joined)


def fence_member(home: Home, group: str, instance_id: str, *clients: str) -> None:
    """Have two consumers join with one group.instance.id, and the first send a heartbeat."""
    request = joining_as(group, "range", instance_id)
    first, second = coordinator(home, group, GROUP), coordinator(home, group, GROUP)
    home.held += [first, second]
    joined = join(first, clients[0], request, 5)
    assert not joined.error_code
    second.send(framed(request, 5, client_id=clients[1]))
    beat = HeartbeatRequest(
        group_id=group, generation_id=joined.generation_id, member_id=joined.member_id,
        group_instance_id=instance_id,
    )  # fmt: skip
    fenced = ErrorCode.FENCED_INSTANCE_ID
    wait_for(lambda: ask(first, clients[0], beat, HeartbeatResponse, 3).error_code == fenced)


def join_inconsistently(home: Home, group: str, *clients: str) -> None:
    """Have consumers without a common assignment strategy join a group."""
    first = coordinator(home, group, GROUP)
    home.held.append(first)
    assert not join(first, clients[0], joining_as(group, "range"), 3).error_code
    with coordinator(home, group, GROUP) as peer:
        answer = join(peer, clients[1], joining_as(group, "sticky"), 3)
    assert answer.error_code == ErrorCode.INCONSISTENT_GROUP_PROTOCOL


def look_for(home: Home, topic: str, client_id: str) -> None:
    """Ask for a topic three times, as a client does that waits for it."""
    request = MetadataRequest(
        topics=[MetadataRequestTopic(name=topic)], allow_auto_topic_creation=False
    )
    with home.peer(0) as peer:
        for _ in range(3):
            (found,) = ask(peer, client_id, request, MetadataResponse, 8).topics
            assert found.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


def exceed_quota(home: Home, topic: str, client_id: str) -> None:
    """Write to a topic that broker 0 leads until the broker makes this client wait."""
    batch = build_batch([Record(None, b"x" * 50_000, time.time_ns() // 1_000_000)])
    request = producing(topic, 0, batch, acks=1)

    def is_throttled() -> bool:
        with home.peer(0) as peer:  # a throttled connection is not read for a while
            return bool(ask(peer, client_id, request, ProduceResponse, 9).throttle_time_ms > 1000)

    wait_for(is_throttled)


def lose_records(home: Home, topic: str, group: str) -> None:
    """Delete records of a topic that broker 0 leads, which a group has not read."""
    for _ in range(5):
        assert not home.write(topic, 0)
    place = OffsetCommitRequestPartition(partition_index=0, committed_offset=1)
    request = OffsetCommitRequest(
        group_id=group, generation_id_or_member_epoch=-1, member_id="",
        topics=[OffsetCommitRequestTopic(name=topic, partitions=[place])],
    )  # fmt: skip
    with coordinator(home, group, GROUP) as peer:

        def is_committed() -> bool:
            answer = ask(peer, "late", request, OffsetCommitResponse, 5)
            return not answer.topics[0].partitions[0].error_code

        wait_for(is_committed)
    with home.peer(0) as peer:
        assert peer.delete_records(topic, 0, 4) == 4


def speak_tls(port: int) -> None:
    """Begin a TLS handshake on a listener without TLS."""
    context = ssl.create_default_context()
    with (
        socket.create_connection(("127.0.0.1", port), 30) as plain,
        contextlib.suppress(OSError),
        context.wrap_socket(plain, server_hostname="localhost"),
    ):
        raise AssertionError("the listener speaks TLS")
