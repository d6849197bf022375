"""Whatever stands in a znode is decoded into values that the protocol can carry, or is refused."""

import dataclasses
import json
import pathlib
import re
from collections.abc import Mapping
from enum import Enum
from uuid import UUID

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from odradek.coord import layout, layout_config, layout_odradek, layout_security
from odradek.coord.tree import check_path
from odradek.coord.znode import CorruptNodeError, decimals
from odradek.model.acl import ResourcePattern
from odradek.model.partition import TopicPartition

T0 = TopicPartition("t", 0)
EXAMPLES = pathlib.Path(__file__).parent / "znodes_3_9.txt"
OWN_EXAMPLES = {
    "/odradek/features": '{"version":1,"epoch":3,"features":{"transaction.version":2}}',
    "/odradek/lives/1": '{"version":1,"clean_since":7,"empty_since":3}',
    "/odradek/noted": '{"version":1,"controller_epoch":3,"brokers":'
    '[{"broker":1,"epoch":7,"transaction":9}]}',
    "/odradek/isr/t-0": '{"version":1,"partition_epoch":1,"controller_epoch":2,"left":'
    '[{"broker":1,"isr_size":2,"transaction":9}],"isr":[{"broker":2,"transaction":8}]}',
    "/odradek/coordinators/t": '{"version":1,"partitions":50}',
    "/odradek/counters/1": '{"version":1,"value":5,"restored":-1}',
    "/odradek/restored": '{"version":1,"controller_epoch":5,"broker":1,"timestamp":"9",'
    '"proof":"p"}',
    "/odradek/decoys": '{"version":1,"secret":"MDEyMzQ1Njc4OWFiY2RlZjAxMjM0NTY3ODlhYmNkZWY="}',
}


def without_path(decode):
    return lambda _, data: decode(data)


# The kind of node, its decoder, and how many bits a number of it may have.
DECODERS = {
    r"/cluster/id": (without_path(layout.decode_cluster_id), 31),
    r"/controller": (without_path(layout.decode_controller), 63),
    r"/controller_epoch": (without_path(layout.decode_controller_epoch), 31),
    r"/feature": (without_path(layout.decode_feature), 31),
    r"/latest_producer_id_block": (without_path(layout.decode_producer_id_block), 64),
    r"/brokers/ids/\d+": (lambda _, data: layout.decode_broker(1, data, broker_epoch=5), 31),
    r"/brokers/topics/\w+": (lambda path, data: layout.decode_topic(path[16:], data), 31),
    r"/brokers/topics/\w+/partitions/\d+/state": (
        lambda _, data: layout.decode_partition_state(T0, data, partition_epoch=5),
        31,
    ),
    r"/admin/reassign_partitions": (without_path(layout.decode_reassign_partitions), 31),
    r"/admin/preferred_replica_election": (layout.decode_partitions, 31),
    r"/isr_change_notification/.*": (layout.decode_partitions, 31),
    r"/log_dir_event_notification/.*": (layout.decode_log_dir_event, 31),
    r"/config/changes/.*": (layout_config.decode_config_change, 31),
    r"/config/(?!changes).*": (layout_config.decode_config, 31),
    r"/kafka-acl/.*": (layout_security.decode_acls, 31),
    r"/kafka-acl-(extended-)?changes/.*": (layout_security.decode_acl_change, 31),
    r"/delegation_token/tokens/.*": (layout_security.decode_token, 63),
    r"/odradek/features": (without_path(layout.decode_features), 63),
    r"/odradek/lives/1": (
        lambda _, data: layout_odradek.decode_broker(1, data, modified_id=9),
        63,
    ),
    r"/odradek/noted": (lambda _, data: layout_odradek.decode_noted(data, modified_id=9), 63),
    r"/odradek/isr/t-0": (lambda _, data: layout_odradek.decode_isr_history(T0, data), 63),
    r"/odradek/coordinators/t": (
        lambda _, data: layout_odradek.decode_coordinator_count("t", data),
        31,
    ),
    r"/odradek/counters/1": (lambda _, data: layout_odradek.decode_counter(1, data), 63),
    r"/odradek/restored": (without_path(layout_odradek.decode_restored), 63),
    r"/odradek/decoys": (without_path(layout_odradek.decode_decoy_secret), 31),
}
NODES = [line.partition(" ")[::2] for line in EXAMPLES.read_text().splitlines()[1:]] + list(
    OWN_EXAMPLES.items()
)

HOSTILE_NUMBERS = (
    *(-(1 << 31) - 1, -9, -1, 0, (1 << 31) - 1, 1 << 31, (1 << 63) - 1, 1 << 63, 10**40),
    *(1.0, 1e400, float("nan")),
)
HOSTILE_TEXTS = ("", ".", "..", "/", "²", "٣", "-1", "1" * 10, "9" * 50, "\ud800", "\0", "x" * 300)
NUMBERS = st.integers() | st.floats() | st.sampled_from(HOSTILE_NUMBERS)
TEXTS = st.one_of(
    st.text(st.characters(exclude_categories=()), max_size=8),
    st.sampled_from([*HOSTILE_TEXTS, "9" * 5000, "SSL://a:" + "9" * 5000, "SSL://a:70000"]),
)
VALUES = st.recursive(
    st.none() | st.booleans() | NUMBERS | TEXTS,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(TEXTS, inner, max_size=3),
    max_leaves=5,
)


def places(value, at=()):
    """The places in a JSON document, outermost first."""
    yield at
    if isinstance(value, dict):
        for key, inner in value.items():
            yield from places(inner, (*at, key))
    elif isinstance(value, list):
        for index, inner in enumerate(value):
            yield from places(inner, (*at, index))


def changed(value, at, draw):
    """The document with something else at one place: another value, another key, or nothing."""
    if not at:
        return draw(VALUES)
    inner = dict(value) if isinstance(value, dict) else list(value)
    if len(at) > 1:
        inner[at[0]] = changed(inner[at[0]], at[1:], draw)
    elif draw(st.booleans()):
        inner[at[0]] = draw(VALUES)
    else:
        former = inner.pop(at[0])
        if isinstance(inner, dict) and draw(st.booleans()):
            inner[draw(TEXTS)] = former
    return inner


@st.composite
def nodes(draw):
    """A path, and data that somebody may have written there."""
    path, text = draw(st.sampled_from(NODES))
    if draw(st.integers(0, 9)) == 0:
        return path, draw(
            st.none()
            | st.binary(max_size=20)
            | st.sampled_from([text.encode()[:-1], text.encode("utf-16"), b"[" * 5_000])
        )
    if not text.startswith("{"):
        return path, str(draw(VALUES)).encode("utf-8", "surrogatepass")
    document = json.loads(text)
    for _ in range(draw(st.integers(1, 2))):
        if isinstance(document, dict):
            document = changed(document, draw(st.sampled_from(list(places(document)))), draw)
    is_escaped = draw(st.booleans())
    written = json.dumps(document, ensure_ascii=is_escaped)
    return path, written.encode("utf-8", "surrogatepass")


def check(value, bits):
    """Everything in a decoded value fits into the protocol."""
    match value:
        case None | bool() | UUID() | Enum() | bytes():
            pass
        case int():
            assert -1 << bits <= value < 1 << bits, value
        case str():
            value.encode()
        case Mapping():
            for key, inner in value.items():
                check(key, bits)
                check(inner, bits)
        case tuple() | list() | frozenset():
            for inner in value:
                check(inner, bits)
        case _:
            for field in dataclasses.fields(value):
                check(getattr(value, field.name), bits)


def decoder_of(path):
    (found,) = (found for pattern, found in DECODERS.items() if re.fullmatch(pattern, path))
    return found


def check_node(path, data):
    (found,) = (found for pattern, found in DECODERS.items() if re.fullmatch(pattern, path))
    decode, bits = found
    try:
        value = decode(path, data)
    except CorruptNodeError as error:
        str(error).encode()  # it can be logged
        return
    check(value, bits)
    if isinstance(value, layout_config.ConfigEntity):
        check_path(value.path)
    if isinstance(value, ResourcePattern):
        check_path(layout_security.acl_path(value))


@settings(max_examples=50)
@given(nodes())
def test_a_node_is_decoded_into_what_the_protocol_can_carry_or_refused_with_its_path(node):
    check_node(*node)


def with_hostile(value, at):
    """The document with each hostile value at one place, without it, and with another key."""
    if at:
        yield changed_at(value, at, lambda _, key: {})
        for text in HOSTILE_TEXTS:
            yield changed_at(value, at, lambda inner, key, text=text: {text: inner[key]})
    for other in (*HOSTILE_TEXTS, *HOSTILE_NUMBERS, None, True, [], {}, [None], [{}], {"a": 1}):
        yield changed_at(value, at, lambda _, key, other=other: {key: other}) if at else other


def changed_at(value, at, change):
    inner = dict(value) if isinstance(value, dict) else dict(enumerate(value))
    if len(at) > 1:
        inner[at[0]] = changed_at(inner[at[0]], at[1:], change)
    else:
        put = change(inner, at[0])
        del inner[at[0]]
        inner |= put
    return inner if isinstance(value, dict) else list(inner.values())


@pytest.mark.parametrize("kind", DECODERS)
def test_no_value_at_any_place_of_a_node_is_beyond_the_protocol(kind):
    examples = [(p, t) for p, t in NODES if re.fullmatch(kind, p) and t.startswith("{")]
    for path, text in examples[-2:]:  # the last ones have the most keys
        document = json.loads(text)
        for at in places(document):
            for other in with_hostile(document, at):
                check_node(path, json.dumps(other).encode())


def test_every_decoder_has_an_example():
    for pattern, (decode, bits) in DECODERS.items():
        examples = [(p, t) for p, t in NODES if re.fullmatch(pattern, p)]
        assert examples, pattern
        for path, text in examples:
            check(decode(path, text.encode()), bits)


def test_only_numbers_as_kafka_writes_them_are_taken_from_the_names_of_nodes():
    big = [str((1 << 31) - 1), str(1 << 31), "9" * 5000]

    found = decimals(["10", "9", "0", "007", "-1", "+1", "1_0", " 1", "٣", "²", "", "a", *big])

    assert found == [0, 9, 10, (1 << 31) - 1]
