"""DescribeConfigs, compared with what Apache Kafka 3.9.2 answered."""

import pytest

from odradek.config.broker import BROKER_OPTIONS, BrokerConfig
from odradek.config.describe import (
    ConfigSource,
    describe_broker,
    describe_broker_default,
    describe_topic,
)
from odradek.config.option import Type

BROKER = BrokerConfig(
    {
        "broker.id": "1",
        "num.network.threads": "3",
        "log.retention.hours": "168",
        "super.users": "User:admin",
        "foo": "bar",
        "ssl.keystore.password": "secret",
        "listener.name.plaintext.max.connections": "10",
    },
    host_name="here",
)


def configured(dynamic=(), dynamic_default=()):
    return BROKER.with_dynamic(dynamic=dict(dynamic), dynamic_default=dict(dynamic_default))


def only(entries):
    (entry,) = entries
    return entry


def shown(entry):
    """As kafka-configs shows it."""
    behind = ", ".join(f"{s.source.name}:{s.name}={s.value}" for s in entry.synonyms)
    return f"{entry.value} {entry.source.name} {{{behind}}}"


@pytest.mark.parametrize(
    ("name", "broker", "expected"),
    [
        (
            "num.network.threads",
            configured(dynamic={"num.network.threads": "1"}),
            (
                "1 DYNAMIC_BROKER {DYNAMIC_BROKER:num.network.threads=1, "
                "STATIC_BROKER:num.network.threads=3, DEFAULT:num.network.threads=3}"
            ),
        ),
        (
            "log.retention.ms",
            configured(
                dynamic={"log.retention.ms": "1000000"}, dynamic_default={"log.retention.ms": "7"}
            ),
            (
                "1000000 DYNAMIC_BROKER {DYNAMIC_BROKER:log.retention.ms=1000000, "
                "DYNAMIC_DEFAULT_BROKER:log.retention.ms=7, STATIC_BROKER:log.retention.hours=168, "
                "DEFAULT:log.retention.hours=168}"
            ),
        ),
        (
            "log.retention.hours",
            configured(dynamic={"log.retention.ms": "1000000"}),
            (
                "168 STATIC_BROKER {STATIC_BROKER:log.retention.hours=168, "
                "DEFAULT:log.retention.hours=168}"
            ),
        ),
        ("log.retention.ms", BROKER, "None DEFAULT {}"),
        ("log.retention.minutes", BROKER, "None DEFAULT {}"),
        ("node.id", BROKER, "1 STATIC_BROKER {STATIC_BROKER:node.id=1, DEFAULT:node.id=-1}"),
        (
            "log.flush.interval.ms",
            configured(dynamic={"log.flush.interval.ms": "5"}),
            (
                "5 DYNAMIC_BROKER {DYNAMIC_BROKER:log.flush.interval.ms=5, "
                "DEFAULT:log.flush.scheduler.interval.ms=9223372036854775807}"
            ),
        ),
        (
            "listener.name.plaintext.max.connections",
            configured(dynamic={"listener.name.plaintext.max.connections": "20"}),
            (
                "20 DYNAMIC_BROKER {DYNAMIC_BROKER:listener.name.plaintext.max.connections=20, "
                "STATIC_BROKER:listener.name.plaintext.max.connections=10, "
                "DEFAULT:max.connections=2147483647}"
            ),
        ),
        (
            "log.cleaner.io.max.bytes.per.second",
            configured(dynamic={"log.cleaner.io.max.bytes.per.second": "1000"}),
            (
                "1000.0 DYNAMIC_BROKER {DYNAMIC_BROKER:log.cleaner.io.max.bytes.per.second=1000, "
                "DEFAULT:log.cleaner.io.max.bytes.per.second=1.7976931348623157E308}"
            ),
        ),
        (
            "leader.replication.throttled.rate",
            configured(dynamic={"leader.replication.throttled.rate": "1000"}),
            "1000 DYNAMIC_BROKER {DYNAMIC_BROKER:leader.replication.throttled.rate=1000}",
        ),
    ],
)
def test_an_option_of_a_broker_is_described_with_its_synonyms(name, broker, expected):
    assert shown(only(describe_broker(broker, [name]))) == expected


def test_all_options_of_a_broker_are_described_and_what_else_is_set():
    entries = describe_broker(BROKER)
    public = {name for name, option in BROKER_OPTIONS.items() if not option.internal}

    assert {entry.name for entry in entries} == public | {
        "foo",
        "listener.name.plaintext.max.connections",
        "super.users",
    }
    assert len(entries) == len({entry.name for entry in entries})


@pytest.mark.parametrize(
    ("name", "value_type"),
    [("ssl.keystore.password", Type.PASSWORD), ("foo", Type.UNKNOWN)],
)
def test_what_is_or_may_be_a_password_is_not_shown(name, value_type):
    entry = only(describe_broker(BROKER, [name]))

    assert entry.value is None
    assert entry.sensitive
    assert entry.type is value_type
    assert [synonym.value for synonym in entry.synonyms] == [None]


@pytest.mark.parametrize(
    ("name", "read_only"),
    [
        ("log.segment.bytes", False),
        ("num.partitions", True),
        ("listener.name.plaintext.max.connections", True),
        ("leader.replication.throttled.rate", True),
    ],
)
def test_an_option_is_read_only_as_in_kafka(name, read_only):
    broker = configured(dynamic={"leader.replication.throttled.rate": "1"})

    assert only(describe_broker(broker, [name])).read_only is read_only


def test_the_dynamic_default_is_described_without_the_brokers_own_values():
    broker = configured(dynamic={"log.roll.ms": "1"}, dynamic_default={"log.segment.bytes": "5000"})
    entry = only(describe_broker_default(broker))

    assert (
        shown(entry)
        == "5000 DYNAMIC_DEFAULT_BROKER {DYNAMIC_DEFAULT_BROKER:log.segment.bytes=5000}"
    )
    assert describe_broker_default(broker, ["log.roll.ms"]) == []


@pytest.mark.parametrize(
    ("overrides", "name", "broker", "expected"),
    [
        (
            {"cleanup.policy": " compact , delete "},
            "cleanup.policy",
            BROKER,
            (
                "compact,delete TOPIC {TOPIC:cleanup.policy=compact,delete, "
                "DEFAULT:log.cleanup.policy=delete}"
            ),
        ),
        ({"retention.ms": "+5"}, "retention.ms", BROKER, "5 TOPIC {TOPIC:retention.ms=5}"),
        ({}, "retention.ms", BROKER, "604800000 DEFAULT {}"),
        (
            {},
            "retention.ms",
            configured(dynamic={"log.retention.ms": "-2"}),
            (
                "-1 DYNAMIC_BROKER {DYNAMIC_BROKER:log.retention.ms=-2, "
                "STATIC_BROKER:log.retention.hours=168, DEFAULT:log.retention.hours=168}"
            ),
        ),
        ({}, "segment.bytes", BROKER, "1073741824 DEFAULT {DEFAULT:log.segment.bytes=1073741824}"),
        ({}, "leader.replication.throttled.replicas", BROKER, " DEFAULT {}"),
        ({"foo": "bar"}, "foo", BROKER, "None TOPIC {TOPIC:foo=None}"),
    ],
)
def test_an_option_of_a_topic_is_described_with_its_synonyms(overrides, name, broker, expected):
    assert shown(only(describe_topic(broker.topic(overrides), broker, [name]))) == expected


def test_all_options_of_a_topic_are_described():
    entries = describe_topic(BROKER.topic_defaults, BROKER)

    assert len(entries) == 36
    assert all(entry.source is ConfigSource.DEFAULT for entry in entries)
    assert not any(entry.read_only or entry.sensitive for entry in entries)


def test_the_documentation_of_an_option_without_effect_has_a_note():
    threads, segment = describe_broker(BROKER, ["num.io.threads", "log.segment.bytes"])

    assert threads.documentation.endswith("It has no effect on this broker.")
    assert "no effect" not in segment.documentation
