"""Checkpoint files: a malformed one is refused, with the line and the rule."""

import pytest

from odradek.log.checkpoints import (
    CheckpointError,
    decode_epochs,
    decode_offsets,
    encode_offsets,
)
from odradek.model.partition import TopicPartition


def test_encoded_offsets_are_decoded():
    offsets = {TopicPartition("a", 0): 5, TopicPartition("b-c.d", 11): 2**63 - 1}

    assert decode_offsets(encode_offsets(offsets)) == offsets
    assert encode_offsets({}) == b"0\n0\n"


def test_an_empty_file_has_no_entries():
    assert decode_offsets(b"") == {}
    assert decode_epochs(b"") == []


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("1\n0\n", "line 1: version '1', not 0"),
        ("x", "line 1: version 'x'"),
        ("0\n", "line 2: the number of lines is missing"),
        ("0\n-1\n", "line 2: '-1'"),
        ("0\n2\na 0 1\n", "line 2: the count is 2, but 1 lines follow"),
        ("0\n1\na 0 1\na 1 1\n", "line 2: the count is 1, but 2 lines follow"),
        ("0\n1\na 0\n", "line 3: 'a 0' is not `topic partition offset`"),
        ("0\n1\na 0 1 2\n", "line 3: 'a 0 1 2' is not"),
        ("0\n1\na 0 -1\n", "line 3: '-1'"),
        ("0\n1\na 0 1_0\n", "line 3: '1_0'"),
        ("0\n1\na 0 \u0663\n", "line 3: '\u0663'"),
        ("0\n1\na 0 99999999999999999999\n", "line 3: '99999999999999999999'"),
        ("0\n2\na 0 1\na 0 1\n", "line 4: a-0 is listed twice"),
    ],
)
def test_malformed_offsets_are_refused(text, complaint):
    with pytest.raises(CheckpointError) as refused:
        decode_offsets(text.encode())

    assert complaint in str(refused.value)


@pytest.mark.parametrize(
    "data",
    [b"0\n1\n5\n", b"0\n2\n5 0\n5 3\n", b"0\n2\n5 3\n6 3\n", b"0\n2\n5 3\n6 1\n", b"\xff\n0\n"],
)
def test_malformed_epochs_are_refused(data):
    with pytest.raises(CheckpointError):
        decode_epochs(data)
