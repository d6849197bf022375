"""Tests of other projects, run on our broker: log-ins by kafka-go and franz-go, ACLs by librdkafka.

They are those of the released sources, unchanged but for the address of the broker.
"""

import os
import pathlib
import subprocess
import sys
from collections.abc import Iterator, Mapping

import apache
import fetch
import pytest
import raw
from confluent_kafka.admin import (
    AdminClient,
    ScramCredentialInfo,
    ScramMechanism,
    UserScramCredentialUpsertion,
)
from mixed import OurBroker

KAFKA_GO = "github.com/segmentio/kafka-go@v0.4.51"
FRANZ_GO = "github.com/twmb/franz-go@v1.22.2"
ADDRESS = 'os.Getenv("SASL_ADDRESS")'
VARIABLE = f"var (\n\tsaslTestConnect = {ADDRESS}"
PACKAGE = "org.apache.kafka.common.security"
USER = "adminscram"
PASSWORDS = {
    ScramMechanism.SCRAM_SHA_256: "admin-secret-256",
    ScramMechanism.SCRAM_SHA_512: "admin-secret-512",
}
SINGLE = {"min.insync.replicas": "1", "default.replication.factor": "1"}


@pytest.fixture(scope="module")
def secured(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The address of a SASL listener with the users that kafka-go's tests have."""
    home = tmp_path_factory.mktemp("secured")
    port = apache.free_port()
    jaas = f'{PACKAGE}.plain.PlainLoginModule required user_adminplain="admin-secret";'
    options = {
        "odradek.store.path": str(home / "coordination.db"),
        "sasl.enabled.mechanisms": "PLAIN,SCRAM-SHA-256,SCRAM-SHA-512",
        "listener.name.sasl_plaintext.plain.sasl.jaas.config": jaas,
        **SINGLE,
    }
    listeners = [f"SASL_PLAINTEXT://{apache.HOST}:{port}"]
    broker = OurBroker(home / "broker", None, 1, options, listeners)
    try:
        broker.start()
        admin = AdminClient({"bootstrap.servers": broker.address})
        users = [
            UserScramCredentialUpsertion(USER, ScramCredentialInfo(each, 4096), word.encode())
            for each, word in PASSWORDS.items()
        ]
        for future in admin.alter_user_scram_credentials(users).values():
            future.result(60)
        raw.create_topic(broker.address, "test-writer-0", 1)
        yield f"{apache.HOST}:{port}"
    finally:
        broker.end()


def passed(command: list[str], cwd: pathlib.Path, **environment: str) -> str:
    """The output of a test program that succeeds."""
    done = subprocess.run(
        command, cwd=cwd, env=os.environ | environment,
        capture_output=True, text=True, check=False, timeout=600,
    )  # fmt: skip
    assert done.returncode == 0, (done.stdout + done.stderr)[-5000:]
    return done.stdout + done.stderr


@pytest.mark.go
def test_kafka_go_logs_in(secured: str, tmp_path: pathlib.Path) -> None:
    replaced = {
        "sasl/sasl_test.go": {
            'const (\n\tsaslTestConnect = "localhost:9093"': VARIABLE,
            'import (\n\t"context"\n': 'import (\n\t"context"\n\t"os"\n',
        }
    }
    tests = fetch.go_tests(KAFKA_GO, "./sasl", replaced)

    environment = {"SASL_ADDRESS": secured, "KAFKA_VERSION": "3.9.2"}
    output = passed([str(tests), "-test.v"], tmp_path, **environment)

    for mechanism in ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512"):
        for case in ("success", "failure", "is_reusable"):
            assert f"--- PASS: TestSASL/{mechanism}_{case}" in output


@pytest.mark.go
def test_kafka_go_asks_for_an_unknown_mechanism(secured: str, tmp_path: pathlib.Path) -> None:
    replaced = {"conn_test.go": {'"127.0.0.1:9093"': ADDRESS}}
    tests = fetch.go_tests(KAFKA_GO, ".", replaced)
    command = [str(tests), "-test.v", "-test.run", "^TestUnsupportedSASLMechanism$"]

    output = passed(command, tmp_path, SASL_ADDRESS=secured)

    assert "--- PASS: TestUnsupportedSASLMechanism" in output


@pytest.mark.go
@pytest.mark.parametrize("mechanism", PASSWORDS)
def test_franz_go_logs_in(secured: str, mechanism: ScramMechanism, tmp_path: pathlib.Path) -> None:
    bits = mechanism.name.rpartition("_")[2]
    environment = {
        "KGO_SEEDS": secured,
        "KGO_TEST_SCRAM_SEEDS": secured,
        "KGO_TEST_SCRAM": f"{USER}:{PASSWORDS[mechanism]}:{bits}",
    }
    tests = fetch.go_tests(FRANZ_GO, "./pkg/kgo")

    output = passed([str(tests), "-test.v", "-test.run", "SCRAM"], tmp_path, **environment)

    assert "--- PASS: TestSCRAMAuth " in output
    assert "--- PASS: TestSCRAMAuthBadCredentials " in output


@pytest.mark.rust
def test_librdkafkas_test_of_timestamps_in_old_formats(tmp_path: pathlib.Path) -> None:
    """0052: messages of formats v0 and v1, with the times of the producer and of the broker."""
    output = output_of_librdkafkas_test("0052", tmp_path, {})
    assert "PASSED" in output


@pytest.mark.rust
@pytest.mark.parametrize(
    "number", ["0109", "0115", "0119"], ids=["auto_create_topics", "producer_auth", "consumer_auth"]
)
def test_librdkafkas_tests_of_permissions(number: str, tmp_path: pathlib.Path) -> None:
    """They add ACLs with the `kafka-acls.sh` of this environment, which is ours."""
    acls = {
        "authorizer.class.name": "kafka.security.authorizer.AclAuthorizer",
        "allow.everyone.if.no.acl.found": "true",
        "super.users": "User:admin",
    }
    output = output_of_librdkafkas_test(number, tmp_path, acls)

    assert "PASSED" in output
    assert "kafka-acls.sh --bootstrap-server" in output


def output_of_librdkafkas_test(number: str, home: pathlib.Path, more: Mapping[str, str]) -> str:
    """The output of one of librdkafka's tests on a broker with these options."""
    librdkafka = fetch.librdkafka_tests()
    options = {
        "odradek.store.path": str(home / "coordination.db"),
        "auto.create.topics.enable": "true",
        "num.partitions": "4",
        "offsets.topic.replication.factor": "1",
        "group.initial.rebalance.delay.ms": "0",
        **SINGLE,
        **more,
    }
    broker = OurBroker(home / "broker", None, 1, options)
    try:
        broker.start()
        config = home / "test.conf"
        # Each of up to eight calls of `kafka-acls.sh` starts a process.
        lines = (f"bootstrap.servers={broker.address}", "test.timeout.multiplier=10")
        config.write_text("".join(f"{line}\n" for line in lines))
        libraries = f"{librdkafka}/src:{librdkafka}/src-cpp"
        return passed(
            [str(librdkafka / "tests" / "test-runner"), "-p1"], home,
            TESTS=number, RDKAFKA_TEST_CONF=str(config), KAFKA_PATH=sys.prefix,
            TEST_KAFKA_VERSION="3.9.2", BROKERS=broker.address, LD_LIBRARY_PATH=libraries,
        )  # fmt: skip
    finally:
        broker.end()
