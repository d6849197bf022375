"""Any configuration is accepted, or refused with a reason."""

import contextlib

from hypothesis import given
from hypothesis import strategies as st

from odradek.config.broker import BROKER_OPTIONS, BrokerConfig
from odradek.config.describe import describe_broker, describe_topic
from odradek.config.dynamic import OptionAlteration, alter_broker, alter_topic
from odradek.config.option import ConfigConflictError, InvalidConfigError, Type
from odradek.config.topic import TOPIC_OPTIONS
from odradek.model.errors import ApiError

OPTIONS = {**BROKER_OPTIONS, **{f"topic {name}": o for name, o in TOPIC_OPTIONS.items()}}
TEXTS = st.one_of(
    st.text(),
    st.integers().map(str),
    st.floats().map(repr),
    st.sampled_from(
        ["", "-1", "0", "1", "5000", "true", "PLAINTEXT://:1", "a:1", "compact,delete"]
    ),
)
BROKER = BrokerConfig({"broker.id": "1"}, host_name="here")


@given(st.sampled_from(sorted(OPTIONS)), TEXTS)
def test_an_accepted_value_can_be_printed_and_parsed_again(name, text):
    option = OPTIONS[name]
    try:
        value = option.parse(text)
    except InvalidConfigError:
        return
    if option.type is Type.PASSWORD or value != value:  # noqa: PLR0124 - NaN
        return
    assert option.parse(option.render(value)) == value


@given(st.dictionaries(st.sampled_from(sorted(BROKER_OPTIONS)), TEXTS, max_size=5))
def test_a_broker_starts_or_reports_why_not(properties):
    with contextlib.suppress(InvalidConfigError, ConfigConflictError):
        broker = BrokerConfig(properties, host_name="here")
        assert {entry.name for entry in describe_broker(broker)} >= properties.keys()


ALTERATIONS = st.tuples(
    st.integers(-1, 4),
    st.one_of(st.sampled_from(sorted({*TOPIC_OPTIONS, *BROKER_OPTIONS})), st.text()),
    st.one_of(st.none(), TEXTS),
).map(lambda fields: OptionAlteration(*fields))


@given(st.lists(ALTERATIONS, max_size=4))
def test_a_topic_is_altered_or_the_client_gets_the_reason(alterations):
    with contextlib.suppress(ApiError):
        overrides = alter_topic("t", {}, alterations, BROKER)
        assert describe_topic(BROKER.topic(overrides), BROKER)


@given(st.lists(ALTERATIONS, max_size=4), st.booleans())
def test_a_broker_is_altered_or_the_client_gets_the_reason(alterations, per_broker):
    with contextlib.suppress(ApiError):
        settings = alter_broker(alterations, BROKER, per_broker=per_broker)
        changed = BROKER.with_dynamic(dynamic=settings, dynamic_default={})
        assert {entry.name for entry in describe_broker(changed)} >= settings.keys()
