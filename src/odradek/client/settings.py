"""Client settings from Java's property names.

    settings = ClientSettings.from_properties({"bootstrap.servers": "a:9092,b:9092", ...})

Property files (`--command-config`) and single properties (`--producer-property key=value`) are
parsed here. Names, defaults and validation are those of kafka-clients 3.9 (`CommonClientConfigs`,
`SslConfigs`, `SaslConfigs`). Options without effect here (metrics reporters, interceptors) are
ignored, as Java ignores unknown properties.

Options of producers and consumers are in their own `settings` modules.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from odradek.config.option import (
    INT,
    INT_MAX,
    LIST,
    LONG,
    PASSWORD,
    STRING,
    Option,
    Value,
    at_least,
    one_of_any_case,
    table,
)
from odradek.model.errors import OdradekError
from odradek.security.tls.stores import KeyStore, key_store_of, trust_store_of

# In the order of Kafka's error message.
PROTOCOLS: Final = ("SASL_SSL", "PLAINTEXT", "SSL", "SASL_PLAINTEXT")
MECHANISMS: Final = ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512", "OAUTHBEARER", "GSSAPI")


class SettingsError(OdradekError):
    """A property has an invalid value; the message contains the name, the value and the rule."""


class ConstructionError(SettingsError):
    """Properties that are valid one by one, but not together."""


COMMON: Final = table(
    [
        Option("bootstrap.servers", LIST, ()),
        Option("client.id", STRING, ""),
        Option("request.timeout.ms", INT, 30_000, rule=at_least(0)),
        Option("default.api.timeout.ms", INT, 60_000, rule=at_least(0)),
        Option("retries", INT, INT_MAX, rule=at_least(0)),
        Option("retry.backoff.ms", LONG, 100, rule=at_least(0)),
        Option("retry.backoff.max.ms", LONG, 1_000, rule=at_least(0)),
        Option("reconnect.backoff.ms", LONG, 50, rule=at_least(0)),
        Option("reconnect.backoff.max.ms", LONG, 1_000, rule=at_least(0)),
        Option("socket.connection.setup.timeout.ms", LONG, 10_000, rule=at_least(0)),
        # Validated as in Java's client, but without effect: the system sizes the buffers.
        Option("send.buffer.bytes", INT, 131_072, rule=at_least(-1)),
        Option("receive.buffer.bytes", INT, 65_536, rule=at_least(-1)),
        Option("metadata.max.age.ms", LONG, 300_000, rule=at_least(0)),
        Option("security.protocol", STRING, "PLAINTEXT", rule=one_of_any_case(*PROTOCOLS)),
        Option("sasl.mechanism", STRING, "GSSAPI"),
        Option("sasl.jaas.config", PASSWORD, None),
        Option("sasl.oauthbearer.token.endpoint.url", STRING, None),
        Option("sasl.kerberos.service.name", STRING, None),
        Option("ssl.truststore.type", STRING, "JKS"),
        Option("ssl.truststore.location", STRING, None),
        Option("ssl.truststore.password", PASSWORD, None),
        Option("ssl.truststore.certificates", PASSWORD, None),
        Option("ssl.keystore.type", STRING, "JKS"),
        Option("ssl.keystore.location", STRING, None),
        Option("ssl.keystore.password", PASSWORD, None),
        Option("ssl.keystore.key", PASSWORD, None),
        Option("ssl.keystore.certificate.chain", PASSWORD, None),
        Option("ssl.key.password", PASSWORD, None),
        Option("ssl.endpoint.identification.algorithm", STRING, "https"),
        Option("ssl.enabled.protocols", LIST, ("TLSv1.2", "TLSv1.3")),
        Option("ssl.cipher.suites", LIST, None),
    ]
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Security:
    """Encryption and authentication of a client's connections."""

    protocol: str = "PLAINTEXT"
    trust_store: KeyStore = KeyStore()
    key_store: KeyStore = KeyStore()
    checks_host_name: bool = True
    tls_versions: tuple[str, ...] = ("TLSv1.2", "TLSv1.3")
    ciphers: tuple[str, ...] = ()
    mechanism: str = "GSSAPI"
    jaas_config: str | None = field(default=None, repr=False)
    token_url: str | None = None  # where the bearer token is
    kerberos_service: str | None = None  # the first part of the brokers' principals

    @property
    def uses_tls(self) -> bool:
        return self.protocol in ("SSL", "SASL_SSL")

    @property
    def uses_sasl(self) -> bool:
        """Whether connections authenticate by SASL."""
        return self.protocol in ("SASL_PLAINTEXT", "SASL_SSL")


@dataclass(frozen=True, slots=True, kw_only=True)
class ClientSettings:
    """Settings that producers, consumers and admin clients share. Times in milliseconds."""

    bootstrap_servers: tuple[str, ...] = ()
    client_id: str = "odradek"
    log_name: str = ""  # the prefix of log lines, as Kafka's clients have it
    security: Security = Security()
    request_timeout_ms: int = 30_000
    # default.api.timeout.ms: an operation with all its attempts.
    api_timeout_ms: int = 60_000
    retries: int = INT_MAX
    retry_backoff_ms: int = 100
    retry_backoff_max_ms: int = 1_000
    reconnect_backoff_ms: int = 50
    reconnect_backoff_max_ms: int = 1_000
    connection_setup_timeout_ms: int = 10_000
    metadata_age_ms_max: int = 300_000

    @classmethod
    def from_properties(
        cls, properties: Mapping[str, str], *, client_id: str = "odradek", kind: str = "AdminClient"
    ) -> "ClientSettings":
        """Settings from properties; `client_id` is the default if `client.id` is not set.

        Raises:
            InvalidConfigError: a value is invalid; the message is Kafka's.
            SettingsError: options that contradict each other.
        """
        properties = resolved(properties)
        values = read(COMMON, properties)
        return cls(
            bootstrap_servers=values["bootstrap.servers"],
            client_id=values["client.id"] or client_id,
            log_name=_log_name(kind, values["client.id"] or client_id, properties),
            security=_security(values),
            request_timeout_ms=values["request.timeout.ms"],
            api_timeout_ms=values["default.api.timeout.ms"],
            retries=values["retries"],
            retry_backoff_ms=values["retry.backoff.ms"],
            retry_backoff_max_ms=values["retry.backoff.max.ms"],
            reconnect_backoff_ms=values["reconnect.backoff.ms"],
            reconnect_backoff_max_ms=values["reconnect.backoff.max.ms"],
            connection_setup_timeout_ms=values["socket.connection.setup.timeout.ms"],
            metadata_age_ms_max=values["metadata.max.age.ms"],
        )


def resolved(properties: Mapping[str, str]) -> Mapping[str, str]:
    """The properties with the values that their config providers have on this host (KIP-421).

    Raises:
        InvalidConfigError: a provider or a value does not exist, or is not allowed.
    """
    if "config.providers" not in properties:
        return properties
    from odradek.config.providers import resolve  # noqa: PLC0415
    from odradek.net.config_sources import HostSources  # noqa: PLC0415 - for few clients

    return resolve(properties, HostSources())


def _log_name(kind: str, client_id: str, properties: Mapping[str, str]) -> str:
    group = f", groupId={properties.get('group.id', 'null')}" if kind == "Consumer" else ""
    return f"[{kind} clientId={client_id}{group}]"


def read(options: Mapping[str, Option], properties: Mapping[str, str]) -> dict[str, Any]:
    """The values of all options of a table; the default where a property is not set.

    Raises:
        InvalidConfigError: a value is invalid.
    """
    values: dict[str, Value] = {}
    for name, option in options.items():
        text = properties.get(name)
        values[name] = option.default if text is None else option.parse(text)
    return values


def _security(values: Mapping[str, Any]) -> Security:
    protocol: str = values["security.protocol"].upper()
    mechanism: str = values["sasl.mechanism"]
    if protocol.startswith("SASL_") and mechanism not in MECHANISMS:
        raise SettingsError(f"sasl.mechanism={mechanism}: this client has {', '.join(MECHANISMS)}")
    return Security(
        protocol=protocol,
        trust_store=trust_store_of(values.__getitem__),
        key_store=key_store_of(values.__getitem__),
        checks_host_name=bool(values["ssl.endpoint.identification.algorithm"]),
        tls_versions=values["ssl.enabled.protocols"],
        ciphers=values["ssl.cipher.suites"] or (),
        mechanism=mechanism,
        jaas_config=values["sasl.jaas.config"],
        token_url=values["sasl.oauthbearer.token.endpoint.url"],
        kerberos_service=values["sasl.kerberos.service.name"],
    )
