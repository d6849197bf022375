"""Connections of a SASL listener: what they may do before, during and after authentication."""

import asyncio
import contextlib
import hashlib
import logging

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.unit.broker.live import play

from odradek.broker.serving.authentication import Authentication
from odradek.broker.serving.authentication_counts import (
    RATED,
    AuthenticationCounts,
    CountsByListener,
)
from odradek.broker.serving.worker import LoopWorker
from odradek.client.security.scram import ScramExchange
from odradek.model.clock import WallMs, read_clocks
from odradek.model.cluster import EndPoint
from odradek.model.errors import ErrorCode
from odradek.net.mute import Mute
from odradek.net.server import ConnectionLimits, Server
from odradek.net.unauthenticated import CONNECTION_BYTES
from odradek.security.sasl.exchange import SaslRules
from odradek.security.sasl.oauthbearer import BearerToken, OAuthBearerServer, TokenRefused
from odradek.security.sasl.plain import PlainServer
from odradek.security.sasl.scram import ScramServer, derive
from odradek.security.sasl.step import Computation
from odradek.wire.header import encode_request_header
from odradek.wire.messages.api_versions import ApiVersionsRequest
from odradek.wire.messages.describe_cluster import DescribeClusterRequest
from odradek.wire.messages.metadata import MetadataRequest
from odradek.wire.messages.sasl_authenticate import SaslAuthenticateRequest
from odradek.wire.messages.sasl_handshake import SaslHandshakeRequest

PORT = 9093
ALICE = b"\0alice\0alice-secret"
WRONG = b"\0alice\0wrong"
SALTED = hashlib.pbkdf2_hmac("sha256", b"alice-secret", b"salt", 4096)
CREDENTIAL = derive("SCRAM-SHA-256", b"salt", SALTED, 4096)


def scram():
    return ScramServer(
        "SCRAM-SHA-256",
        credentials={"alice": CREDENTIAL}.get,
        tokens={}.get,
        nonce="server",
        decoy_secret=b"decoy",
    )


def bearer(token):
    """A validator that takes long: the answer is computed in the worker."""
    if token == "broken":
        raise ZeroDivisionError
    return (
        BearerToken("alice", frozenset(), WallMs(1 << 50))
        if token == "good"
        else TokenRefused("bad")
    )


class Slow:
    """OAUTHBEARER, checked outside of the loop."""

    def __init__(self):
        self.server = OAuthBearerServer(bearer)

    def step(self, token):
        return Computation(lambda: self.server.step(token))


async def listen(live, max_reauth_ms=0, receive_bytes_max=1000, **limits):
    """Open a SASL listener, and connect to it."""
    rules = SaslRules(
        servers={
            "PLAIN": lambda: PlainServer({"alice": "alice-secret"}),
            "SCRAM-SHA-256": scram,
            "OAUTHBEARER": Slow,
        },
        max_reauth_ms={"PLAIN": max_reauth_ms},
        receive_bytes_max=receive_bytes_max,
    )
    broker = live.broker
    server = live.server = Server(
        live.network,
        broker.requests,
        ConnectionLimits(**limits),
        monotonic_ms=live.clock.monotonic_ms,
        soon=broker.turns.soon,
    )
    gate = live.gate = Authentication(
        server,
        unauthenticated=server.unauthenticated,
        note_refusal=broker.requests.note_refusal,
        worker=LoopWorker(live.loop),
        now=lambda: read_clocks(live.clock),
        call_later=live.loop.call_later,
        counts=CountsByListener(live.clock.monotonic_ms),
    )
    gate.set_rules("SECURE", rules)
    server.in_front["SECURE"] = gate
    for name, protocol, port in (
        ("SECURE", "SASL_PLAINTEXT", PORT),
        ("OPEN", "PLAINTEXT", PORT + 1),
    ):
        point = EndPoint(listener=name, security_protocol=protocol, host="b0", port=port)
        await server.listen(point)
    return live.peer(PORT)


async def log_in(peer, token=ALICE, version=1):
    """The response to a PLAIN message."""
    handshake = await peer.ask(SaslHandshakeRequest(mechanism="PLAIN"), 1)
    assert (handshake.error_code, handshake.mechanisms) == (
        0,
        ["PLAIN", "SCRAM-SHA-256", "OAUTHBEARER"],
    )
    return await peer.ask(SaslAuthenticateRequest(auth_bytes=token), version)


@pytest.mark.parametrize("version", [0, 1, 2])
def test_versions_handshake_token_and_requests(version):
    async def story(live):
        peer = await listen(live)
        session = peer.connection.session
        assert (await peer.ask(ApiVersionsRequest(), 0)).error_code == 0
        assert peer.connection.frame_bytes_max == 1000

        answer = await log_in(peer, version=version)
        assert (answer.error_code, answer.error_message) == (0, None)
        assert session.principal == "User:alice"
        assert peer.connection.frame_bytes_max == 104_857_600
        assert (await peer.ask(DescribeClusterRequest(), 1)).error_code == 0
        late = await peer.ask(SaslHandshakeRequest(mechanism="PLAIN"), 1)
        assert late.error_code == ErrorCode.ILLEGAL_SASL_STATE

    play(story)


def test_scram():
    async def story(live):
        peer = await listen(live)
        client = ScramExchange("SCRAM-SHA-256", "alice", "alice-secret", nonce="client")

        await peer.ask(SaslHandshakeRequest(mechanism="SCRAM-SHA-256"), 1)
        challenge = await peer.ask(SaslAuthenticateRequest(auth_bytes=client.first()), 2)
        final = client.final(bytes(challenge.auth_bytes))
        assert peer.connection.session.principal == "User:ANONYMOUS"
        done = await peer.ask(SaslAuthenticateRequest(auth_bytes=final), 2)
        client.verify(bytes(done.auth_bytes))
        assert peer.connection.session.principal == "User:alice"

    play(story)


def test_tokens_without_headers():
    async def story(live):
        peer = await listen(live)

        await peer.ask(SaslHandshakeRequest(mechanism="PLAIN"), 0)
        answer = peer.expect_frame()
        peer.send_frame(ALICE)
        assert await answer == b""
        assert (await peer.ask(DescribeClusterRequest(), 1)).error_code == 0
        assert peer.connection.session.principal == "User:alice"

    play(story)


def test_a_wrong_password_is_answered_after_a_delay_and_the_connection_closed(caplog):
    async def story(live):
        peer = await listen(live)
        begun = live.loop.time()

        answer = await log_in(peer, WRONG)
        assert answer.error_code == ErrorCode.SASL_AUTHENTICATION_FAILED
        assert answer.error_message == "Authentication failed: Invalid username or password"
        assert live.loop.time() - begun == pytest.approx(0.1, abs=0.01)
        await live.until(lambda: peer.closed)
        assert peer.connection.session.principal == "User:ANONYMOUS"

    with caplog.at_level(logging.DEBUG):
        play(story)
    assert "authentication failed: wrong user name or password for 'alice'" in caplog.text
    assert "wrong'" not in caplog.text


def test_requests_behind_a_wrong_password_are_not_handled():
    async def story(live):
        peer = await listen(live)
        answer = peer.send(SaslHandshakeRequest(mechanism="PLAIN"), 1)
        refused = peer.send(SaslAuthenticateRequest(auth_bytes=WRONG), 1)
        peer.send(SaslAuthenticateRequest(auth_bytes=ALICE), 1, answered=False)
        peer.send(DescribeClusterRequest(), 1, answered=False)

        assert (await answer).error_code == 0
        assert (await refused).error_code == ErrorCode.SASL_AUTHENTICATION_FAILED
        await live.until(lambda: peer.closed)
        assert peer.connection.session.principal == "User:ANONYMOUS"

    play(story)


def test_a_mechanism_that_is_not_enabled():
    async def story(live):
        peer = await listen(live)

        answer = await peer.ask(SaslHandshakeRequest(mechanism="GSSAPI"), 1)
        assert answer.error_code == ErrorCode.UNSUPPORTED_SASL_MECHANISM
        assert answer.mechanisms == ["PLAIN", "SCRAM-SHA-256", "OAUTHBEARER"]
        await live.until(lambda: peer.closed)

    play(story)


@pytest.mark.parametrize(
    "frame",
    [
        b"",
        b"\x60\x82",
        encode_request_header(3, 1, 1, "x"),
        encode_request_header(36, 1, 1, "x"),
        encode_request_header(17, 9, 1, "x"),
        encode_request_header(17, 1, 1, "x"),
        encode_request_header(17, 1, 1, "x") + b"\0\x02\xff\xff",
        encode_request_header(60, 0, 1, "x"),
        b"\x7f\xff\0\0\0\0\0\1\0\0",
        b"x" * 1001,
    ],
    ids=lambda frame: frame[:12].hex() or "empty",
)
def test_another_first_frame_closes_the_connection_without_an_answer(frame, caplog):
    async def story(live):
        peer = await listen(live)

        peer.send_frame(frame)
        await live.until(lambda: peer.closed)
        assert peer.connection.session.principal == "User:ANONYMOUS"

    with caplog.at_level(logging.WARNING):
        play(story)
    assert "closed 10.0.0.7:4711: " in caplog.text


def test_a_frame_above_the_limit_is_named_with_its_option(caplog):
    async def story(live):
        peer = await listen(live)
        peer.send_frame(b"x" * 1001)
        await live.until(lambda: peer.closed)

    with caplog.at_level(logging.WARNING):
        play(story)
    assert "frame of 1001 bytes; sasl.server.max.receive.size=1000" in caplog.text


def test_another_request_instead_of_a_token_closes_the_connection():
    async def story(live):
        peer = await listen(live)
        await peer.ask(SaslHandshakeRequest(mechanism="PLAIN"), 1)
        peer.send(MetadataRequest(), 1, answered=False)

        await live.until(lambda: peer.closed)

    play(story)


def test_an_unknown_version_of_api_versions_is_answered():
    async def story(live):
        peer = await listen(live)
        answer = peer.expect_frame()
        peer.send_frame(encode_request_header(18, 99, 1, "x"))

        assert int.from_bytes((await answer)[4:6], "big") == ErrorCode.UNSUPPORTED_VERSION
        assert (await peer.ask(ApiVersionsRequest(), 0)).error_code == 0
        assert (await log_in(peer)).error_code == 0

    play(story)


def test_a_session_is_renewed_and_ends():
    async def story(live):
        peer = await listen(live, max_reauth_ms=5000)
        assert (await log_in(peer)).session_lifetime_ms == 5000
        await asyncio.sleep(4000 / 1000)
        assert (await log_in(peer)).session_lifetime_ms == 5000
        await asyncio.sleep(4000 / 1000)
        assert (await peer.ask(DescribeClusterRequest(), 1)).error_code == 0
        await asyncio.sleep(1100 / 1000)
        peer.send(DescribeClusterRequest(), 1, answered=False)

        await live.until(lambda: peer.closed)

    play(story)


def test_a_client_that_closes_before_it_is_answered():
    async def story(live):
        peer = await listen(live)
        await peer.ask(SaslHandshakeRequest(mechanism="PLAIN"), 1)
        peer.send(SaslAuthenticateRequest(auth_bytes=WRONG), 1, answered=False)
        with contextlib.suppress(ConnectionError):
            peer.hang_up()
        await asyncio.sleep(200 / 1000)

        assert peer.connection.session.principal == "User:ANONYMOUS"

    play(story)


def test_another_listener_is_open():
    async def story(live):
        await listen(live)
        peer = live.peer(PORT + 1)

        assert (await peer.ask(DescribeClusterRequest(), 1)).error_code == 0
        assert peer.connection.session.principal == "User:ANONYMOUS"

    play(story)


async def bearer_login(peer, token):
    await peer.ask(SaslHandshakeRequest(mechanism="OAUTHBEARER"), 1)
    message = b"n,,\1auth=Bearer %b\1\1" % token
    return peer.send(SaslAuthenticateRequest(auth_bytes=message), 1)


def test_a_signature_is_checked_in_the_worker_and_later_requests_wait():
    async def story(live):
        peer = await listen(live)
        answer = await bearer_login(peer, b"good")
        described = peer.send(DescribeClusterRequest(), 1)
        assert not answer.done(), "computed on the loop"

        assert (await answer).error_code == 0
        assert (await described).error_code == 0
        assert peer.connection.session.principal == "User:alice"

    play(story)


def test_a_client_that_closes_while_its_token_is_checked():
    async def story(live):
        peer = await listen(live)
        await bearer_login(peer, b"good")
        peer.hang_up()
        await asyncio.sleep(0.5)

        assert len(live.server.unauthenticated) == 0
        assert peer.connection.session.principal == "User:ANONYMOUS"
        assert live.failures == []

    play(story)


def test_a_token_that_is_refused_in_the_worker():
    async def story(live):
        peer = await listen(live)
        answer = await (await bearer_login(peer, b"bad"))
        assert b"invalid_token" in bytes(answer.auth_bytes)
        last = await peer.ask(SaslAuthenticateRequest(auth_bytes=b"\1"), 1)
        assert last.error_code == ErrorCode.SASL_AUTHENTICATION_FAILED
        await live.until(lambda: peer.closed)

    play(story)


def test_a_failure_of_the_check_refuses_the_client(caplog):
    async def story(live):
        peer = await listen(live)
        answer = await (await bearer_login(peer, b"broken"))
        assert answer.error_code == ErrorCode.SASL_AUTHENTICATION_FAILED
        await live.until(lambda: peer.closed)

    play(story)
    assert "a message of an authentication could not be checked" in caplog.text


def test_the_end_of_a_throttle_time_does_not_let_a_refused_client_go_on():
    async def story(live):
        peer = await listen(live)
        await peer.ask(SaslHandshakeRequest(mechanism="PLAIN"), 1)
        live.broker.requests.throttle(peer.connection, 20)
        answer = peer.send(SaslAuthenticateRequest(auth_bytes=WRONG), 1)
        peer.send(SaslAuthenticateRequest(auth_bytes=ALICE), 1, answered=False)
        await asyncio.sleep(0.021)
        live.broker.requests.throttle(peer.connection, 20)
        await asyncio.sleep(0.021)
        peer.connection.unmute(Mute.RATE)
        assert not peer.transport.reading

        assert (await answer).error_code == ErrorCode.SASL_AUTHENTICATION_FAILED
        await live.until(lambda: peer.closed)
        assert peer.connection.session.principal == "User:ANONYMOUS"

    play(story)


def test_a_client_that_does_not_authenticate_in_time_is_closed():
    async def story(live):
        late = await listen(live, unauthenticated_ms_max=1000)
        done = live.peer(PORT)
        await log_in(done)
        await asyncio.sleep(0.9)
        await late.ask(SaslHandshakeRequest(mechanism="PLAIN"), 1)
        await asyncio.sleep(0.2)
        live.server.drop_idle()
        await asyncio.sleep(0.1)

        assert (late.closed, done.closed) == (True, False)
        assert len(live.server.unauthenticated) == 0

    play(story)


def test_clients_without_credentials_take_bounded_memory():
    async def story(live):
        first = await listen(
            live, receive_bytes_max=524_288, unauthenticated_bytes_max=4 * CONNECTION_BYTES
        )
        await log_in(first)
        peers = [live.peer(PORT) for _ in range(3)]
        for peer in peers:
            peer._to_send += (500_000).to_bytes(4, "big") + bytes(200_000)
            peer.pump()
        await asyncio.sleep(0.1)

        assert sum(peer.closed for peer in peers) == 3
        assert not first.closed
        assert live.server.unauthenticated.memory_bytes == 0
        assert live.server.unauthenticated.dropped_connections == 3

    play(story)


def test_what_happens_is_counted_by_listener():
    async def story(live):
        peer = await listen(live, max_reauth_ms=5000)
        counts = live.gate.counts["SECURE"]
        await log_in(peer, version=0)
        await log_in(live.peer(PORT))
        await log_in(live.peer(PORT), WRONG)
        live.peer(PORT).send(DescribeClusterRequest(), 1, answered=False)
        await asyncio.sleep(2)
        await log_in(peer)
        await asyncio.sleep(2)
        await log_in(peer, WRONG)
        expired = live.peer(PORT)
        await log_in(expired)
        await asyncio.sleep(6)
        expired.send(DescribeClusterRequest(), 1, answered=False)

        assert counts == AuthenticationCounts(
            successful_authentication_total=3,
            successful_authentication_no_reauth_total=1,
            failed_authentication_total=2,
            successful_reauthentication_total=1,
            failed_reauthentication_total=1,
            expired_connections_killed_count=1,
        )
        now_ms = live.clock.monotonic_ms()
        rates = {name: rate.total(now_ms) for name, rate in counts.rates.items()}
        assert rates == {name: getattr(counts, f"{name}_total") for name in RATED}

    play(story)


def test_the_time_to_log_in_again_is_measured_from_its_first_request():
    async def story(live):
        peer = await listen(live, max_reauth_ms=5000)
        latency = live.gate.counts["SECURE"].latency
        await log_in(peer)
        await asyncio.sleep(1)
        assert latency.max_ms(live.clock.monotonic_ms()) is None
        for took_s in (1, 3):
            await peer.ask(SaslHandshakeRequest(mechanism="PLAIN"), 1)
            await asyncio.sleep(took_s)
            await peer.ask(SaslAuthenticateRequest(auth_bytes=ALICE), 1)
            await asyncio.sleep(1)
        now_ms = live.clock.monotonic_ms()
        assert latency.average_ms(now_ms) == pytest.approx(2000, rel=0.1)
        assert latency.max_ms(now_ms) == pytest.approx(3000, rel=0.1)
        assert latency.max_ms(now_ms + 60_000) is None

    play(story)


def test_a_refused_client_is_named_for_why_and_doctor():
    async def story(live):
        peer = await listen(live)
        await peer.ask(ApiVersionsRequest(client_software_name="app", client_software_version="1"))
        await log_in(peer, WRONG)

        (client,) = live.broker.incidents.refusals
        assert client[:4] == (
            "authentication failed: wrong user name or password for 'alice'",
            "10.0.0.7",
            "peer",
            "app 1",
        )

    play(story)


def test_an_authenticated_connection_reports_to_the_server():
    async def story(live):
        peer = await listen(live)
        await log_in(peer)
        live.gate.frame = None  # not called any more

        assert (await peer.ask(DescribeClusterRequest(), 1)).error_code == 0
        peer.hang_up()
        await asyncio.sleep(0.1)
        assert live.server.connection_count == 0

    play(story)


@given(
    frames=st.lists(
        st.one_of(
            st.binary(max_size=80),
            st.builds(
                lambda key, version, rest: encode_request_header(key, version, 1, "x") + rest,
                st.sampled_from([0, 3, 17, 18, 36]),
                st.integers(0, 3),
                st.binary(max_size=60),
            ),
        ),
        max_size=6,
    ),
    begins=st.booleans(),
)
@settings(max_examples=60, deadline=None)
def test_bytes_without_a_password_authenticate_nobody(frames, begins):
    async def story(live):
        peer = await listen(live)
        peer.awaited = Swallowed()
        if begins:
            peer.send_frame(HANDSHAKE)
        for frame in frames:
            peer.send_frame(frame)
        await asyncio.sleep(0.3)

        assert peer.connection.session.principal == "User:ANONYMOUS"
        assert live.failures == []

    play(story)


class Swallowed(list):
    """Awaits every response, whatever it answers."""

    def __bool__(self):
        return True

    def pop(self, index):
        return None, None, None, asyncio.get_running_loop().create_future()


HANDSHAKE = encode_request_header(17, 1, 1, "x") + b"\0\x05PLAIN"
