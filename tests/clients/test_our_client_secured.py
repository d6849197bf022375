"""Our client meets secured clusters: Apache Kafka 3.9 with TLS, client certificates and SASL."""

import asyncio
import pathlib
import subprocess
import sys
from collections.abc import Iterator, Mapping

import apache
import pytest

from odradek.client.cluster import BootstrapError, Cluster
from odradek.client.consumer.consumer import Consumer
from odradek.client.consumer.settings import ConsumerSettings
from odradek.client.producer.producer import Producer
from odradek.client.producer.settings import ProducerSettings
from odradek.client.security.protocol import AuthenticationError
from odradek.client.settings import ClientSettings, SettingsError
from odradek.model.partition import TopicPartition

pytestmark = pytest.mark.jvm

trustme = pytest.importorskip("trustme")
pkcs12 = pytest.importorskip("cryptography.hazmat.primitives.serialization.pkcs12")
serialization = pytest.importorskip("cryptography.hazmat.primitives.serialization")

PACKAGE = "org.apache.kafka.common.security"
PLAIN = f'{PACKAGE}.plain.PlainLoginModule required username="{{}}" password="{{}}";'
SCRAM = f'{PACKAGE}.scram.ScramLoginModule required username="{{}}" password="{{}}";'
USER, PASSWORD = "alice", "a,=b c"


class Secured:
    """A broker with a listener for each protocol, and the files that its clients need."""

    def __init__(self, home: pathlib.Path) -> None:
        self.home = home
        self.authority = trustme.CA()
        self.files = {
            "ca": self._write("ca.pem", self.authority.cert_pem.bytes()),
            "key": self._key("client", self.authority.issue_cert("client@example.org")),
            "other": self._write("other.pem", trustme.CA().cert_pem.bytes()),
        }
        server = self._key("server", self.authority.issue_cert("127.0.0.1"))
        self.ports = {name: apache.free_port() for name in ("SSL", "SASL_PLAINTEXT", "SASL_SSL")}
        plain = f'{PLAIN.format("admin", "x")[:-1]} user_{USER}="{PASSWORD}";'
        listeners = [f"{name}://{apache.HOST}:{port}" for name, port in self.ports.items()]
        options = {
            "sasl.enabled.mechanisms": "PLAIN,SCRAM-SHA-256,SCRAM-SHA-512",
            "ssl.keystore.type": "PEM",
            "ssl.keystore.location": server,
            "ssl.truststore.type": "PEM",
            "ssl.truststore.location": self.files["ca"],
            "listener.name.ssl.ssl.client.auth": "required",
            "connections.max.reauth.ms": "3000",
        }
        for name in ("sasl_plaintext", "sasl_ssl"):
            options[f"listener.name.{name}.plain.sasl.jaas.config"] = plain
            for mechanism in ("scram-sha-256", "scram-sha-512"):
                module = f"{PACKAGE}.scram.ScramLoginModule required;"
                options[f"listener.name.{name}.{mechanism}.sasl.jaas.config"] = module
        self.zookeeper = apache.ZooKeeper(home / "zookeeper")
        try:
            self.broker = apache.Broker(
                home / "broker",
                self.zookeeper.address,
                properties=options,
                listeners=listeners,
            )
            self.broker.wait()
            self._add_user()
        except BaseException:
            self.stop()
            raise

    def stop(self) -> None:
        if hasattr(self, "broker"):
            self.broker.stop()
        self.zookeeper.stop()

    def _write(self, name: str, data: bytes) -> str:
        file = self.home / name
        file.write_bytes(data)
        return str(file)

    def _key(self, name: str, issued) -> str:
        """Java reads keys as PKCS#8 alone."""
        key = serialization.load_pem_private_key(issued.private_key_pem.bytes(), None)
        self.key, self.chain = key, issued.cert_chain_pems
        pem = key.private_bytes(
            serialization.Encoding.PEM,
            serialization.PrivateFormat.PKCS8,
            serialization.NoEncryption(),
        )
        return self._write(f"{name}.pem", pem + b"".join(c.bytes() for c in self.chain))

    def _add_user(self) -> None:
        done = subprocess.run(
            [
                *(sys.executable, "-m", "odradek", "configs"),
                *("--bootstrap-server", self.broker.address, "--alter"),
                *("--entity-type", "users", "--entity-name", USER, "--add-config"),
                (
                    f"SCRAM-SHA-256=[password={PASSWORD.replace(',', '')}],"
                    f"SCRAM-SHA-512=[password={PASSWORD.replace(',', '')}]"
                ),
            ],
            capture_output=True,
            text=True,
            check=False,
            timeout=60,
        )
        assert done.returncode == 0, done.stdout + done.stderr


@pytest.fixture(scope="module")
def secured(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Secured]:
    made = Secured(tmp_path_factory.mktemp("secured"))
    yield made
    made.stop()


def properties(secured: Secured, protocol: str, **more: str) -> dict[str, str]:
    text = {
        "bootstrap.servers": f"{apache.HOST}:{secured.ports[protocol]}",
        "security.protocol": protocol,
        "request.timeout.ms": "10000",
        "max.block.ms": "20000",
        "auto.offset.reset": "earliest",
    }
    if "SSL" in protocol.replace("SASL", ""):
        text |= {"ssl.truststore.type": "PEM", "ssl.truststore.location": secured.files["ca"]}
    return text | {name.replace("_", "."): value for name, value in more.items()}


async def there_and_back(text: Mapping[str, str], topic: str) -> None:
    async with await Producer.open(ProducerSettings.from_properties(text)) as producer:
        at = await (await producer.send(topic, b"v"))
    async with await Consumer.open(ConsumerSettings.from_properties(text)) as consumer:
        consumer.assign([TopicPartition(topic, at.partition.partition)])
        consumer.seek(at.partition, at.offset)
        records = []
        while not records:
            records = await consumer.poll(1000)
        assert records[0].value == b"v"


def play(coroutine):
    return asyncio.run(asyncio.wait_for(coroutine, 60))


def scram_password() -> str:
    return PASSWORD.replace(",", "")


@pytest.mark.parametrize("protocol", ["SASL_PLAINTEXT", "SASL_SSL"])
@pytest.mark.parametrize("mechanism", ["PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512"])
def test_the_right_password_authenticates(secured: Secured, protocol: str, mechanism: str) -> None:
    jaas = (
        PLAIN.format(USER, PASSWORD)
        if mechanism == "PLAIN"
        else SCRAM.format(USER, scram_password())
    )
    text = properties(secured, protocol, sasl_mechanism=mechanism, sasl_jaas_config=jaas)

    play(there_and_back(text, "secured"))


@pytest.mark.parametrize("mechanism", ["PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512"])
def test_a_wrong_password_is_reported_soon(secured: Secured, mechanism: str) -> None:
    jaas = (PLAIN if mechanism == "PLAIN" else SCRAM).format(USER, "wrong")
    text = properties(secured, "SASL_PLAINTEXT", sasl_mechanism=mechanism, sasl_jaas_config=jaas)

    with pytest.raises(AuthenticationError, match="uthentication failed|invalid credentials"):
        play(Cluster.connect(ClientSettings.from_properties(text), wait_ms=60_000))


def test_a_session_is_renewed_before_the_broker_ends_it(secured: Secured) -> None:
    text = properties(
        secured,
        "SASL_PLAINTEXT",
        sasl_mechanism="PLAIN",
        sasl_jaas_config=PLAIN.format(USER, PASSWORD),
    )

    async def main() -> None:
        async with await Producer.open(ProducerSettings.from_properties(text)) as producer:
            loop = asyncio.get_running_loop()
            until_s = loop.time() + 7  # twice connections.max.reauth.ms, and a little
            while loop.time() < until_s:
                await (await producer.send("secured", b"v"))
                await asyncio.sleep(0.2)
            assert producer.metrics()["record-retry-total"] == 0

    play(main())


def test_a_client_certificate_authenticates(secured: Secured) -> None:
    text = properties(
        secured, "SSL", ssl_keystore_type="PEM", ssl_keystore_location=secured.files["key"]
    )

    play(there_and_back(text, "secured"))


def test_keys_may_be_in_the_properties(secured: Secured) -> None:
    pem = pathlib.Path(secured.files["key"]).read_text()
    key, end, chain = pem.partition("-----END PRIVATE KEY-----\n")
    text = properties(
        secured,
        "SSL",
        ssl_keystore_type="PEM",
        ssl_keystore_key=key + end,
        ssl_keystore_certificate_chain=chain,
    )
    del text["ssl.truststore.location"]
    text["ssl.truststore.certificates"] = pathlib.Path(secured.files["ca"]).read_text()

    play(there_and_back(text, "secured"))


def test_javas_key_stores_work_where_cryptography_is_installed(secured: Secured, tmp_path) -> None:
    pem = pathlib.Path(secured.files["key"]).read_bytes()
    x509 = pytest.importorskip("cryptography.x509")
    key = serialization.load_pem_private_key(pem, None)
    certificate, *chain = x509.load_pem_x509_certificates(pem)
    protection = serialization.BestAvailableEncryption(b"changeit")
    store = tmp_path / "client.p12"
    store.write_bytes(
        pkcs12.serialize_key_and_certificates(b"client", key, certificate, chain, protection)
    )
    text = properties(
        secured,
        "SSL",
        ssl_keystore_location=str(store),
        ssl_keystore_password="changeit",
    )

    play(there_and_back(text, "secured"))

    text["ssl.keystore.password"] = "wrong"
    with pytest.raises(SettingsError, match=r"ssl.keystore.location=.*client.p12: "):
        play(there_and_back(text, "secured"))


def test_a_client_without_a_certificate_is_refused(secured: Secured) -> None:
    text = properties(secured, "SSL")

    with pytest.raises((AuthenticationError, BootstrapError)):
        play(Cluster.connect(ClientSettings.from_properties(text)))


def test_a_server_with_an_untrusted_certificate_is_refused(secured: Secured) -> None:
    text = properties(secured, "SASL_SSL", sasl_mechanism="PLAIN", sasl_jaas_config="unused")
    text["ssl.truststore.location"] = secured.files["other"]

    with pytest.raises(AuthenticationError, match="TLS: .*certificate"):
        play(Cluster.connect(ClientSettings.from_properties(text)))
