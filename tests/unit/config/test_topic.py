"""A topic's own options, and those inherited from its broker."""

import pytest

from odradek.config.broker import BrokerConfig
from odradek.config.option import LONG_MAX, InvalidConfigError

BROKER = BrokerConfig(
    {"log.segment.bytes": "5000", "log.roll.hours": "2", "log.cleanup.policy": "compact,delete"},
    host_name="here",
)


def test_topics_without_overrides_share_one_object():
    assert BROKER.topic({}) is BROKER.topic({}) is BROKER.topic_defaults


def test_a_topics_override_has_precedence_over_its_brokers_option():
    topic = BROKER.topic({"segment.bytes": " 7000 ", "cleanup.policy": "compact"})

    assert topic.segment_bytes == 7000
    assert topic.segment_ms == 7_200_000
    assert topic.cleanup_policy == {"compact"}
    assert BROKER.topic_defaults.segment_bytes == 5000
    assert BROKER.topic_defaults.cleanup_policy == {"compact", "delete"}


def test_an_unknown_name_is_kept_and_has_no_effect():
    topic = BROKER.topic({"foo": "bar"})

    assert topic.overrides == {"foo": "bar"}
    assert topic.segment_bytes == 5000


def test_a_value_that_is_not_allowed_is_refused():
    with pytest.raises(InvalidConfigError, match="segment.bytes: Value must be at least 14"):
        BROKER.topic({"segment.bytes": "13"})


@pytest.mark.parametrize(
    ("overrides", "before_ms", "after_ms"),
    [
        ({}, LONG_MAX, LONG_MAX),
        ({"message.timestamp.difference.max.ms": "5"}, 5, 5),
        (
            {
                "message.timestamp.difference.max.ms": "5",
                "message.timestamp.before.max.ms": "6",
            },
            6,
            5,
        ),
        ({"message.timestamp.after.max.ms": "7"}, LONG_MAX, 7),
    ],
)
def test_the_former_name_of_the_timestamp_limits_is_used_where_the_new_one_is_not_set(
    overrides, before_ms, after_ms
):
    topic = BROKER.topic(overrides)

    assert topic.message_timestamp_before_max_ms == before_ms
    assert topic.message_timestamp_after_max_ms == after_ms
