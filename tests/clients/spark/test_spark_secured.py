"""Spark and secured clusters: Apache Kafka 3.9 with TLS, client certificates and SASL."""

import json
import pathlib
import sys
from collections.abc import Iterator

import apache
import pytest
from harness import run_program
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

    reported = run_program([sys.executable, str(SCRIPT), json.dumps(cases)], timeout_s=600)

    welcome = [
        name for name, output in reported.items() if output == {"batch": "ok", "stream": "ok"}
    ]
    assert welcome == ["a certificate", "a password", "a password over TLS"]
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
