"""The settings of a producer, under Java's names (kafka-clients 3.9, `ProducerConfig`)."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from odradek.client.settings import ClientSettings, SettingsError, read, resolved
from odradek.config.option import (
    BOOLEAN,
    INT,
    INT_MAX,
    LONG,
    STRING,
    InvalidConfigError,
    Option,
    at_least,
    between,
    one_of,
    table,
)
from odradek.record.compression import DEFAULT_LEVELS, Codec, Levels

PRODUCER: Final = table(
    [
        Option("acks", STRING, "all", rule=one_of("all", "-1", "0", "1")),
        Option("batch.size", INT, 16_384, rule=at_least(0)),
        Option("linger.ms", LONG, 0, rule=at_least(0)),
        Option("buffer.memory", LONG, 32 << 20, rule=at_least(0)),
        Option("max.request.size", INT, 1 << 20, rule=at_least(0)),
        Option("max.block.ms", LONG, 60_000, rule=at_least(0)),
        Option("delivery.timeout.ms", INT, 120_000, rule=at_least(0)),
        Option("max.in.flight.requests.per.connection", INT, 5, rule=at_least(1)),
        Option(
            "compression.type",
            STRING,
            "none",
            rule=one_of("none", "gzip", "snappy", "lz4", "zstd"),
        ),
        Option("compression.gzip.level", INT, DEFAULT_LEVELS.gzip, rule=between(-1, 9)),
        Option("compression.lz4.level", INT, DEFAULT_LEVELS.lz4, rule=between(1, 17)),
        Option("compression.zstd.level", INT, DEFAULT_LEVELS.zstd, rule=between(-131_072, 22)),
        Option("enable.idempotence", BOOLEAN, True),
        Option("transactional.id", STRING, None),
        Option("transaction.timeout.ms", INT, 60_000),
        Option("partitioner.ignore.keys", BOOLEAN, False),
    ]
)

_ALL: Final = -1
_IDEMPOTENT_IN_FLIGHT_MAX: Final = 5


@dataclass(frozen=True, slots=True, kw_only=True)
class ProducerSettings:
    """How a producer accumulates, sends and retries. Times in milliseconds."""

    client: ClientSettings = ClientSettings()
    acks: int = _ALL  # 0: no response; 1: the leader; -1: all in-sync replicas
    batch_bytes: int = 16_384
    linger_ms: int = 0
    buffer_bytes: int = 32 << 20
    request_bytes_max: int = 1 << 20
    block_ms_max: int = 60_000
    delivery_timeout_ms: int = 120_000
    in_flight_max: int = 5
    codec: Codec = Codec.NONE
    levels: Levels = DEFAULT_LEVELS
    is_idempotent: bool = True
    transactional_id: str | None = None
    transaction_timeout_ms: int = 60_000
    ignores_keys: bool = False

    @classmethod
    def from_properties(
        cls, properties: Mapping[str, str], *, client_id: str = "producer-1"
    ) -> "ProducerSettings":
        """Settings from properties; `client_id` is the default if `client.id` is not set.

        Raises:
            InvalidConfigError: a value is invalid; the message is Kafka's.
            SettingsError: options that contradict each other.
        """
        properties = resolved(properties)
        values = read(PRODUCER, properties)
        client = ClientSettings.from_properties(properties, client_id=client_id, kind="Producer")
        acks = {"all": -1, "-1": -1, "1": 1, "0": 0}[values["acks"]]
        return cls(
            client=client,
            acks=acks,
            batch_bytes=values["batch.size"],
            linger_ms=values["linger.ms"],
            buffer_bytes=values["buffer.memory"],
            request_bytes_max=values["max.request.size"],
            block_ms_max=values["max.block.ms"],
            delivery_timeout_ms=_delivery_timeout_ms(values, client, properties),
            in_flight_max=values["max.in.flight.requests.per.connection"],
            codec=Codec[values["compression.type"].upper()],
            levels=Levels(
                gzip=values["compression.gzip.level"],
                lz4=values["compression.lz4.level"],
                zstd=values["compression.zstd.level"],
            ),
            is_idempotent=_is_idempotent(values, client, acks, properties),
            transactional_id=values["transactional.id"],
            transaction_timeout_ms=values["transaction.timeout.ms"],
            ignores_keys=values["partitioner.ignore.keys"],
        )


def _delivery_timeout_ms(
    values: Mapping[str, Any], client: ClientSettings, properties: Mapping[str, str]
) -> int:
    timeout_ms: int = values["delivery.timeout.ms"]
    least_ms: int = min(values["linger.ms"] + client.request_timeout_ms, INT_MAX)
    if timeout_ms >= least_ms:
        return timeout_ms
    if "delivery.timeout.ms" in properties:
        raise InvalidConfigError(
            "delivery.timeout.ms should be equal to or larger than linger.ms + request.timeout.ms"
        )
    return least_ms


def _is_idempotent(
    values: Mapping[str, Any], client: ClientSettings, acks: int, properties: Mapping[str, str]
) -> bool:
    """Idempotent unless other options forbid it; an error if it was set explicitly."""
    wanted = "enable.idempotence" in properties or values["transactional.id"] is not None
    if not values["enable.idempotence"]:
        if values["transactional.id"] is not None:
            raise SettingsError("Cannot set a transactional.id without also enabling idempotence.")
        return False
    against = None
    if client.retries == 0:
        against = "Must set retries to non-zero when using the idempotent producer."
    elif acks != _ALL:
        against = (
            "Must set acks to all in order to use the idempotent producer. Otherwise we cannot "
            "guarantee idempotence."
        )
    elif values["max.in.flight.requests.per.connection"] > _IDEMPOTENT_IN_FLIGHT_MAX:
        against = (
            "Must set max.in.flight.requests.per.connection to at most 5 to use the idempotent "
            "producer."
        )
    if against is None:
        return True
    # Too many requests in flight are an error even if idempotence is only the default
    # (KAFKA-13598).
    if wanted or against.startswith("Must set max"):
        raise SettingsError(against)
    return False
