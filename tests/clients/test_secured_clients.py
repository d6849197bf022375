"""Unmodified clients of seven families on every security protocol with every mechanism.

Each client writes and reads back one round (see `rounds.py`) over each combination. It gets an
error, and not an endless wait, for a wrong password, for a broker's certificate that is for
another host or has expired, and for each right that its user lacks.

    ODRADEK_SECURED=kafka    test Apache Kafka 3.9 instead of an Odradek broker
"""

import json
import os
import pathlib
import re
import subprocess
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import rounds
from harness import run_program
from listeners import MECHANISMS, Listeners
from programs import CLIENTS, each_client

pytestmark = pytest.mark.skipif(
    os.environ.get("ODRADEK_CLIENTS") != "1",
    reason="many clients wait until their time is over: run by `./run clients`",
)

TIMEOUT_S = 120.0
COMBINATIONS = [
    ("SSL", None),
    ("SSL", "certificate"),
    *(
        (protocol, mechanism)
        for protocol in ("SASL_PLAINTEXT", "SASL_SSL")
        for mechanism in MECHANISMS
    ),
]
# How the libraries name one error, whichever language they are written in.
REFUSED_LOG_IN = re.compile(
    r"(?i)authentication failed|invalid credentials|SASL_AUTHENTICATION_FAILED"
    r"|SASL authentication error|invalid_token|SaslAuthenticationFailed"
)
# Clients that do not expect the error message of OAUTHBEARER (RFC 7628, section 3.2.2).
WITHOUT_BEARER_ERRORS = {
    "franz_go": re.compile("unexpected data in oauth response"),
    "kafkajs": re.compile("KafkaJSConnectionClosedError"),
    # It sends Metadata then, which Kafka answers with no brokers, and Odradek does not read.
    "aiokafka": re.compile(r"Connection at 127\.0\.0\.1:\d+ closed|No broker metadata found"),
}
# kafka-python drops a response that arrives together with the end of the connection.
WITHOUT_LAST_RESPONSE = {"kafka_python": re.compile("socket disconnected")}
# librdkafka does not name the cause.
UNVERIFIED = {"librdkafka": re.compile("certificate verify failed: broker certificate could not")}
OTHER_HOST = re.compile(
    r"IP address mismatch|Hostname/IP does not match|No subject alternative names"
    r"|cannot validate certificate for 127\.0\.0\.1"
)
EXPIRED = re.compile(r"(?i)certificate has expired|CertificateExpired|validity check failed")
NOT_AUTHORIZED = re.compile(
    r"(?i)TOPIC_AUTHORIZATION_FAILED|TopicAuthorization|not authorized to access (this |)topic"
)


@pytest.fixture(scope="module")
def listeners(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Listeners]:
    """An Odradek broker, or with ODRADEK_SECURED=kafka Apache Kafka's."""
    ours = os.environ.get("ODRADEK_SECURED") != "kafka"
    made = Listeners(tmp_path_factory.mktemp("listeners"), ours=ours)
    yield made
    made.stop()


class Run:
    """One run of a client program: one round, as one user."""

    def __init__(self, client: str, listeners: Listeners, folder: pathlib.Path) -> None:
        self._client = client
        self._listeners = listeners
        self._folder = folder

    def prepare(
        self, listener: str, security: dict[str, str], prefix: str
    ) -> tuple[rounds.Round, list[str]]:
        name = f"{prefix}{self._client}-{time.time_ns():x}"
        asked = next(
            each
            for each in rounds.all_rounds(name, null_header_values=False)
            if str(each) == "gzip-acks_all"
        )
        plan, file = self._folder / "plan.json", self._folder / "security.json"
        plan.write_text(rounds.plan([asked]))
        file.write_text(json.dumps(security))
        bootstrap = f"127.0.0.1:{self._listeners.ports[listener]}"
        command = [*CLIENTS[self._client](), bootstrap, "round_trips", str(plan), str(file)]
        return asked, command

    def works(self, listener: str, security: dict[str, str]) -> None:
        asked, command = self.prepare(listener, security, "alice-")
        report: dict[str, Any] = run_program(command, timeout_s=TIMEOUT_S)
        (seen,) = report["rounds"]
        assert list(rounds.problems(asked, seen)) == []

    def refused(self, listener: str, security: dict[str, str], prefix: str = "alice-") -> str:
        """What the program logs and reports. It must end by itself, with an error."""
        _, command = self.prepare(listener, security, prefix)
        done = subprocess.run(
            command,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=TIMEOUT_S,
            check=False,
        )
        assert done.returncode != 0, done.stdout[-2000:]
        return done.stderr


@pytest.fixture
def run(listeners: Listeners, tmp_path: pathlib.Path) -> Callable[[str], Run]:
    return lambda client: Run(client, listeners, tmp_path)


@pytest.mark.parametrize(("listener", "how"), COMBINATIONS)
@pytest.mark.parametrize("client", each_client())
def test_what_it_writes_it_reads_back(
    run: Callable[[str], Run], listeners: Listeners, client: str, listener: str, how: str | None
) -> None:
    run(client).works(listener, listeners.security(listener, how))


@pytest.mark.parametrize("mechanism", MECHANISMS)
@pytest.mark.parametrize("client", each_client())
def test_a_wrong_password_or_token_is_an_error(
    run: Callable[[str], Run], listeners: Listeners, client: str, mechanism: str
) -> None:
    wrong = {"password": "wrong", "token": listeners.token("alice", audience="elsewhere")}
    security = listeners.security("SASL_SSL", mechanism)
    security |= {name: value for name, value in wrong.items() if name in security}
    known = WITHOUT_BEARER_ERRORS if mechanism == "OAUTHBEARER" else {}
    refused = run(client).refused("SASL_SSL", security)
    wanted = [known.get(client, REFUSED_LOG_IN), WITHOUT_LAST_RESPONSE.get(client)]
    assert any(each.search(refused) for each in wanted if each is not None)


@pytest.mark.parametrize("client", each_client())
def test_a_certificate_for_another_host_is_refused(
    run: Callable[[str], Run], listeners: Listeners, client: str
) -> None:
    printed = run(client).refused("ELSEWHERE", listeners.security("ELSEWHERE", None))
    assert UNVERIFIED.get(client, OTHER_HOST).search(printed)


@pytest.mark.parametrize("client", each_client())
def test_an_expired_certificate_is_refused(
    run: Callable[[str], Run], listeners: Listeners, client: str
) -> None:
    printed = run(client).refused("EXPIRED", listeners.security("EXPIRED", None))
    assert UNVERIFIED.get(client, EXPIRED).search(printed)


@pytest.mark.parametrize("how", ["certificate", "SCRAM-SHA-256"])
@pytest.mark.parametrize("missing", ["create", "write", "read"])
@pytest.mark.parametrize("client", each_client())
def test_a_missing_right_is_an_error(
    run: Callable[[str], Run], listeners: Listeners, client: str, missing: str, how: str
) -> None:
    listener = {"certificate": "SSL"}.get(how, "SASL_SSL")
    security = listeners.security(listener, how, user="bob")
    assert NOT_AUTHORIZED.search(run(client).refused(listener, security, f"{missing}-"))
