"""Options of topics and brokers, and the parts that apply them."""

import asyncio
from dataclasses import fields

import pytest
from tests.unit.broker.live import play, produce, produced

from odradek.broker.settings import TopicSettingsBook, settings_of
from odradek.config.broker import BrokerConfig
from odradek.config.option import InvalidConfigError
from odradek.coord.layout_config import (
    CONFIG_CHANGES,
    encode_config,
    encode_config_change,
    topic_entity,
)
from odradek.log.log_config import LogConfig
from odradek.model.errors import ErrorCode
from odradek.record.batch import TimestampType
from odradek.record.compression import Codec
from odradek.wire.messages.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
)

T0 = ("t", 0)
TOPIC, BROKER = 2, 4
SET, DELETE = 0, 1


def config(**properties):
    given = {name.replace("_", "."): str(value) for name, value in properties.items()}
    return BrokerConfig({"broker.id": "0", **given}, host_name="h")


def book(**properties):
    changed = []
    made = TopicSettingsBook(config(**properties), changed=changed.append)
    made.changed = changed
    return made


# --------------------------------------------------------------------------------- the book


def test_topics_without_options_of_their_own_share_one_object():
    settings = book()
    settings.set_topic("own", {"retention.ms": "1"})

    assert settings.topic("a") is settings.topic("b")
    assert settings.topic("own") is settings.topic("own") is not settings.topic("a")


def test_a_change_is_notified_once_and_no_change_is_not():
    settings = book()
    settings.set_topic("t", {"retention.ms": "1"})
    settings.set_topic("t", {"retention.ms": "1"})
    assert settings.changed == ["t"]
    settings.set_topic("t", {})
    settings.set_topic("t", {})
    settings.set_topic("u", {})
    assert settings.changed == ["t", "t"]
    assert settings.topic("t") is settings.topic("u")


def test_the_brokers_options_are_every_topics_defaults():
    settings = book()
    settings.set_topic("t", {"retention.ms": "1"})
    settings.set_broker(config(log_segment_bytes=12_345, log_retention_ms=99))

    own, other = settings.topic("t").log_config, settings.topic("u").log_config
    assert (own.segment_bytes, own.retention_ms) == (12_345, 1)
    assert (other.segment_bytes, other.retention_ms) == (12_345, 99)


def test_what_cannot_be_changes_nothing():
    settings = book()
    settings.set_topic("t", {"retention.ms": "1"})
    with pytest.raises(InvalidConfigError):
        settings.set_topic("t", {"retention.ms": "soon"})
    assert settings.topic("t").log_config.retention_ms == 1
    with pytest.raises(InvalidConfigError):
        settings.set_topic("u", {"segment.bytes": "-1"})
    assert settings.topic("u") is settings.topic("v")
    assert settings.changed == ["t"]


LOG_OPTIONS = {
    "cleanup.policy": ("compact,delete", frozenset({"compact", "delete"})),
    "segment.bytes": ("2000", 2000),
    "segment.ms": ("2001", 2001),
    "segment.jitter.ms": ("2002", 2002),
    "segment.index.bytes": ("2003", 2003),
    "index.interval.bytes": ("2004", 2004),
    "retention.bytes": ("2005", 2005),
    "retention.ms": ("2006", 2006),
    "max.message.bytes": ("2007", 2007),
    "flush.messages": ("2008", 2008),
    "flush.ms": ("2009", 2009),
    "file.delete.delay.ms": ("2010", 2010),
    "delete.retention.ms": ("2011", 2011),
    "min.cleanable.dirty.ratio": ("0.25", 0.25),
    "min.compaction.lag.ms": ("12", 12),
    "max.compaction.lag.ms": ("2013", 2013),
    "message.downconversion.enable": ("false", False),
}


def test_every_option_of_a_log_comes_from_its_topics_option():
    overrides = {name: text for name, (text, _) in LOG_OPTIONS.items()}
    made = settings_of(config().topic(overrides), config()).log_config

    assert {f.name.replace("_", ".") for f in fields(LogConfig)} == LOG_OPTIONS.keys()
    for name, (_, value) in LOG_OPTIONS.items():
        assert getattr(made, name.replace(".", "_")) == value, name


@pytest.mark.parametrize(
    ("override", "attribute", "value"),
    [
        ({"max.message.bytes": "9"}, "message_bytes_max", 9),
        (
            {"message.timestamp.type": "LogAppendTime"},
            "timestamp_type",
            TimestampType.LOG_APPEND_TIME,
        ),
        ({"message.timestamp.type": "CreateTime"}, "timestamp_type", TimestampType.CREATE_TIME),
        ({"message.timestamp.before.max.ms": "7"}, "timestamp_before_max_ms", 7),
        ({"message.timestamp.after.max.ms": "8"}, "timestamp_after_max_ms", 8),
        ({"cleanup.policy": "delete"}, "compacted", False),
        ({"cleanup.policy": "compact"}, "compacted", True),
        ({"cleanup.policy": "delete,compact"}, "compacted", True),
        ({"compression.type": "producer"}, "codec", None),
        ({"compression.type": "uncompressed"}, "codec", Codec.NONE),
        ({"compression.type": "gzip"}, "codec", Codec.GZIP),
        ({"compression.type": "snappy"}, "codec", Codec.SNAPPY),
        ({"compression.type": "lz4"}, "codec", Codec.LZ4),
        ({"compression.type": "zstd"}, "codec", Codec.ZSTD),
    ],
)
def test_every_rule_of_validation_comes_from_its_topics_option(override, attribute, value):
    made = settings_of(config().topic(override), config()).rules

    assert getattr(made, attribute) == value


def test_levels_of_compression_full_validation_and_the_isr():
    levels = {
        "compression.gzip.level": "3",
        "compression.lz4.level": "4",
        "compression.zstd.level": "5",
        "min.insync.replicas": "2",
    }
    careful = config(log_validate_records="full")
    trusting = config(log_validate_records="batch")
    made = settings_of(careful.topic(levels), careful)

    assert (made.rules.levels.gzip, made.rules.levels.lz4, made.rules.levels.zstd) == (3, 4, 5)
    assert made.rules.full
    assert made.isr_min == 2
    assert settings_of(config().topic({}), config()).rules.full
    assert not settings_of(trusting.topic({}), trusting).rules.full


# ----------------------------------------------------------------------- the whole broker


async def alter(live, resource_type, name, *alterations):
    """IncrementalAlterConfigs of one resource: (option, value), None to delete."""
    configs = [
        AlterableConfig(name=option, value=value, config_operation=DELETE if value is None else SET)
        for option, value in alterations
    ]
    resource = AlterConfigsResource(
        resource_type=resource_type, resource_name=name, configs=configs
    )
    request = IncrementalAlterConfigsRequest(resources=[resource])
    (answer,) = (await live.peer().ask(request)).responses
    assert answer.error_code == ErrorCode.NONE, answer


def test_a_topics_option_holds_when_the_change_is_answered():
    async def story(live):
        await live.topic("t")
        await live.topic("u")
        peer = live.peer()
        await alter(live, TOPIC, "t", ("max.message.bytes", "100"), ("retention.ms", "777"))
        too_large = {T0: ErrorCode.MESSAGE_TOO_LARGE}
        assert produced(await peer.ask(produce(live.batch(b"x" * 200)))) == too_large
        assert live.log().config.retention_ms == 777
        assert live.log("u").config.retention_ms != 777

        await alter(live, TOPIC, "t", ("max.message.bytes", None))
        assert produced(await peer.ask(produce(live.batch(b"x" * 200)))) == {T0: 0}
        assert live.log().config.retention_ms == 777

    play(story)


@pytest.mark.parametrize("name", ["0", ""])
def test_a_brokers_option_reaches_every_topic_that_has_none(name):
    async def story(live):
        await live.topic("t")
        await live.topic("own", retention_ms=5)
        await alter(live, BROKER, name, ("log.retention.ms", "4444"), ("message.max.bytes", "99"))

        assert live.log().config.retention_ms == 4444
        assert live.log("own").config.retention_ms == 5
        assert live.partition().rules.message_bytes_max == 99
        await live.topic("later")
        assert live.log("later").config.retention_ms == 4444
        await alter(live, BROKER, name, ("log.retention.ms", None))
        assert live.log().config.retention_ms == 604_800_000

    play(story)


def test_for_this_broker_goes_before_for_all():
    async def story(live):
        await live.topic("t")
        await alter(live, BROKER, "0", ("log.retention.ms", "1111"))
        await alter(live, BROKER, "", ("log.retention.ms", "2222"))
        assert live.log().config.retention_ms == 1111
        await alter(live, BROKER, "0", ("log.retention.ms", None))
        assert live.log().config.retention_ms == 2222
        await live.restart()
        await live.until(lambda: live.partition() is not None)
        assert live.log().config.retention_ms == 2222

    play(story)


def test_limits_of_connections_change_while_they_are_open():
    async def story(live):
        await alter(live, BROKER, "0", ("max.connections.per.ip", "2"))
        first, second = live.peer(host="10.9.9.9"), live.peer(host="10.9.9.9")
        assert not first.closed
        assert not second.closed
        assert live.peer(host="10.9.9.9").closed
        assert not live.peer(host="10.9.9.8").closed

    play(story)


async def write_options(live, topic, data):
    """Written without any check, as another program may do."""
    await live.store.set_data(topic_entity(topic).path, data)
    await live.store.create(
        f"{CONFIG_CHANGES}/config_change_",
        encode_config_change(topic_entity(topic)),
        sequential=True,
    )
    await asyncio.sleep(1)


# What cannot be read at all changes nothing. Where only the retention cannot, nothing is deleted.
@pytest.mark.parametrize(
    ("nonsense", "retention_ms"),
    [(encode_config({"retention.ms": "soon", "max.message.bytes": "5000"}), -1), (b"{", 5)],
)
def test_nonsense_in_the_store_deletes_no_records_and_hides_no_other_options(
    nonsense, retention_ms, caplog
):
    async def story(live):
        await live.topic("t", retention_ms=5)
        await live.topic("u")
        await write_options(live, "t", nonsense)
        assert live.log().config.retention_ms == retention_ms
        assert (live.log().config.max_message_bytes == 5000) == (retention_ms == -1)
        assert produced(await live.peer().ask(produce(live.batch(b"a")))) == {T0: 0}
        await write_options(live, "u", encode_config({"retention.ms": "6"}))
        assert live.log("u").config.retention_ms == 6, "the other listeners are notified"
        assert "/config/topics/t" in caplog.text or "topic t" in caplog.text

    play(story)


def test_a_broker_starts_with_nonsense_in_the_store_and_keeps_that_topics_records():
    async def story(live):
        await live.topic("t", retention_ms=5)
        await live.topic("u", retention_ms=6)
        nonsense = encode_config({"cleanup.policy": "compcat", "max.message.bytes": "5000"})
        await live.store.set_data(topic_entity("t").path, nonsense)
        await live.restart()
        await live.until(lambda: len(live.broker.replicas) == 2)

        config = live.log().config
        assert (config.retention_ms, config.retention_bytes) == (-1, -1)
        assert config.max_message_bytes == 5000
        assert live.log("u").config.retention_ms == 6
        assert produced(await live.peer().ask(produce(live.batch(b"a")))) == {T0: 0}

    play(story)
