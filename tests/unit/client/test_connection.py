"""The client's connection, against a peer with prepared answers."""

import asyncio
import contextlib
from collections.abc import Callable

import pytest

from odradek.client.connection import Connection, UnresolvedError
from odradek.model.errors import ApiError, ErrorCode
from odradek.wire.codec import encoder
from odradek.wire.frame import LENGTH_BYTES
from odradek.wire.header import RequestHeader, decode_request_header, encode_response_header
from odradek.wire.messages.api_versions import ApiVersion, ApiVersionsResponse
from odradek.wire.messages.metadata import MetadataRequest, MetadataResponse

SPOKEN = [
    ApiVersion(api_key=3, min_version=0, max_version=9),
    ApiVersion(api_key=18, min_version=0, max_version=4),
]
Answer = Callable[[RequestHeader], bytes]


def encoded(header: RequestHeader, message, version=None) -> bytes:
    head = encode_response_header(header.api_key, header.api_version, header.correlation_id)
    return head + encoder(type(message), header.api_version if version is None else version)(
        message
    )


def speaks(header: RequestHeader) -> bytes:
    return encoded(header, ApiVersionsResponse(api_keys=SPOKEN))


def metadata(header: RequestHeader) -> bytes:
    return encoded(header, MetadataResponse(cluster_id=f"after {header.correlation_id}"))


def nothing(header: RequestHeader) -> bytes:
    return b""


class Peer:
    """A broker that answers from a list and then closes the connection."""

    def __init__(self, *answers: Answer) -> None:
        self.answers = answers
        self.asked: list[RequestHeader] = []
        self.serving: list[asyncio.Task[None]] = []

    async def __aenter__(self):
        self.server = await asyncio.start_server(self._accept, "127.0.0.1", 0)
        self.port = self.server.sockets[0].getsockname()[1]
        return self

    async def __aexit__(self, *_):
        self.server.close()
        await asyncio.gather(*self.serving)
        await self.server.wait_closed()

    def _accept(self, reader, writer):
        self.serving.append(asyncio.create_task(self._serve(reader, writer)))

    async def _serve(self, reader, writer):
        with contextlib.suppress(asyncio.IncompleteReadError, ConnectionError):
            await self._answer_all(reader, writer)
        writer.close()
        with contextlib.suppress(ConnectionError):
            await writer.wait_closed()

    async def _answer_all(self, reader, writer):
        for answer in self.answers:
            length = int.from_bytes(await reader.readexactly(LENGTH_BYTES), "big")
            header, _ = decode_request_header(memoryview(await reader.readexactly(length)))
            self.asked.append(header)
            if frame := answer(header):
                writer.write(len(frame).to_bytes(LENGTH_BYTES, "big") + frame)
        if self.answers[-1] is nothing:
            await reader.read()


def with_peer(*answers: Answer, then, **options):
    """Run `then(connection)` against a peer; returns the peer."""

    async def play():
        async with Peer(*answers) as peer:
            async with await Connection.open("127.0.0.1", peer.port, **options) as connection:
                await then(connection)
            return peer

    return asyncio.run(asyncio.wait_for(play(), 10))


def test_requests_use_the_highest_version_both_sides_support():
    async def then(connection):
        answer = await connection.request(MetadataRequest(), MetadataResponse)
        assert answer.cluster_id == "after 2"
        await connection.request(MetadataRequest(), MetadataResponse, version_max=4)

    peer = with_peer(speaks, metadata, metadata, then=then, client_id="me")

    assert [header.api_version for header in peer.asked] == [4, 9, 4]
    assert {header.client_id for header in peer.asked} == {"me"}


def test_api_versions_is_repeated_in_version_0_if_ours_is_unsupported():
    def refuses(header):
        refusal = ApiVersionsResponse(error_code=ErrorCode.UNSUPPORTED_VERSION)
        return encoded(header, refusal, version=0)

    async def then(connection):
        assert connection.version_of(3) == 9

    peer = with_peer(refuses, speaks, then=then)

    assert [header.api_version for header in peer.asked] == [4, 0]


def test_a_request_without_a_common_version_is_not_sent():
    async def then(connection):
        with pytest.raises(ApiError, match="The node does not support PRODUCE$") as raised:
            connection.version_of(0)
        assert raised.value.code is ErrorCode.UNSUPPORTED_VERSION

    with_peer(speaks, then=then)


def test_overlapping_requests_get_their_own_answers():
    async def then(connection):
        answers = await asyncio.gather(
            *(connection.request(MetadataRequest(), MetadataResponse) for _ in range(8))
        )
        assert [answer.cluster_id for answer in answers] == [f"after {n}" for n in range(2, 10)]

    with_peer(speaks, *[metadata] * 8, then=then, in_flight_max=3)


def test_at_most_the_limit_is_in_flight():
    async def then(connection):
        calls = [connection.request(MetadataRequest(), MetadataResponse) for _ in range(5)]
        outcomes = await asyncio.gather(*calls, return_exceptions=True)
        assert all(isinstance(outcome, ConnectionError) for outcome in outcomes)

    peer = with_peer(speaks, nothing, nothing, then=then, in_flight_max=2, timeout_ms=100)

    assert len(peer.asked) == 3


def test_a_lost_connection_fails_all_requests_in_flight():
    async def then(connection):
        calls = [connection.request(MetadataRequest(), MetadataResponse) for _ in range(3)]
        outcomes = await asyncio.gather(*calls, return_exceptions=True)
        assert [str(outcome) for outcome in outcomes] == [
            f"{connection.name}: the connection was closed"
        ] * 3
        assert not connection.is_open
        with pytest.raises(ConnectionError, match="the connection is closed"):
            await connection.request(MetadataRequest(), MetadataResponse)

    def hangs_up(header):
        return b""

    with_peer(speaks, nothing, hangs_up, then=then)


def test_a_request_time_out_closes_the_connection():
    async def then(connection):
        with pytest.raises(ConnectionError, match="Metadata was not answered within 50 ms"):
            await connection.request(MetadataRequest(), MetadataResponse)
        assert not connection.is_open

    with_peer(speaks, nothing, then=then, timeout_ms=50)


def test_the_response_to_a_cancelled_request_is_dropped():
    async def then(connection):
        given_up = asyncio.create_task(connection.request(MetadataRequest(), MetadataResponse))
        await asyncio.sleep(0)
        given_up.cancel()
        answer = await connection.request(MetadataRequest(), MetadataResponse)
        assert answer.cluster_id == "after 3"

    with_peer(speaks, metadata, metadata, then=then)


@pytest.mark.parametrize(
    ("damage", "complaint"),
    [
        (lambda h: metadata(h._replace(correlation_id=77)), "a response to 77; expected is 2"),
        (lambda h: b"\0", "response header: only 1 bytes"),
        (lambda h: metadata(h)[:-9], "Metadata"),
    ],
    ids=["another's answer", "no header", "torn"],
)
def test_a_damaged_response_closes_the_connection(damage, complaint):
    async def then(connection):
        with pytest.raises(ConnectionError, match=complaint):
            await connection.request(MetadataRequest(), MetadataResponse)
        with pytest.raises(ConnectionError):
            await connection.request(MetadataRequest(), MetadataResponse)

    with_peer(speaks, damage, nothing, then=then)


def test_a_refused_connection_is_an_error_with_the_address():
    async def open_closed_port():
        async with Peer(nothing) as peer:
            port = peer.port
        with pytest.raises(ConnectionError, match=rf"127.0.0.1:{port}: "):
            await Connection.open("127.0.0.1", port)

    asyncio.run(open_closed_port())


def test_a_peer_that_accepts_and_does_not_answer_times_out():
    async def then(connection):
        raise AssertionError

    with pytest.raises(ConnectionError, match="no answer within 50 ms"):
        with_peer(nothing, then=then, timeout_ms=50)


@pytest.mark.parametrize(("host", "port"), [("a..b", 9), ("x" * 64, 9), ("127.0.0.1", 65_536)])
def test_an_address_that_cannot_be_is_one_that_is_not_found(host, port):
    with pytest.raises(UnresolvedError, match=f"{port}: "):
        asyncio.run(Connection.open(host, port))
