"""AlterConfigs: the answers of Apache Kafka 3.9.2, except where they do harm."""

import pytest

from odradek.config.broker import BrokerConfig
from odradek.config.dynamic import (
    Operation,
    OptionAlteration,
    alter_broker,
    alter_topic,
    check_fits,
    check_new_topic,
    is_per_broker,
    replace_broker,
    replace_topic,
    usable,
)
from odradek.model.errors import ApiError, ErrorCode

BROKER = BrokerConfig({"broker.id": "1", "num.network.threads": "3"}, host_name="here")
OPERATIONS = {
    "=": Operation.SET,
    "!": Operation.DELETE,
    "+": Operation.APPEND,
    "-": Operation.SUBTRACT,
}


def alterations(*texts):
    """`=name=value` sets, `!name` deletes, `+name=value` appends, `-name=value` subtracts."""
    for text in texts:
        name, equals, value = text[1:].partition("=")
        yield OptionAlteration(OPERATIONS[text[0]], name, value if equals else None)


def altered(stored, *texts):
    return alter_topic("t", stored, list(alterations(*texts)), BROKER)


def refusal(call, *arguments, **options):
    with pytest.raises(ApiError) as refused:
        call(*arguments, **options)
    return refused.value.code, refused.value.message


@pytest.mark.parametrize(
    ("stored", "texts", "result"),
    [
        ({}, ["=segment.bytes=5000"], {"segment.bytes": "5000"}),
        ({"segment.bytes": "5000"}, ["=segment.bytes= 6000 "], {"segment.bytes": " 6000 "}),
        ({"segment.bytes": "5000", "flush.ms": "1"}, ["!segment.bytes"], {"flush.ms": "1"}),
        ({}, ["!segment.bytes"], {}),
        ({}, ["!foo"], {}),
        ({}, ["+cleanup.policy=compact"], {"cleanup.policy": "delete,compact"}),
        ({}, ["-cleanup.policy=delete"], {"cleanup.policy": ""}),
        ({"cleanup.policy": ""}, ["+cleanup.policy=compact"], {"cleanup.policy": "compact"}),
        (
            {"cleanup.policy": "compact,delete"},
            ["-cleanup.policy=delete,foo"],
            {"cleanup.policy": "compact"},
        ),
        (
            {"leader.replication.throttled.replicas": "0:1"},
            ["+leader.replication.throttled.replicas=0:1, 0:2"],
            {"leader.replication.throttled.replicas": "0:1,0:2"},
        ),
        (
            {"min.compaction.lag.ms": "5"},
            ["=max.compaction.lag.ms=5"],
            {"min.compaction.lag.ms": "5", "max.compaction.lag.ms": "5"},
        ),
        ({"foo": "kept"}, ["!segment.bytes", "!foo"], {}),
    ],
)
def test_a_topic_is_altered(stored, texts, result):
    assert altered(stored, *texts) == result


WHERE = "Invalid config value for resource ConfigResource(type=TOPIC, name='t'): "
THROTTLED_FORM = (
    "Invalid value [abc] for configuration leader.replication.throttled.replicas: "
    "leader.replication.throttled.replicas must be the literal '*' or a list of replicas in the "
    "following format: [partitionId]:[brokerId],[partitionId]:[brokerId],..."
)


@pytest.mark.parametrize(
    ("texts", "code", "message"),
    [
        (["=foo=bar"], "INVALID_CONFIG", "Unknown topic config name: foo"),
        (
            ["=retention.ms=abc"],
            "INVALID_CONFIG",
            WHERE + "Invalid value abc for configuration retention.ms: Not a number of type LONG",
        ),
        (
            ["=cleanup.policy=foo"],
            "INVALID_CONFIG",
            WHERE + "Invalid value foo for configuration cleanup.policy: "
            "String must be one of: compact, delete",
        ),
        (
            ["=leader.replication.throttled.replicas=abc"],
            "INVALID_CONFIG",
            WHERE + THROTTLED_FORM,
        ),
        (
            ["=min.compaction.lag.ms=10", "=max.compaction.lag.ms=5"],
            "INVALID_CONFIG",
            "conflict topic config setting min.compaction.lag.ms (10) > max.compaction.lag.ms (5)",
        ),
        (
            ["=remote.storage.enable=true"],
            "INVALID_CONFIG",
            WHERE + "Tiered Storage functionality is disabled in the broker. Topic cannot be "
            "configured with remote log storage.",
        ),
        (
            ["+segment.bytes=5"],
            "INVALID_CONFIG",
            "Config value append is not allowed for config key: segment.bytes",
        ),
        (
            ["-segment.bytes=5"],
            "INVALID_CONFIG",
            "Config value subtract is not allowed for config key: segment.bytes",
        ),
        (["+foo=5"], "INVALID_CONFIG", "Unknown config name: foo"),  # Kafka: UNKNOWN_SERVER_ERROR
        (
            ["=segment.bytes", "=retention.ms"],
            "INVALID_REQUEST",
            "Null value not supported for : segment.bytes, retention.ms",
        ),
        (
            ["=segment.bytes=5000", "!segment.bytes"],
            "INVALID_REQUEST",
            "Error due to duplicate config keys",
        ),
    ],
)
def test_an_invalid_change_of_a_topic_is_refused(texts, code, message):
    assert refusal(altered, {}, *texts) == (ErrorCode[code], message)


def test_an_operation_that_does_not_exist_is_refused():
    code, message = refusal(
        alter_topic, "t", {}, [OptionAlteration(7, "segment.bytes", "1")], BROKER
    )

    assert code is ErrorCode.INVALID_REQUEST
    assert message == "Unknown operation type 7 for segment.bytes"


def test_a_topic_conflicts_with_its_brokers_options_too():
    broker = BROKER.with_dynamic(
        dynamic={"log.cleaner.max.compaction.lag.ms": "100"}, dynamic_default={}
    )

    code, message = refusal(check_new_topic, {"min.compaction.lag.ms": "200"}, broker)

    assert code is ErrorCode.INVALID_CONFIG
    assert message == (
        "conflict topic config setting min.compaction.lag.ms (200) > max.compaction.lag.ms (100)"
    )


def test_a_new_topic_gets_its_configuration_or_a_refusal_without_its_name():
    assert check_new_topic({"segment.bytes": "5000"}, BROKER).segment_bytes == 5000
    assert check_new_topic({}, BROKER) is BROKER.topic_defaults
    assert refusal(check_new_topic, {"segment.bytes": "5"}, BROKER) == (
        ErrorCode.INVALID_CONFIG,
        "Invalid value 5 for configuration segment.bytes: Value must be at least 14",
    )
    assert refusal(check_new_topic, {"retention.ms": None, "flush.ms": None}, BROKER) == (
        ErrorCode.INVALID_CONFIG,
        "Null value not supported for topic configs: retention.ms,flush.ms",
    )


def test_the_older_request_replaces_all_overrides_of_a_topic():
    assert replace_topic("t", [("flush.ms", "1"), ("flush.ms", "2")], BROKER) == {"flush.ms": "2"}
    assert replace_topic("t", [], BROKER) == {}
    assert refusal(replace_topic, "t", [("flush.ms", None)], BROKER) == (
        ErrorCode.INVALID_REQUEST,
        "Null value not supported for : flush.ms",
    )


# ----------------------------------------------------------------------------------- brokers


def altered_broker(*texts, per_broker=True, current=BROKER):
    return alter_broker(list(alterations(*texts)), current, per_broker=per_broker)


RECONFIGURED = (
    "Invalid value org.apache.kafka.common.config.ConfigException: {} for configuration "
    "Invalid dynamic configuration"
)
RESIZED = RECONFIGURED.format(
    "Dynamic thread count update validation failed for {}, value should {} the current value {}"
)


@pytest.mark.parametrize(
    ("texts", "message"),
    [
        (["=broker.rack=x"], "Cannot update these configs dynamically: Set(broker.rack)"),
        (
            ["=num.partitions=3", "=broker.rack=x"],
            "Cannot update these configs dynamically: Set(broker.rack, num.partitions)",
        ),
        (
            ["=ssl.keystore.location=/x"],
            (
                "These security configs can be dynamically updated only per-listener using the "
                "listener prefix: Set(ssl.keystore.location)"
            ),
        ),
        (
            ["=log.cleaner.threads=abc"],
            "Invalid value abc for configuration log.cleaner.threads: Not a number of type INT",
        ),
        (["=log.cleaner.threads=0"], "log.cleaner.threads must be at least 1"),
        (
            ["=log.cleaner.threads=3"],
            RECONFIGURED.format(
                "Log cleaner threads cannot be increased to more than double the current value 1"
            ),
        ),
        (
            ["=num.io.threads=17"],
            RESIZED.format("num.io.threads=17", "not be greater than double", 8),
        ),
        (["=num.io.threads=3"], RESIZED.format("num.io.threads=3", "be at least half", 8)),
        (
            ["=log.retention.ms=0"],
            "log.retention.ms must be unlimited (-1) or, greater than or equal to 1",
        ),
        (
            ["=advertised.listeners=FOO://h:1"],
            (
                "Error creating broker listeners from 'FOO://h:1': "
                "No security protocol defined for listener FOO"
            ),
        ),
        (
            ["=leader.replication.throttled.rate=-1"],
            (
                "Invalid value -1 for configuration leader.replication.throttled.rate: "
                "Value must be at least 0"
            ),
        ),
        (
            ["=listener.name.plaintext.ssl.client.auth=foo"],
            (
                "Invalid value foo for configuration ssl.client.auth: "
                "String must be one of: required, requested, none"
            ),
        ),
        (
            ["=log.flush.interval.ms=-1"],  # Kafka accepts it, and then cannot describe any topic
            "log.flush.interval.ms must be greater than or equal to 0",
        ),
        (["=log.segment.bytes"], "Null value not supported for : log.segment.bytes"),
        (["=max.connections=0"], RECONFIGURED.format("Invalid max.connections 0")),
        (
            ["=listener.name.plaintext.max.connections=0"],
            RECONFIGURED.format("Invalid max.connections 0"),
        ),
        (
            ["=listeners=PLAINTEXT://127.0.0.1:1"],  # Kafka accepts it, and then cannot start
            RECONFIGURED.format(
                "listener PLAINTEXT://127.0.0.1:1: a port below 1024 is set in server.properties "
                "only, because only the next start shows whether it can be bound"
            ),
        ),
    ],
)
def test_an_invalid_change_of_a_running_broker_is_refused(texts, message):
    assert refusal(altered_broker, *texts) == (ErrorCode.INVALID_REQUEST, message)


@pytest.mark.parametrize(
    "name", ["listeners", "listener.name.plaintext.ssl.keystore.location", "ssl.cipher.suites"]
)
def test_a_per_broker_option_cannot_be_set_for_all(name):
    assert refusal(altered_broker, f"={name}=x", per_broker=False) == (
        ErrorCode.INVALID_REQUEST,
        (
            "Cannot update these configs at default cluster level, broker id must be specified: "
            f"Set({name})"
        ),
    )


@pytest.mark.parametrize(
    ("texts", "result"),
    [
        (["=log.cleaner.threads=2"], {"log.cleaner.threads": "2"}),
        (["=num.io.threads=16"], {"num.io.threads": "16"}),
        (["=num.network.threads=1"], {"num.network.threads": "1"}),
        (["+log.cleanup.policy=compact"], {"log.cleanup.policy": "delete,compact"}),
        (
            ["=listener.name.plaintext.max.connections=10"],
            {"listener.name.plaintext.max.connections": "10"},
        ),
        (
            ["=leader.replication.throttled.rate=1000"],
            {"leader.replication.throttled.rate": "1000"},
        ),
        (["!foo"], {}),
    ],
)
def test_a_running_broker_is_altered(texts, result):
    assert altered_broker(*texts) == result


def test_a_change_for_all_is_checked_against_this_brokers_settings():
    current = BROKER.with_dynamic(dynamic={"log.cleaner.threads": "2"}, dynamic_default={})

    assert altered_broker("=log.cleaner.threads=9", per_broker=False, current=current) == {
        "log.cleaner.threads": "9"
    }


def test_a_conflict_of_another_broker_from_before_a_change_does_not_refuse_it():
    small = {"log.cleaner.dedupe.buffer.size": "1572864"}
    others = {"7": {"log.cleaner.threads": "2"}}
    with pytest.raises(ApiError, match=r"broker 7: log\.cleaner\.dedupe"):
        check_fits(small, BROKER, others)
    current = BROKER.with_dynamic(dynamic={}, dynamic_default=small)
    check_fits({**small, "log.retention.ms": "77"}, current, others)


def test_an_unknown_name_is_refused_but_a_stored_one_stays_and_can_be_deleted():
    stored = BROKER.with_dynamic(dynamic={"foo": "bar"}, dynamic_default={})

    assert refusal(altered_broker, "=foo=bar") == (
        ErrorCode.INVALID_CONFIG,
        "Unknown broker config name: foo",
    )
    assert altered_broker("=log.flush.interval.ms=5", current=stored) == {
        "foo": "bar",
        "log.flush.interval.ms": "5",
    }
    assert altered_broker("!foo", current=stored) == {}


def test_the_passwords_of_tls_can_be_set_with_a_secret():
    name = "listener.name.x.ssl.keystore.password"
    with_secret = BROKER.with_overrides({"password.encoder.secret": "s"})
    assert altered_broker(f"={name}=x", current=with_secret) == {name: "x"}
    assert refusal(altered_broker, f"={name}=x")[1].endswith(
        "Password encoder secret not configured"
    )


@pytest.mark.parametrize("name", ["sasl.jaas.config", "listener.name.x.plain.sasl.jaas.config"])
def test_no_password_is_stored_in_the_clear(name):
    where = "Invalid config value for resource ConfigResource(type=BROKER, name='1'): "
    with_secret = BROKER.with_overrides({"password.encoder.secret": "s"})

    assert refusal(altered_broker, f"={name}=x") == (
        ErrorCode.INVALID_CONFIG,
        where + "Password encoder secret not configured",
    )
    assert refusal(altered_broker, f"={name}=x", current=with_secret) == (
        ErrorCode.INVALID_CONFIG,
        where + f"{name} can be set in server.properties only",
    )


def test_the_older_request_replaces_all_dynamic_settings_of_a_broker():
    current = BROKER.with_dynamic(dynamic={"log.segment.bytes": "5000"}, dynamic_default={})

    assert replace_broker([("log.flush.interval.ms", "5")], current, per_broker=True) == {
        "log.flush.interval.ms": "5"
    }


def test_a_broker_resource_is_this_broker_or_the_default():
    assert is_per_broker("1", BROKER)
    assert not is_per_broker("", BROKER)
    assert refusal(is_per_broker, "2", BROKER) == (
        ErrorCode.INVALID_REQUEST,
        "Unexpected broker id, expected 1 or empty string, but received 2",
    )
    assert refusal(is_per_broker, "abc", BROKER) == (
        ErrorCode.INVALID_REQUEST,
        "Broker id must be an integer, but it is: abc",
    )


def test_a_broker_ignores_stored_settings_that_it_cannot_apply():
    stored = {
        "log.segment.bytes": "5000",
        "log.flush.interval.ms": "soon",
        "num.partitions": "3",
        "listeners": "PLAINTEXT://:1",
        "foo": "bar",
    }

    assert usable(stored, per_broker=False) == (
        {"log.segment.bytes": "5000", "foo": "bar"},
        ["listeners", "log.flush.interval.ms", "num.partitions"],
    )
