"""Every encoded message is decoded in every version, and any bytes are decoded or refused."""

import functools
import re

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from odradek.model.errors import MalformedRequestError
from odradek.wire.api_keys import APIS
from odradek.wire.codec import decoder, encoder
from odradek.wire.header import decode_request_header, decode_response_header
from odradek.wire.messages import (
    consumer_offsets,
    consumer_protocol,
    transaction_state,
    transaction_version_2,
)
from odradek.wire.messages.produce import decode_produce
from odradek.wire.schema import Field, Message, MessageType

MESSAGES: list[type[Message]] = [
    *(api.request_class for api in APIS.values()),
    *(api.response_class for api in APIS.values()),
    consumer_offsets.OffsetCommitKey,
    consumer_offsets.OffsetCommitValue,
    consumer_offsets.GroupMetadataKey,
    consumer_offsets.GroupMetadataValue,
    consumer_protocol.ConsumerProtocolSubscription,
    consumer_protocol.ConsumerProtocolAssignment,
    transaction_state.TransactionLogKey,
    transaction_state.TransactionLogValue,
    transaction_version_2.TaggedTransactionLogValue,
]
# The 200 examples of an ordinary run are for all versions together.
FEW = settings().max_examples // 40


def integers(bits: int) -> st.SearchStrategy[int]:
    return st.integers(-(1 << bits - 1), (1 << bits - 1) - 1)


PRIMITIVES: dict[str, st.SearchStrategy] = {
    "bool": st.booleans(),
    "int8": integers(8),
    "int16": integers(16),
    "int32": integers(32),
    "int64": integers(64),
    "float64": st.floats(allow_nan=False),
    "uuid": st.binary(min_size=16, max_size=16),
    "string": st.text(max_size=5) | st.just("x" * 200),
    "bytes": st.binary(max_size=5) | st.just(b"x" * 20_000),
}


@functools.cache
def messages(message: MessageType, version: int) -> st.SearchStrategy[Message]:
    """Any message that can be encoded in a version."""
    fields = [field for field in message.SCHEMA.fields if version in field.versions]
    return st.builds(message, **{field.name: values(field, version) for field in fields})


def values(field: Field, version: int) -> st.SearchStrategy:
    if isinstance(field.part, MessageType):
        part = messages(field.part, version)
    else:
        part = PRIMITIVES[field.part or field.kind]
    if field.kind == "struct":
        default = field.part()
        return part.map(lambda made: None if made == default else made)
    if field.kind == "array":
        few = st.lists(part, max_size=3)
        # Long enough for lengths of two bytes, and for lists without a specialised decoder.
        part = few | part.map(lambda item: [item] * 130) if isinstance(field.part, str) else few
    return part | st.none() if version in field.nullable else part


@pytest.mark.parametrize("message", MESSAGES, ids=lambda message: message.__name__)
@settings(max_examples=FEW)
@given(data=st.data())
def test_an_encoded_message_is_decoded_in_every_version(message, data):
    first, last = message.SCHEMA.versions
    for version in range(first, last + 1):
        made = data.draw(messages(message, version), label=f"v{version}")
        encoded = encoder(message, version)(made)

        decoded, end = decoder(message, version)(memoryview(b"before" + encoded + b"after"), 6)

        assert decoded == made
        assert end == 6 + len(encoded)


@pytest.mark.parametrize("message", MESSAGES, ids=lambda message: message.__name__)
@settings(max_examples=2 * FEW)
@given(data=st.data())
def test_damaged_bytes_are_refused_or_decoded(message, data):
    version = data.draw(st.integers(*message.SCHEMA.versions))
    encoded = bytearray(encoder(message, version)(data.draw(messages(message, version))))
    for _ in range(data.draw(st.integers(1, 3))):
        position = data.draw(st.integers(0, len(encoded)))
        encoded[position : position + data.draw(st.integers(0, 4))] = data.draw(
            st.sampled_from([b"", b"\x00", b"\xff", b"\x7f\xff\xff\xff", b"\x80" * 6, b"\x80"])
            | st.binary(max_size=4)
        )
    view = memoryview(encoded)
    try:
        decoded, end = decoder(message, version)(view, 0)
    except MalformedRequestError as error:
        assert str(error).startswith(f"{message.__name__} v{version}")  # noqa: PT017
    else:
        assert end <= len(view)
        encoder(message, version)(decoded)


@given(st.binary(max_size=60), st.integers(-1, 70), st.integers(0, 13))
def test_any_bytes_of_a_header_are_decoded_or_refused(data, api_key, api_version):
    named = api_key.to_bytes(2, "big", signed=True) + api_version.to_bytes(2, "big") + data
    for view in (memoryview(data), memoryview(named)):
        try:
            _, end = decode_request_header(view)
        except MalformedRequestError:
            continue
        assert end <= len(view)
    if api_key not in APIS:
        return
    try:
        _, end = decode_response_header(memoryview(data), 0, api_key, api_version)
    except MalformedRequestError:
        return
    assert end <= len(data)


PRODUCE = APIS[0].request_class


@given(st.integers(0, 11), st.data())
def test_the_specialised_produce_decoder_equals_the_generic_codec(version, data):
    encoded = bytearray(encoder(PRODUCE, version)(data.draw(messages(PRODUCE, version))))
    if data.draw(st.booleans()):
        position = data.draw(st.integers(0, len(encoded) - 1))
        encoded[position] = data.draw(st.integers(0, 255))
    view = memoryview(encoded)[: data.draw(st.integers(0, len(encoded)) | st.just(len(encoded)))]
    try:
        expected, _ = decoder(PRODUCE, version)(view, 0)
    except MalformedRequestError as error:
        with pytest.raises(MalformedRequestError, match="^" + re.escape(str(error)) + "$"):
            decode_produce(view, 0, version)
        return
    produce = decode_produce(view, 0, version)

    assert produce.acks == expected.acks
    assert produce.timeout_ms == expected.timeout_ms
    assert produce.transactional_id == expected.transactional_id
    assert produce.topics == [
        (topic.name, [(partition.index, partition.records) for partition in topic.partition_data])
        for topic in expected.topic_data
    ]
