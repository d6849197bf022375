"""Client settings from Java's property names."""

import pytest

from odradek.client.consumer.settings import ConsumerSettings
from odradek.client.producer.settings import ProducerSettings
from odradek.client.settings import ClientSettings, SettingsError
from odradek.config.option import InvalidConfigError

PLAIN = "org.apache.kafka.common.security.plain.PlainLoginModule"
JAAS = f'{PLAIN} required username="a" password="s3";'


def test_defaults_are_those_of_kafka():
    settings = ClientSettings.from_properties({}, client_id="tool")

    assert settings.client_id == "tool"
    assert (settings.request_timeout_ms, settings.api_timeout_ms) == (30_000, 60_000)
    assert (settings.retry_backoff_ms, settings.retry_backoff_max_ms) == (100, 1_000)
    assert not settings.security.uses_tls
    assert not settings.security.uses_sasl


def test_properties_set_the_settings():
    settings = ClientSettings.from_properties(
        {
            "bootstrap.servers": "a:1, b:2",
            "client.id": "mine",
            "request.timeout.ms": "5",
            "default.api.timeout.ms": "6",
            "retries": "7",
            "retry.backoff.ms": "8",
            "reconnect.backoff.ms": "9",
            "reconnect.backoff.max.ms": "10",
            "socket.connection.setup.timeout.ms": "11",
            "metadata.max.age.ms": "12",
            "security.protocol": "SASL_SSL",
            "sasl.mechanism": "SCRAM-SHA-512",
            "sasl.jaas.config": JAAS,
            "ssl.truststore.location": "/trust.pem",
            "ssl.truststore.type": "PEM",
            "ssl.keystore.password": "hidden",
            "ssl.endpoint.identification.algorithm": "",
            "unknown.option": "x",
        }
    )

    assert settings.bootstrap_servers == ("a:1", "b:2")
    assert settings.client_id == "mine"
    assert (settings.request_timeout_ms, settings.api_timeout_ms, settings.retries) == (5, 6, 7)
    assert (settings.reconnect_backoff_ms, settings.reconnect_backoff_max_ms) == (9, 10)
    assert (settings.connection_setup_timeout_ms, settings.metadata_age_ms_max) == (11, 12)
    security = settings.security
    assert security.uses_tls
    assert security.uses_sasl
    assert not security.checks_host_name
    assert (security.trust_store.type, security.trust_store.location) == ("PEM", "/trust.pem")


def test_secrets_are_not_in_the_repr():
    settings = ClientSettings.from_properties(
        {"sasl.jaas.config": JAAS, "ssl.keystore.password": "s3", "ssl.key.password": "s3"}
    )

    assert "s3" not in repr(settings)


@pytest.mark.parametrize(
    ("name", "value", "complaint"),
    [
        ("request.timeout.ms", "abc", "Invalid value abc .* request.timeout.ms: Not a number"),
        ("retries", "-1", "Invalid value -1 for configuration retries: Value must be at least 0"),
        ("security.protocol", "TLS", r"one of \(case insensitive\): SASL_SSL, PLAINTEXT"),
    ],
)
def test_an_invalid_value_is_refused_with_kafkas_message(name, value, complaint):
    with pytest.raises(InvalidConfigError, match=complaint):
        ClientSettings.from_properties({name: value})


def test_an_unsupported_sasl_mechanism_is_named():
    with pytest.raises(SettingsError, match="sasl.mechanism=NTLM: this client has PLAIN"):
        ClientSettings.from_properties(
            {"security.protocol": "SASL_PLAINTEXT", "sasl.mechanism": "NTLM"}
        )


@pytest.mark.parametrize("kind", [ClientSettings, ProducerSettings, ConsumerSettings])
def test_every_client_has_the_values_of_its_config_providers(kind, tmp_path, monkeypatch):
    (tmp_path / "secret").write_text("cli")
    package = "org.apache.kafka.common.config.provider."
    properties = {
        "config.providers": "dir,env",
        "config.providers.dir.class": f"{package}DirectoryConfigProvider",
        "config.providers.env.class": f"{package}EnvVarConfigProvider",
        "client.id": f"${{dir:{tmp_path}:secret}}${{env:SUFFIX}}",
    }
    with pytest.raises(InvalidConfigError, match="environment variable SUFFIX is not set"):
        kind.from_properties(properties)
    monkeypatch.setenv("SUFFIX", "${env:ent}")
    settings = kind.from_properties(properties)
    assert getattr(settings, "client", settings).client_id == "cli${env:ent}"
