"""Brokers and their endpoints."""

from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True, kw_only=True)
class EndPoint:
    """One advertised listener of a broker (Kafka: `EndPoint`)."""

    listener: str  # its name, upper case as Kafka writes it
    security_protocol: str  # PLAINTEXT, SSL, SASL_PLAINTEXT or SASL_SSL
    host: str
    port: int

    @property
    def connection_string(self) -> str:
        """As written in `advertised.listeners` and in the broker's znode."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{self.listener}://{host}:{self.port}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Broker:
    """One registered broker (Kafka: `kafka.cluster.Broker`)."""

    id: int
    end_points: tuple[EndPoint, ...]
    rack: str | None = None
    # The transaction id that created this registration (ZooKeeper: czxid).
    broker_epoch: int = -1
    # The broker has lost no log data since this transaction id; -1: not known, as for a broker of
    # Apache Kafka.
    clean_since: int = -1
    # The transaction id of the last registration with an empty log directory; -1: there was none,
    # or it is not known.
    empty_since: int = -1
    # The transaction id of the last registration with an older copy of all log directories; -1 as
    # above.
    put_back_since: int = -1
    # The transaction id with which a controller recorded this registration, before its first
    # decision about it; -1: not recorded, or not known.
    noted_id: int = field(default=-1, compare=False)

    def end_point(self, listener: str) -> EndPoint | None:
        """The endpoint of a listener, or None if the broker does not advertise that listener."""
        for end_point in self.end_points:
            if end_point.listener == listener:
                return end_point
        return None
