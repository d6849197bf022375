"""The errors and throttle times that brokers count of clients, and what to do about them.

Only brokers of Odradek count them (`odradek.broker.error_counts`). Of each error there is how often
which client got it from which API, and what its request named: topic, group, instance id or
transactional id. Some situations show in these counts alone: nothing else in the cluster is wrong.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, fields
from difflib import get_close_matches
from typing import Any, Final, TypeVar

from odradek.model.clock import WallMs
from odradek.model.command import flag
from odradek.model.sentence import Sentence, sentence
from odradek.plan.commands import Caller, clock, some
from odradek.plan.quantities import span_text, times

Reports = Mapping[int, Mapping[str, Any]]

FENCED: Final = frozenset({"PRODUCER_FENCED", "INVALID_PRODUCER_EPOCH"})
FENCED_MEMBER: Final = "FENCED_INSTANCE_ID"
INCONSISTENT: Final = "INCONSISTENT_GROUP_PROTOCOL"
NO_TOPIC: Final = "UNKNOWN_TOPIC_OR_PARTITION"
NO_SASL: Final = "ILLEGAL_SASL_STATE"
_ALIKE: Final = 0.7  # two names with this ratio of equal characters may be meant for each other


@dataclass(frozen=True, slots=True, order=True)
class CountedError:
    """An error of an API that a broker counted of one client, and what the requests named."""

    broker: int
    api: str
    error: str
    client_id: str
    host: str
    count: int
    first_ms: int
    last_ms: int
    topic: str = ""
    group: str = ""
    instance_id: str = ""
    transactional_id: str = ""

    @property
    def client(self) -> str:
        return f"client {self.client_id or '(without client.id)'} of {self.host}"


@dataclass(frozen=True, slots=True, order=True)
class Throttled:
    """How often and how long a broker made a client wait. `user`, `client`: whose quota it is."""

    broker: int
    client_id: str
    host: str
    option: str
    rate: float
    user: str
    client: str
    total_ms: int
    count: int
    first_ms: int
    last_ms: int


_Counted = TypeVar("_Counted", CountedError, Throttled)


def errors_of(reports: Reports) -> list[CountedError]:
    """The errors in the reports `broker`, the latest first."""
    return _counted(CountedError, "errors", reports)


def throttled_of(reports: Reports) -> list[Throttled]:
    """The throttled clients in the reports `broker`, the latest first."""
    return _counted(Throttled, "throttles", reports)


def _counted(kind: type[_Counted], key: str, reports: Reports) -> list[_Counted]:
    names = [field.name for field in fields(kind)[1:]]
    found = [
        kind(broker, **{name: each[name] for name in names})
        for broker, report in reports.items()
        for each in report.get(key, ())
    ]
    return sorted(found, key=lambda each: (-each.last_ms, each.broker, each))


@dataclass(frozen=True, slots=True, order=True)
class Total:
    """How often, and when first and last, of several counts together."""

    count: int
    first_ms: int
    last_ms: int

    def since(self, wall_ms: WallMs) -> str:
        """`once at 10:00:00`, or `2 times since 10:00:00, the last time at 10:00:07`."""
        if self.count == 1:
            return f"once at {clock(self.last_ms, wall_ms)}"
        return (
            f"{times(self.count)} since {clock(self.first_ms, wall_ms)}, the last time at "
            f"{clock(self.last_ms, wall_ms)}"
        )


def total(counts: Sequence[CountedError | Throttled]) -> Total:
    return Total(
        sum(each.count for each in counts),
        min(each.first_ms for each in counts),
        max(each.last_ms for each in counts),
    )


def clients_of(errors: Iterable[CountedError]) -> str:
    """`client a of 10.0.0.7 and client b of 10.0.0.8`."""
    return some(sorted({each.client for each in errors}))


# --------------------------------------------------------------------------------------- sentences


def described(error: CountedError, wall_ms: WallMs) -> str:
    """`broker 1 answered JoinGroup of client a of h (group g) with E 3 times since 10:00:00`."""
    names = (
        ("topic", error.topic),
        ("group", error.group),
        ("group.instance.id", error.instance_id),
        ("transactional.id", error.transactional_id),
    )
    subject = ", ".join(f"{kind} {name}" for kind, name in names if name)
    return (
        f"broker {error.broker} answered {error.api} of {error.client}"
        f"{f' ({subject})' if subject else ''} with {error.error} "
        f"{total([error]).since(wall_ms)}"
    )


def described_throttle(throttled: Throttled, wall_ms: WallMs) -> str:
    """`broker 1 made client a of h wait 3 times since 10:00:00 ...: producer_byte_rate is 100`."""
    return (
        f"broker {throttled.broker} made client {throttled.client_id or '(without client.id)'} of "
        f"{throttled.host} wait {total([throttled]).since(wall_ms)}, in all "
        f"{span_text(throttled.total_ms / 1000)}: {throttled.option} is {throttled.rate:g}"
        f"{_of_whom(throttled)}"
    )


def _of_whom(throttled: Throttled) -> str:
    whom = [f"user {throttled.user}"] * bool(throttled.user)
    whom += [f"client {throttled.client}"] * bool(throttled.client)
    return f" for {' and '.join(whom)}" if whom else ""


def raise_quota(throttled: Throttled, caller: Caller) -> Sentence:
    """How to raise the quota of a throttled client."""
    user = ("--entity-type", "users", *flag("--entity-name", throttled.user))
    client = ("--entity-type", "clients", *flag("--entity-name", throttled.client))
    entity = (*user * bool(throttled.user), *client * bool(throttled.client))
    if not entity:
        entity = ("--entity-type", "clients", *flag("--entity-name", throttled.client_id))
    return sentence(
        "if it is to have more: ",
        caller.kafka("kafka-configs", "--alter", *entity, "--add-config", f"{throttled.option}=N"),
    )


def advice(error: CountedError, topics: Iterable[str], caller: Caller) -> Sentence:
    """What to do about an error; empty if its name says all. `topics` are those that exist."""
    if error.error in FENCED and error.transactional_id:
        return sentence(
            "another producer began with this transactional.id: end one of the two, or give each "
            "its own; more: ",
            caller.why("transaction", error.transactional_id),
        )
    if error.error == FENCED_MEMBER:
        return sentence(
            "another consumer joined with this group.instance.id: give each consumer its own; "
            "more: ",
            caller.why("group", error.group),
        )
    if error.error == INCONSISTENT:
        return sentence(
            "it shares no protocol with the members of the group: give each application its own "
            "group.id, and all consumers of one the same partition.assignment.strategy; more: ",
            caller.why("group", error.group),
        )
    if error.error == NO_TOPIC and error.topic:
        return no_topic(error.topic, topics, caller)
    if error.error == NO_SASL:
        return sentence(
            "the client uses SASL, and this listener does not: set security.protocol of the client "
            "to that of the listener, or connect to a listener with SASL"
        )
    return sentence(_ADVICE.get(error.error, ""))


def no_topic(topic: str, topics: Iterable[str], caller: Caller) -> Sentence:
    """What to do about requests for a topic; it names the topic that may be meant."""
    existing = set(topics)
    if topic in existing:
        return sentence(f"topic {topic} exists now, or has fewer partitions than were requested")
    alike = get_close_matches(topic, existing, 1, _ALIKE)
    meant = f"use {alike[0]} if that is meant; or " if alike else "correct the name; or "
    return sentence(
        f"there is no topic {topic}: {meant}create it: ",
        caller.kafka("kafka-topics", "--create", *flag("--topic", topic)),
    )


_ADVICE: Final[Mapping[str, str]] = {
    "UNKNOWN_MEMBER_ID": (
        "the group has removed it: it sent no heartbeat for session.timeout.ms, or did not poll "
        "within max.poll.interval.ms"
    ),
    "ILLEGAL_GENERATION": (
        "the group has rebalanced meanwhile: what it processed may be processed by another member"
    ),
    "OFFSET_OUT_OF_RANGE": (
        "the records at its position are deleted, or were never there: auto.offset.reset decides "
        "where it continues"
    ),
    "GROUP_MAX_SIZE_REACHED": "start fewer consumers, or raise group.max.size",
    "INVALID_SESSION_TIMEOUT": (
        "set session.timeout.ms between group.min.session.timeout.ms and "
        "group.max.session.timeout.ms of the brokers"
    ),
    "INVALID_TRANSACTION_TIMEOUT": (
        "lower transaction.timeout.ms of the producer, or raise transaction.max.timeout.ms"
    ),
    "INVALID_PRODUCER_ID_MAPPING": (
        "its transactional.id has expired (transactional.id.expiration.ms): restart the producer"
    ),
    "INVALID_TXN_STATE": "the transaction has ended already, or the client mixes up its requests",
    "UNSUPPORTED_VERSION": "use a version of the client that these brokers serve",
    "INVALID_TOPIC_EXCEPTION": (
        "a topic's name has at most 249 letters, digits, dots, underscores and hyphens"
    ),
    "INVALID_REPLICATION_FACTOR": "there are fewer brokers than replicas wanted",
    "NOT_ENOUGH_REPLICAS": "too few replicas are in sync: odradek doctor names the partitions",
}
