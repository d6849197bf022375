"""The connector's options: parsed as it does, refused with its text."""

import logging

import pytest

from odradek.model.partition import TopicPartition
from odradek.spark.options import (
    EARLIEST,
    LATEST,
    OptionError,
    QueryBound,
    parse_offsets,
    read_options,
    write_options,
)

SERVERS = {"kafka.bootstrap.servers": "a:9092"}
GIVEN = {**SERVERS, "subscribe": "t"}


def read(streaming=False, **options):
    return read_options({**GIVEN, **options}, streaming=streaming)


def test_defaults_are_the_connectors():
    batch, stream = read(), read(streaming=True)

    assert (batch.start.everywhere, batch.end.everywhere) == (EARLIEST, LATEST)
    assert stream.start.everywhere == LATEST
    assert batch.fail_on_data_loss
    assert not batch.include_headers
    assert not batch.committed


def test_names_are_case_insensitive():
    assert read(STARTINGOFFSETS="earliest", FailOnDataLoss="FALSE").fail_on_data_loss is False
    assert read_options({**SERVERS, "SubscribePattern": "a.*"}, streaming=False).pattern == "a.*"


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"subscribe": "t"}, "Option 'kafka.bootstrap.servers' must be specified"),
        (SERVERS, "One of the following options must be specified"),
        ({**GIVEN, "assign": "{}"}, "Only one of the following options"),
        ({**SERVERS, "subscribe": " , "}, "No topics to subscribe to"),
        ({**SERVERS, "subscribePattern": " "}, "Pattern to subscribe is empty"),
        ({**SERVERS, "subscribePattern": "a("}, "no valid pattern"),
        ({**SERVERS, "subscribePattern": "(?m)^a"}, "flags other than i and s"),
        ({**SERVERS, "assign": "[1]"}, 'Expected e.g. {"topicA":\\[0,1\\]'),
        ({**SERVERS, "assign": "{}"}, "No topicpartitions to assign"),
        ({**GIVEN, "startingOffsets": "latest"}, "starting offset can't be latest for batch"),
        ({**GIVEN, "endingOffsets": "earliest"}, "ending offset can't be earliest for batch"),
        ({**GIVEN, "startingOffsets": '{"t":{"0":-1}}'}, "startingOffsets for t-0 can't be latest"),
        ({**GIVEN, "startingOffsets": '{"t":'}, 'Expected e.g. {"topicA":{"0":23.*got {"t":'),
        ({**GIVEN, "startingOffsets": '{"t":{"0":"x"}}'}, 'got {"t":{"0":"x"}}'),
        ({**GIVEN, "startingOffsets": '{"t":{"0":true}}'}, "Expected e.g."),
        ({**GIVEN, "startingTimestamp": "noon"}, "startingTimestamp=noon: must be a timestamp"),
        ({**GIVEN, "startingOffsetsByTimestampStrategy": "x"}, "must be error or latest"),
        ({**GIVEN, "minPartitions": "0"}, "minPartitions must be positive"),
        ({**GIVEN, "maxRecordsPerPartition": "-1"}, "maxRecordsPerPartition must be positive"),
        ({**GIVEN, "failOnDataLoss": "yes"}, "failOnDataLoss=yes: must be true or false"),
        ({**GIVEN, "kafka.auto.offset.reset": "earliest"}, "Instead set the source option"),
        ({**GIVEN, "kafka.key.deserializer": "x"}, "keys are deserialized as byte arrays"),
        ({**GIVEN, "kafka.enable.auto.commit": "true"}, "commitGroupId commits offsets"),
        (
            {**GIVEN, "kafka.isolation.level": "dirty"},
            "value dirty for configuration isolation.level",
        ),
        ({**GIVEN, "minOffsetsPerTrigger": "9", "maxOffsetsPerTrigger": "5"}, "is higher than"),
        ({**GIVEN, "maxTriggerDelay": "soon"}, "maxTriggerDelay=soon: must be a duration"),
    ],
)
def test_invalid_options_of_a_read_are_refused(options, message):
    with pytest.raises(OptionError, match=message):
        read_options(options, streaming=False)


@pytest.mark.parametrize("name", ["endingOffsets", "endingTimestamp", "endingOffsetsByTimestamp"])
def test_a_stream_has_no_end(name):
    with pytest.raises(OptionError, match="ending offset not valid in streaming queries"):
        read(streaming=True, **{name: "latest"})


def test_a_timestamp_has_precedence_over_offsets():
    options = read(
        startingTimestamp="5",
        startingOffsetsByTimestamp='{"t":{"0":6}}',
        startingOffsets="earliest",
    )

    assert options.start == QueryBound("timestamp", 5, {})
    assert read(startingOffsetsByTimestamp='{"t":{"0":6}}', startingOffsets="earliest").start == (
        QueryBound("timestamp", None, {TopicPartition("t", 0): 6})
    )


def test_offsets_are_read_as_a_checkpoint_has_them():
    assert parse_offsets('{"a":{"0":23,"1":-2},"b":{"0":-1}}') == {
        TopicPartition("a", 0): 23,
        TopicPartition("a", 1): EARLIEST,
        TopicPartition("b", 0): LATEST,
    }


@pytest.mark.parametrize(("text", "ms"), [("15m", 900_000), ("30 s", 30_000), ("250ms", 250)])
def test_durations(text, ms):
    assert read(maxTriggerDelay=text).trigger_delay_ms_max == ms


def test_an_unknown_option_is_logged_with_the_nearest_known_one(caplog):
    with caplog.at_level(logging.WARNING, "odradek.spark"):
        read(startingOffset="earliest", checkpointLocation="/x")

    (warning,) = caplog.messages
    assert "'startingOffset' is unknown" in warning
    assert "did you mean 'startingOffsets'?" in warning


def test_kafkas_properties_have_the_names_of_the_java_client():
    options = read(**{"KAFKA.Security.Protocol": "SSL", "kafka.fetch.min.bytes": "7"})

    assert options.kafka == {
        "bootstrap.servers": "a:9092",
        "security.protocol": "SSL",
        "fetch.min.bytes": "7",
    }


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"topic": "t"}, "Option 'kafka.bootstrap.servers' must be specified .* producer"),
        ({**SERVERS, "topic": ""}, "option 'topic' is empty"),
        ({**SERVERS, "kafka.value.serializer": "x"}, "values are serialized as byte arrays"),
        ({**SERVERS, "kafka.transactional.id": "x"}, "option exactlyOnce names one"),
    ],
)
def test_invalid_options_of_a_write_are_refused(options, message):
    with pytest.raises(OptionError, match=message):
        write_options(options)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("enable.idempotence", "nonsense"),
        ("request.timeout.ms", "abc"),
        ("batch.size", "-1"),
        ("acks", "2"),
        ("compression.type", "rar"),
        ("delivery.timeout.ms", "soon"),
    ],
)
def test_an_invalid_property_is_refused_on_writing(name, value):
    with pytest.raises(OptionError, match=f"{value} for configuration {name}"):
        write_options({**SERVERS, f"kafka.{name}": value})


@pytest.mark.parametrize(("name", "value"), [("fetch.max.bytes", "all"), ("retries", "-1")])
def test_an_invalid_property_is_refused_on_reading(name, value):
    with pytest.raises(OptionError, match=f"{value} for configuration {name}"):
        read(**{f"kafka.{name}": value})


def test_an_unknown_property_is_logged_with_the_nearest_known_one(caplog):
    with caplog.at_level(logging.WARNING, "odradek.spark"):
        read(**{"kafka.fetch.max.byte": "5", "kafka.send.buffer.bytes": "1", "kafka.sasl.x": "y"})
        write_options({**SERVERS, "kafka.linger.msec": "5"})

    reading, writing = caplog.messages
    assert "'kafka.fetch.max.byte' is not a property of a Kafka client" in reading
    assert "did you mean 'kafka.fetch.max.bytes'?" in reading
    assert "did you mean 'kafka.linger.ms'?" in writing
