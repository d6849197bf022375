"""The form of a new message."""

import pytest

from odradek.record.compression import Codec
from odradek.web.messages.produce import NewMessage, read_message
from odradek.web.messages.query import QueryError


def test_a_form_is_a_message():
    message = read_message(
        {
            "topic": "orders", "partition": "2", "key": "00ff", "key_is": "hex", "value": "v",
            "headers": "trace: a:b\n\nflag\nempty:", "codec": "lz4",
        }
    )  # fmt: skip

    assert message == NewMessage(
        topic="orders", partition=2, key=b"\x00\xff", value=b"v",
        headers=(("trace", b"a:b"), ("flag", None), ("empty", b"")), codec=Codec.LZ4,
    )  # fmt: skip


def test_an_empty_key_is_null_and_an_empty_value_is_empty():
    assert read_message({"topic": "t"}) == NewMessage(topic="t", key=None, value=b"")


def test_a_null_value_is_a_tombstone():
    assert read_message({"topic": "t", "key": "k", "value_is": "null"}).value is None


@pytest.mark.parametrize(
    "fields",
    [
        {},
        {"topic": "t", "partition": "-1"},
        {"topic": "t", "codec": "zip"},
        {"topic": "t", "value": "xyz", "value_is": "hex"},
        {"topic": "t", "value_is": "yaml"},
        {"topic": "t", "value": "x" * ((1 << 20) + 1)},
        {"topic": "t", "headers": "h\n" * 101},
    ],
)
def test_an_invalid_field_is_refused(fields):
    with pytest.raises(QueryError):
        read_message(fields)
