"""Brokers and how they are reached."""

from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True, kw_only=True)
class EndPoint:
    """One listener of a broker, as others are told to reach it."""

    listener: str  # its name, upper case as Kafka writes it
    security_protocol: str  # PLAINTEXT, SSL, SASL_PLAINTEXT or SASL_SSL
    host: str
    port: int

    @property
    def connection_string(self) -> str:
        """As it stands in `advertised.listeners` and in the broker's znode."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{self.listener}://{host}:{self.port}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Broker:
    """One registered broker."""

    id: int
    end_points: tuple[EndPoint, ...]
    rack: str | None = None
    # The transaction id that created its registration (ZooKeeper: czxid): one life of it.
    broker_epoch: int = -1
    # It has lost nothing since this transaction; -1: nobody knows, it is a broker of another kind.
    clean_since: int = -1
    # The transaction with which it registered with a log directory that was empty; -1: it never
    # did, or nobody knows.
    empty_since: int = -1
    # The transaction with which a controller noted this life of it, before deciding by it; -1: none
    # has, or nobody knows.
    noted_id: int = field(default=-1, compare=False)

    def end_point(self, listener: str) -> EndPoint | None:
        """Where this broker is reached on a listener, or None if it has no such."""
        for end_point in self.end_points:
            if end_point.listener == listener:
                return end_point
        return None
