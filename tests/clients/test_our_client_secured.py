"""Our client meets secured clusters: Apache Kafka 3.9 with TLS, client certificates and SASL."""

import asyncio
import pathlib
from collections.abc import Iterator, Mapping

import apache
import pytest
from secured import PASSWORD, PLAIN, SCRAM, USER, Secured, scram_password

from odradek.client.cluster import BootstrapError, Cluster
from odradek.client.consumer.consumer import Consumer
from odradek.client.consumer.settings import ConsumerSettings
from odradek.client.producer.producer import Producer
from odradek.client.producer.settings import ProducerSettings
from odradek.client.security.protocol import AuthenticationError
from odradek.client.settings import ClientSettings, SettingsError
from odradek.model.partition import TopicPartition

pytestmark = pytest.mark.jvm

pkcs12 = pytest.importorskip("cryptography.hazmat.primitives.serialization.pkcs12")
serialization = pytest.importorskip("cryptography.hazmat.primitives.serialization")


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
