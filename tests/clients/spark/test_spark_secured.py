"""Spark and secured clusters, of Apache Kafka 3.9 and ours: TLS, certificates, SASL, ACLs."""

import json
import pathlib
import sys
from collections.abc import Iterator

import apache
import pytest
from harness import run_program
from listeners import MECHANISMS, Listeners
from secured import PASSWORD, PLAIN, SCRAM, USER, Secured, scram_password

pytestmark = pytest.mark.jvm

SCRIPT = pathlib.Path(__file__).resolve().parents[1] / "support" / "spark" / "secured.py"


@pytest.fixture(scope="module")
def secured(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Secured]:
    made = Secured(tmp_path_factory.mktemp("secured"))
    yield made
    made.stop()


def options(secured: Secured, protocol: str, **more: str) -> dict[str, str]:
    text = {
        "bootstrap.servers": f"{apache.HOST}:{secured.ports[protocol]}",
        "security.protocol": protocol,
    }
    if protocol.endswith("SSL"):
        text |= {"ssl.truststore.type": "PEM", "ssl.truststore.location": secured.files["ca"]}
    text |= {name.replace("_", "."): value for name, value in more.items()}
    return {f"kafka.{name}": value for name, value in text.items()}


def sasl(mechanism: str, password: str) -> dict[str, str]:
    module = PLAIN if mechanism == "PLAIN" else SCRAM
    return {"sasl_mechanism": mechanism, "sasl_jaas_config": module.format(USER, password)}


def play(topic: str, cases: dict[str, dict[str, str]]) -> dict[str, dict[str, str]]:
    """What each case reports."""
    command = [sys.executable, str(SCRIPT), topic, json.dumps(cases)]
    return run_program(command, timeout_s=600, SPARK_LOCAL_IP=apache.HOST)


def welcome(reported: dict[str, dict[str, str]]) -> list[str]:
    """The cases that wrote and read everything."""
    return [name for name, output in reported.items() if output == {"batch": "ok", "stream": "ok"}]


def test_authorized_clients_read_and_others_get_an_error_with_topic_and_address(
    secured: Secured,
) -> None:
    plain, scram = sasl("PLAIN", PASSWORD), sasl("SCRAM-SHA-512", scram_password())
    key = {"ssl_keystore_type": "PEM", "ssl_keystore_location": secured.files["key"]}
    cases = {
        "a certificate": options(secured, "SSL", **key),
        "a password": options(secured, "SASL_PLAINTEXT", **plain),
        "a password over TLS": options(secured, "SASL_SSL", **scram),
        "a wrong password": options(secured, "SASL_PLAINTEXT", **sasl("PLAIN", "wrong")),
        "a wrong password by SCRAM": options(secured, "SASL_SSL", **sasl("SCRAM-SHA-512", "wrong")),
        "a server with an untrusted certificate": options(secured, "SASL_SSL", **scram)
        | {"kafka.ssl.truststore.location": secured.files["other"]},
        "no server listens": {"kafka.bootstrap.servers": f"{apache.HOST}:1"},
    }

    reported = play("sealed", cases)

    assert welcome(reported) == ["a certificate", "a password", "a password over TLS"]
    reasons = {
        "a wrong password": "uthentication failed",
        "a wrong password by SCRAM": "uthentication failed",
        "a server with an untrusted certificate": "TLS: ",
        "no server listens": "Connection refused",
    }
    for name, reason in reasons.items():
        address = cases[name]["kafka.bootstrap.servers"]
        for kind, doing in (("batch", "writing to sealed"), ("stream", "reading sealed")):
            output = reported[name][kind]
            assert f"{doing}: " in output, (name, output)
            assert address in output, (name, output)
            assert reason in output, (name, output)


@pytest.fixture(scope="module")
def listeners(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Listeners]:
    made = Listeners(tmp_path_factory.mktemp("listeners"), ours=True)
    yield made
    made.stop()


def on_ours(listeners: Listeners, listener: str, how: str, user: str = "alice") -> dict[str, str]:
    """The options of a user of our broker."""
    security = listeners.security(listener, how, user=user)
    text = {
        "bootstrap.servers": f"{apache.HOST}:{listeners.ports[listener]}",
        "security.protocol": listener,
        "ssl.truststore.type": "PEM",
        "ssl.truststore.location": security["ca"],
    }
    if "certificate" in security:
        text |= {"ssl.keystore.type": "PEM", "ssl.keystore.location": security["certificate"]}
    if "token" in security:
        url = pathlib.Path(security["token"]).as_uri()
        text |= {"sasl.mechanism": how, "sasl.oauthbearer.token.endpoint.url": url}
    if "password" in security:
        module = PLAIN if how == "PLAIN" else SCRAM
        jaas = module.format(user, security["password"])
        text |= {"sasl.mechanism": how, "sasl.jaas.config": jaas}
    return {f"kafka.{name}": value for name, value in text.items()}


def test_our_broker_serves_users_with_rights_and_tells_others_what_is_wrong(
    listeners: Listeners,
) -> None:
    scram = on_ours(listeners, "SASL_SSL", "SCRAM-SHA-512")
    cases = {how: on_ours(listeners, "SASL_SSL", how) for how in MECHANISMS}
    cases |= {
        "a certificate": on_ours(listeners, "SSL", "certificate"),
        "a wrong password": scram | {"kafka.sasl.jaas.config": SCRAM.format("alice", "wrong")},
        "a user without rights": on_ours(listeners, "SASL_SSL", "SCRAM-SHA-512", "bob"),
    }

    reported = play("alice-sealed", cases)

    assert welcome(reported) == [*MECHANISMS, "a certificate"], reported
    reasons = {
        "a wrong password": "uthentication failed",
        "a user without rights": "TOPIC_AUTHORIZATION_FAILED",
    }
    for name, reason in reasons.items():
        for output in reported[name].values():
            assert reason in output, (name, output)
            assert "bob-secret" not in output
