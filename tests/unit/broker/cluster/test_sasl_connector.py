"""How a broker logs in to another before its first request."""

import asyncio
import hashlib
import logging

import pytest
from tests.unit.broker.other_broker import OtherBroker

import odradek.sim.world.loop as sim
from odradek.broker.cluster.peers import Peer, PeerError
from odradek.broker.cluster.sasl_connector import BrokerLogin, SaslConnector
from odradek.broker.serving.worker import LoopWorker
from odradek.model.errors import ErrorCode
from odradek.security.sasl.plain import PlainServer
from odradek.security.sasl.scram import ScramServer, derive
from odradek.security.sasl.step import Failed
from odradek.sim.world.clock import SimulatedClock
from odradek.wire.messages.controlled_shutdown import (
    ControlledShutdownRequest,
    ControlledShutdownResponse,
)
from odradek.wire.messages.sasl_authenticate import (
    SaslAuthenticateRequest,
    SaslAuthenticateResponse,
)
from odradek.wire.messages.sasl_handshake import SaslHandshakeRequest, SaslHandshakeResponse

QUESTION = ControlledShutdownRequest(broker_id=1, broker_epoch=5)
SALTED = hashlib.pbkdf2_hmac("sha512", b"secret", b"salt", 4096)
CREDENTIAL = derive("SCRAM-SHA-512", b"salt", SALTED, 4096)
JAAS = 'x.{} required username="broker" password="{}";'


class SecuredBroker(OtherBroker):
    """Another broker with PLAIN and SCRAM-SHA-512."""

    def __init__(self, lifetime_ms=0) -> None:
        super().__init__(self._answer)
        self.lifetime_ms = lifetime_ms
        self.servers = {
            "PLAIN": lambda: PlainServer({"broker": "secret"}),
            "SCRAM-SHA-512": lambda: ScramServer(
                "SCRAM-SHA-512",
                credentials={"broker": CREDENTIAL}.get,
                tokens={}.get,
                nonce="server",
                decoy_secret=b"decoy",
            ),
        }

    def _answer(self, request):
        match request:
            case SaslHandshakeRequest() if request.mechanism in self.servers:
                self.server = self.servers[request.mechanism]()
                return SaslHandshakeResponse(mechanisms=list(self.servers))
            case SaslHandshakeRequest():
                return SaslHandshakeResponse(
                    error_code=ErrorCode.UNSUPPORTED_SASL_MECHANISM, mechanisms=list(self.servers)
                )
            case SaslAuthenticateRequest():
                step = self.server.step(bytes(request.auth_bytes))
                if isinstance(step, Failed):
                    return SaslAuthenticateResponse(error_code=58, error_message=step.text)
                return SaslAuthenticateResponse(
                    auth_bytes=step.token, session_lifetime_ms=self.lifetime_ms
                )
        return ControlledShutdownResponse(error_code=9)


class Story:
    def __init__(self, mechanism="SCRAM-SHA-512", password="secret", **other) -> None:
        loop = asyncio.get_running_loop()
        clock = SimulatedClock(loop.time)
        self.other = SecuredBroker(**other)
        self.refusals = []
        self.login = BrokerLogin(
            mechanism, JAAS.format("ScramLoginModule", password), "listener.name.x", "broker"
        )
        connector = SaslConnector(
            self.other,
            lambda: self.login,
            worker=LoopWorker(loop),
            monotonic_ms=clock.monotonic_ms,
            refused=lambda *refusal: self.refusals.append(refusal),
            client_id="broker-1",
        )
        self.peer = Peer(
            "b2", 9092, connector=connector, clock=clock, client_id="broker-1", timeout_ms=2000
        )

    async def ask(self):
        return (await self.peer.ask(QUESTION, ControlledShutdownResponse)).error_code


def play(story, **given):
    async def main():
        await story(Story(**given))

    sim.run(main())


@pytest.mark.parametrize("mechanism", ["PLAIN", "SCRAM-SHA-512"])
def test_a_connection_is_authenticated_before_its_first_request(mechanism):
    async def story(it):
        assert await it.ask() == 9
        assert await it.ask() == 9
        kinds = [type(request) for request in it.other.requests]
        assert kinds[0] is SaslHandshakeRequest
        assert kinds[-2:] == [ControlledShutdownRequest] * 2
        assert kinds.count(SaslAuthenticateRequest) == (1 if mechanism == "PLAIN" else 2)
        assert len(it.other.connections) == 1
        assert it.refusals == []

    play(story, mechanism=mechanism)


def test_a_wrong_password_is_logged_once_with_what_to_do(caplog):
    async def story(it):
        for _ in range(3):
            with pytest.raises(PeerError, match="b2:9092 refuses the log-in"):
                await it.ask()
        await asyncio.sleep(0.01)
        assert it.other.open_connections == []
        assert it.other.of(ControlledShutdownRequest) == []
        assert [host for host, _ in it.refusals] == ["b2"] * 3

    with caplog.at_level(logging.DEBUG, logger="odradek"):
        play(story, password="hidden")
    (line,) = caplog.messages
    assert line.startswith(
        "the broker at b2:9092 refuses this broker's log-in as 'broker' with SCRAM-SHA-512: "
    )
    assert "listener.name.x" in line
    assert "hidden" not in caplog.text


def test_the_log_in_works_again_after_the_password_was_corrected(caplog):
    async def story(it):
        with pytest.raises(PeerError):
            await it.ask()
        right, it.login = it.login, BrokerLogin("PLAIN", JAAS.format("X", "y"), "o", "broker")
        with pytest.raises(PeerError):
            await it.ask()
        it.login = right._replace(jaas_config=JAAS.format("ScramLoginModule", "secret"))
        assert await it.ask() == 9

    play(story, password="x")
    assert len(caplog.messages) == 2


def test_a_mechanism_that_the_other_broker_has_not():
    async def story(it):
        with pytest.raises(PeerError, match="UNSUPPORTED_SASL_MECHANISM: it has PLAIN, SCRAM-SHA"):
            await it.ask()

    play(story, mechanism="SCRAM-SHA-256")


def test_a_connection_is_replaced_before_its_session_ends():
    async def story(it):
        await it.ask()
        await asyncio.sleep(8.4)
        await it.ask()
        assert len(it.other.connections) == 1
        await asyncio.sleep(0.2)
        assert await it.ask() == 9
        await asyncio.sleep(0.01)
        assert len(it.other.connections) == 2
        assert len(it.other.open_connections) == 1

    play(story, lifetime_ms=10_000)


def test_the_other_broker_closes_during_the_log_in():
    async def story(it):
        it.other.answer = lambda _: None
        asked = asyncio.ensure_future(it.ask())
        await asyncio.sleep(0.1)
        it.other.connections[0][2].abort()
        with pytest.raises(PeerError, match="closed the connection"):
            await asked
        assert it.refusals == []

    play(story)


def test_another_broker_cannot_make_this_one_compute_without_limit():
    async def story(it):
        it.other.server = None
        it.other.answer = lambda request: (
            SaslHandshakeResponse()
            if isinstance(request, SaslHandshakeRequest)
            else SaslAuthenticateResponse(
                auth_bytes=b"r=%b,s=c2FsdA==,i=2000000000"
                % (bytes(request.auth_bytes).rpartition(b"r=")[2] + b"x")
            )
        )
        with pytest.raises(PeerError, match="2000000000 iterations; must be 4096 to 1000000"):
            await it.ask()

    play(story)


def test_the_password_is_in_no_representation():
    login = BrokerLogin("PLAIN", JAAS.format("PlainLoginModule", "hidden"), "option", "broker")
    assert "hidden" not in repr(login)
