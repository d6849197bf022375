"""Records the answers of the ACL matrix: `python tests/clients/support/acl_matrix.py`.

It starts Apache Kafka 3.9 with ZooKeeper, with its AclAuthorizer, and a listener on which clients
authenticate with SASL/PLAIN. It takes a few minutes, and writes `answers.jsonl` in
`tests/recorded/acl_matrix`, with which `tests/recorded/test_acl_matrix.py` compares our answers.
"""

import asyncio
import pathlib
import socket
import struct
import sys
import tempfile
import time
from typing import Any, Final

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[3]))
sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))

import apache
import fetch
import raw
from tests.recorded.acl_matrix import answers
from tests.recorded.acl_matrix.cluster import MatrixCluster
from tests.recorded.acl_matrix.probes import BROKER_ID, PROBES
from tests.recorded.acl_matrix.situations import ADMIN, SITUATIONS, Situation

from odradek.security.acls import Requester
from odradek.wire.api_keys import APIS, response_class
from odradek.wire.codec import decoder, encoder
from odradek.wire.header import decode_response_header, encode_request_header
from odradek.wire.messages.sasl_authenticate import SaslAuthenticateRequest
from odradek.wire.messages.sasl_handshake import SaslHandshakeRequest
from odradek.wire.schema import Message

_USERS: Final = ("admin", "alice", "bob")
_LOGIN: Final = "org.apache.kafka.common.security.plain.PlainLoginModule required"
_TIMEOUT_S: Final = 20.0


def _properties(*, allow_if_no_acl: bool) -> dict[str, str]:
    users = " ".join(f'user_{user}="{user}-secret"' for user in _USERS)
    return {
        "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,SASL:SASL_PLAINTEXT",
        "inter.broker.listener.name": "PLAINTEXT",
        "sasl.enabled.mechanisms": "PLAIN",
        "listener.name.sasl.plain.sasl.jaas.config": f"{_LOGIN} {users};",
        "authorizer.class.name": "kafka.security.authorizer.AclAuthorizer",
        "super.users": f"{ADMIN};User:ANONYMOUS",
        "allow.everyone.if.no.acl.found": str(allow_if_no_acl).lower(),
        "delegation.token.secret.key": "the key of the tokens",
        "transaction.abort.timed.out.transaction.cleanup.interval.ms": "600000",
        "offsets.topic.num.partitions": "2",
        "transaction.state.log.num.partitions": "2",
        "log.retention.ms": "-1",
        "controlled.shutdown.enable": "false",
    }


class KafkaWorld:
    """Clients of Apache Kafka that authenticate with SASL/PLAIN."""

    def __init__(self, port: int) -> None:
        self._port = port
        self._connections: dict[Requester, _Client] = {}

    async def ask(self, client: Requester, request: Message, version: int | None = None) -> Any:
        connection = self._connections.get(client)
        if connection is None:
            connection = self._connections[client] = _Client(client, self._port)
        try:
            return connection.ask(request, version)
        except OSError as error:
            error.add_note(f"{type(request).__name__} v{version} of {client}")
            raise

    def close(self) -> None:
        for connection in self._connections.values():
            connection.close()


class _Client:
    def __init__(self, client: Requester, port: int) -> None:
        self._socket = socket.create_connection(
            (apache.HOST, port), _TIMEOUT_S, source_address=(client.host, 0)
        )
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._correlation_id = 0
        name = client.principal.removeprefix("User:")
        assert not self.ask(SaslHandshakeRequest(mechanism="PLAIN"), 1).error_code
        proof = f"\0{name}\0{name}-secret".encode()
        answer = self.ask(SaslAuthenticateRequest(auth_bytes=proof), 2)
        assert not answer.error_code, answer.error_message

    def ask(self, request: Message, version: int | None = None) -> Any:
        key = request.SCHEMA.request_key
        version = APIS[key].last if version is None else version
        self._correlation_id += 1
        frame = bytes(encode_request_header(key, version, self._correlation_id, "matrix"))
        frame += bytes(encoder(type(request), version)(request))
        self._socket.sendall(struct.pack(">i", len(frame)) + frame)
        (length,) = struct.unpack(">i", raw.receive(self._socket, 4))
        view = memoryview(raw.receive(self._socket, length))
        reported, position = decode_response_header(view, 0, key, version)
        assert reported == self._correlation_id
        response, end = decoder(response_class(key), version)(view, position)
        assert end == length
        return response

    def close(self) -> None:
        self._socket.close()


class _Kafka:
    """One broker of Apache Kafka, which is restarted with other options."""

    def __init__(self, home: pathlib.Path, zookeeper: str) -> None:
        self._home, self._zookeeper = home, zookeeper
        self.port, self.sasl_port = apache.free_port(), apache.free_port()
        self._broker: apache.Broker | None = None

    def start(self, *, allow_if_no_acl: bool) -> None:
        self.stop()
        self._broker = apache.Broker(
            self._home, self._zookeeper, broker_id=BROKER_ID, port=self.port, heap="512M",
            properties=_properties(allow_if_no_acl=allow_if_no_acl),
            listeners=[f"SASL://{apache.HOST}:{self.sasl_port}"],
        )  # fmt: skip
        self._broker.wait()

    def stop(self) -> None:
        if self._broker is not None:
            self._broker.stop()


async def _ask_all(
    kafka: _Kafka, situations: list[Situation], found: dict[str, list[Any]], *, is_new: bool
) -> None:
    world = KafkaWorld(kafka.sasl_port)
    cluster = MatrixCluster(world)
    if is_new:
        await cluster.prepare()
    else:
        await cluster.resume()
    began_s = time.monotonic()
    for number, situation in enumerate(situations, 1):
        given = await cluster.answers(situation, PROBES)
        for probe, answer in zip(PROBES, given, strict=True):
            found.setdefault(probe.name, []).append(answer)
        _say(f"{number}/{len(situations)} {time.monotonic() - began_s:.1f} s: {situation}")
    world.close()


def _say(line: str) -> None:
    sys.stdout.write(f"{line}\n")


def main() -> None:
    with tempfile.TemporaryDirectory() as name:
        home = pathlib.Path(name)
        zookeeper = apache.ZooKeeper(home / "zookeeper")
        kafka = _Kafka(home / "broker", zookeeper.address)
        found: dict[str, list[Any]] = {}
        try:
            for allow_if_no_acl in (False, True):
                kafka.start(allow_if_no_acl=allow_if_no_acl)
                chosen = [s for s in SITUATIONS if s.allow_if_no_acl is allow_if_no_acl]
                asyncio.run(_ask_all(kafka, chosen, found, is_new=not allow_if_no_acl))
        finally:
            kafka.stop()
            zookeeper.stop()
    answers.write(fetch.kafka_version(apache.LINE), SITUATIONS, PROBES, found)
    _say(f"{len(SITUATIONS) * len(PROBES)} answers: {answers.FILE.stat().st_size} bytes")


if __name__ == "__main__":
    main()
