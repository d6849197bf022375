"""The settings of a consumer, under Java's names (kafka-clients 3.9, `ConsumerConfig`).

`consumer.timeout.ms` is that of Kafka 0.8's consumer: an iteration ends after this time without a
record.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from odradek.client.group.assignors import assignor_of
from odradek.client.settings import (
    ClientSettings,
    ConstructionError,
    SettingsError,
    read,
    resolved,
)
from odradek.config.option import (
    BOOLEAN,
    INT,
    LIST,
    STRING,
    Option,
    at_least,
    one_of,
    table,
)

RANGE: Final = "org.apache.kafka.clients.consumer.RangeAssignor"
COOPERATIVE: Final = "org.apache.kafka.clients.consumer.CooperativeStickyAssignor"

CONSUMER: Final = table(
    [
        Option("group.id", STRING, None),
        Option("group.instance.id", STRING, None),
        Option("auto.offset.reset", STRING, "latest", rule=one_of("latest", "earliest", "none")),
        Option("enable.auto.commit", BOOLEAN, True),
        Option("auto.commit.interval.ms", INT, 5_000, rule=at_least(0)),
        Option("session.timeout.ms", INT, 45_000),
        Option("heartbeat.interval.ms", INT, 3_000),
        Option("max.poll.interval.ms", INT, 300_000, rule=at_least(1)),
        Option("max.poll.records", INT, 500, rule=at_least(1)),
        Option("fetch.min.bytes", INT, 1, rule=at_least(0)),
        Option("fetch.max.bytes", INT, 50 << 20, rule=at_least(0)),
        Option("max.partition.fetch.bytes", INT, 1 << 20, rule=at_least(0)),
        Option("fetch.max.wait.ms", INT, 500, rule=at_least(0)),
        Option(
            "isolation.level",
            STRING,
            "read_uncommitted",
            rule=one_of("read_committed", "read_uncommitted"),
        ),
        Option("partition.assignment.strategy", LIST, (RANGE, COOPERATIVE)),
        Option("client.rack", STRING, ""),
        Option("check.crcs", BOOLEAN, True),
        Option("allow.auto.create.topics", BOOLEAN, True),
        Option("exclude.internal.topics", BOOLEAN, True),
        Option("consumer.timeout.ms", INT, -1),
        Option("group.protocol", STRING, "classic", rule=one_of("classic")),
    ]
)


@dataclass(frozen=True, slots=True, kw_only=True)
class ConsumerSettings:
    """How a consumer fetches, commits and takes part in its group. Times in milliseconds."""

    client: ClientSettings = ClientSettings()
    group_id: str | None = None
    instance_id: str | None = None
    offset_reset: str = "latest"  # earliest, latest or none
    commits_by_itself: bool = True
    commit_interval_ms: int = 5_000
    session_timeout_ms: int = 45_000
    heartbeat_interval_ms: int = 3_000
    poll_interval_ms_max: int = 300_000
    poll_records_max: int = 500
    fetch_bytes_min: int = 1
    fetch_bytes_max: int = 50 << 20
    partition_bytes_max: int = 1 << 20
    fetch_wait_ms_max: int = 500
    reads_committed: bool = False
    assignors: tuple[str, ...] = (RANGE, COOPERATIVE)
    rack: str = ""
    checks_crcs: bool = True
    creates_topics: bool = True
    excludes_internal: bool = True
    iteration_timeout_ms: int | None = None  # None: an iteration never ends

    @classmethod
    def from_properties(
        cls, properties: Mapping[str, str], *, client_id: str = "consumer-1"
    ) -> "ConsumerSettings":
        """Settings from properties; `client_id` is the default if `client.id` is not set.

        Raises:
            InvalidConfigError: a value is invalid; the message is Kafka's.
            SettingsError: options that contradict each other.
        """
        properties = resolved(properties)
        values = read(CONSUMER, properties)
        group_id = values["group.id"]
        commits = values["enable.auto.commit"]
        if group_id is None:
            if "enable.auto.commit" in properties and commits:
                raise SettingsError(
                    "enable.auto.commit cannot be set to true when default group id (null) is used."
                )
            commits = False
        elif values["heartbeat.interval.ms"] >= values["session.timeout.ms"]:
            raise ConstructionError("Heartbeat must be set lower than the session timeout")
        for name in values["partition.assignment.strategy"]:
            assignor_of(name)
        timeout_ms = values["consumer.timeout.ms"]
        return cls(
            client=ClientSettings.from_properties(properties, client_id=client_id, kind="Consumer"),
            group_id=group_id,
            instance_id=values["group.instance.id"],
            offset_reset=values["auto.offset.reset"],
            commits_by_itself=commits,
            commit_interval_ms=values["auto.commit.interval.ms"],
            session_timeout_ms=values["session.timeout.ms"],
            heartbeat_interval_ms=values["heartbeat.interval.ms"],
            poll_interval_ms_max=values["max.poll.interval.ms"],
            poll_records_max=values["max.poll.records"],
            fetch_bytes_min=values["fetch.min.bytes"],
            fetch_bytes_max=values["fetch.max.bytes"],
            partition_bytes_max=values["max.partition.fetch.bytes"],
            fetch_wait_ms_max=values["fetch.max.wait.ms"],
            reads_committed=values["isolation.level"] == "read_committed",
            assignors=values["partition.assignment.strategy"],
            rack=values["client.rack"],
            checks_crcs=values["check.crcs"],
            creates_topics=values["allow.auto.create.topics"],
            excludes_internal=values["exclude.internal.topics"],
            iteration_timeout_ms=None if timeout_ms < 0 else timeout_ms,
        )
