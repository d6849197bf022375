"""Passwords of a broker's options in a real ZooKeeper, and the change of their secret.

Apache Kafka's tool stores the password of a key store with one secret. A broker of Odradek stores
it with another one, Apache Kafka's broker reads that and stores it with a third, and Odradek's
reads this.
"""

import contextlib
import pathlib
import ssl
import subprocess
from collections.abc import Iterator

import apache
import fetch
import pytest
import raw
from cryptography import x509
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.serialization import pkcs12
from kazoo.client import KazooClient
from mixed import OurBroker, TheirBroker
from tests.certificates import Authority, server_options

pytestmark = pytest.mark.jvm

PASSWORD = "the-password-of-the-key-store"
NAME = "listener.name.inside.ssl.keystore.password"
BROKER = 1


def pkcs12_of(file: str) -> bytes:
    pem = pathlib.Path(file).read_bytes()
    certificate, *chain = x509.load_pem_x509_certificates(pem)
    key = serialization.load_pem_private_key(pem, None)
    encryption = serialization.BestAvailableEncryption(PASSWORD.encode())
    return pkcs12.serialize_key_and_certificates(b"key", key, certificate, chain, encryption)


class Brokers:
    """One broker id on one ZooKeeper, as broker of Odradek or of Apache Kafka.

    Another broker is the controller: Apache Kafka's refuses to start with a former secret without
    one.
    """

    def __init__(self, home: pathlib.Path) -> None:
        self._home = home
        self._count = 0
        self._authority = Authority(home / "certificates")
        self.context = ssl.create_default_context(cafile=self._authority.file)
        self._store = home / "store.p12"
        self._store.write_bytes(pkcs12_of(self._authority.issue(apache.HOST)))
        self._zookeeper = apache.ZooKeeper(home / "zookeeper")
        self.client = KazooClient(self._zookeeper.address)
        self.client.start()
        self._options = {
            "inter.broker.listener.name": "INSIDE",
            "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,INSIDE:SSL",
            **server_options(self._authority, self._authority.issue(apache.HOST, name="other")),
        }
        self._controller = OurBroker(
            home / "controller", self._zookeeper.address, BROKER + 1, self._options
        )

    def close(self) -> None:
        self._controller.end()
        self.client.stop()
        self.client.close()
        self._zookeeper.stop()

    def store(self, secret: str) -> None:
        """Store the password while the broker does not run, and start the controller."""
        config = f"{NAME}={PASSWORD},password.encoder.secret={secret}"
        arguments = ["--zookeeper", self._zookeeper.address, "--alter", "--add-config", config]
        arguments += ["--entity-type", "brokers", "--entity-name", str(BROKER)]
        command = fetch.java(apache.LINE, "kafka.admin.ConfigCommand", *arguments)
        subprocess.run(command, check=True, capture_output=True, timeout=60)
        self._controller.start()

    def stored(self) -> bytes:
        data, _ = self.client.get(f"/config/brokers/{BROKER}")
        assert PASSWORD.encode() not in data
        return bytes(data)

    @contextlib.contextmanager
    def running(
        self, kind: type[OurBroker] | type[TheirBroker], secret: str, former: str | None = None
    ) -> Iterator[str]:
        """The address of the TLS listener of the broker, which ends orderly."""
        options = {
            **self._options,
            "ssl.keystore.type": "PKCS12",
            "ssl.keystore.location": str(self._store),
            "password.encoder.secret": secret,
        }
        if former is not None:
            options["password.encoder.old.secret"] = former
        self._count += 1
        home = self._home / f"broker-{self._count}"
        broker = kind(home, self._zookeeper.address, BROKER, options)
        broker.start()
        try:
            yield broker.inside[0].partition("//")[2]
        finally:
            broker.stop()

    def shakes_hands(self, address: str) -> bool:
        with (
            raw.connect(address) as plain,
            self.context.wrap_socket(plain, server_hostname=apache.HOST) as connection,
        ):
            return connection.version() is not None


@pytest.fixture
def brokers(tmp_path: pathlib.Path) -> Iterator[Brokers]:
    made = Brokers(tmp_path)
    yield made
    made.close()


def test_each_kind_of_broker_stores_the_passwords_of_the_other_with_another_secret(
    brokers: Brokers,
) -> None:
    brokers.store("first")
    by_the_tool = brokers.stored()
    for kind, secret, former in (
        (OurBroker, "second", "first"),
        (TheirBroker, "third", "second"),
        (OurBroker, "fourth", "third"),
    ):
        before = brokers.stored()
        with brokers.running(kind, secret, former) as address:
            assert brokers.shakes_hands(address)
        assert brokers.stored() != before
        # The former secret is not needed any more, and nothing is stored again.
        again = brokers.stored()
        with brokers.running(OurBroker, secret) as address:
            assert brokers.shakes_hands(address)
        assert brokers.stored() == again
    with brokers.running(TheirBroker, "fourth") as address:
        assert brokers.shakes_hands(address)
    assert brokers.stored() != by_the_tool
