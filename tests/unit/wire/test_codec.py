"""Codecs at the edges: versions, defaults, and every kind of malformed bytes, by name."""

import re

import pytest

from odradek.model.errors import MalformedRequestError
from odradek.wire.codec import decoder, encoder, sliced_decoder, sliced_encoder
from odradek.wire.primitives import UnencodableError, UnsupportedFieldError
from odradek.wire.schema import (
    Buffer,
    Message,
    array,
    bool_,
    bytes_,
    int16,
    int32,
    int32_array,
    int64,
    string,
    string_array,
    struct,
    uuid,
)


class Limit(Message):
    """A struct that may be absent."""

    most: int = int32(default=-1)


class Item(Message):
    """An element of an array."""

    number: int = int32()
    name: str = string()


class Example(Message, versions="0-3", flexible="2+"):
    """A message with a field of each kind that can be malformed."""

    id: int = int16()
    name: str = string()
    note: str | None = string("1+", nullable="1+", default=None, ignorable=True)
    items: list[Item] = array(Item)
    numbers: list[int] = int32_array("1+")
    epoch: int = int64("3+", default=-1)
    data: Buffer = bytes_("1+", ignorable=True)
    words: list[str] = string_array("3+", ignorable=True)
    topic_id: bytes = uuid("3+", ignorable=True)
    limit: Limit | None = struct(Limit, "2+", tag=0)
    is_new: bool = bool_("2+", ignorable=True, tag=1)


def whole(steps):
    """The return value of a generator, however often it yields."""
    while True:
        try:
            next(steps)
        except StopIteration as end:
            return end.value


def encoded(version: int, **fields: object) -> bytes:
    data = encoder(Example, version)(Example(**fields))  # type: ignore[arg-type]
    assert whole(sliced_encoder(Example, version)(Example(**fields))) == data
    return data


def decoded(data: bytes, version: int, *budget: int) -> Example:
    try:
        message, end = decoder(Example, version)(memoryview(data), 0, *budget)
    except MalformedRequestError as error:
        with pytest.raises(MalformedRequestError, match="^" + re.escape(str(error)) + "$"):
            whole(sliced_decoder(Example, version)(memoryview(data), 0, *budget))
        raise
    assert whole(sliced_decoder(Example, version)(memoryview(data), 0, *budget)) == (message, end)
    return message


# ------------------------------------------------------------------------ versions


def test_the_first_version_is_as_kafka_writes_it():
    data = encoded(0, id=1, name="ab", items=[Item(number=7, name="c")])

    assert data.hex(" ") == "00 01 00 02 61 62 00 00 00 01 00 00 00 07 00 01 63"


def test_a_flexible_version_has_compact_lengths_and_tagged_fields():
    data = encoded(2, id=1, name="ab", items=[Item(number=7, name="c")], limit=Limit(most=5))

    assert data.hex(" ") == (
        "00 01 03 61 62 00 02 00 00 00 07 02 63 00 01 01 01 00 05 00 00 00 05 00"
    )


def test_lengths_above_127_take_more_bytes():
    name = "x" * 20_000
    data = encoded(2, name=name, numbers=list(range(200)))

    assert data[2:5].hex() == "a19c01"
    assert decoded(data, 2).name == name
    assert decoded(data, 2).numbers == list(range(200))


def test_what_a_version_lacks_has_its_default():
    message = decoded(encoded(0, id=3), 0)

    assert message == Example(id=3)
    assert (message.note, message.numbers, message.epoch) == (None, [], -1)


def test_lists_of_two_messages_are_not_the_same_list():
    first, second = Example(), decoded(encoded(0), 0)
    first.numbers.append(1)
    second.numbers.append(2)

    assert Example().numbers == decoded(encoded(0), 0).numbers == []


def test_a_version_refuses_to_drop_a_field_it_lacks():
    with pytest.raises(UnsupportedFieldError) as refused:
        encoded(2, epoch=5)

    assert str(refused.value) == "Example v2 epoch: 5; only versions 3+ have this field"


def test_an_ignorable_field_is_left_out():
    assert decoded(encoded(0, note="gone", topic_id=b"x" * 16), 0) == Example()


def test_a_part_with_defaults_only_is_not_sent():
    assert encoded(2, limit=Limit()) == encoded(2)


def test_bytes_are_views_of_the_frame():
    frame = memoryview(bytearray(encoded(1, data=b"records")))
    message, _ = decoder(Example, 1)(frame, 0)

    assert isinstance(message.data, memoryview)
    assert message.data.obj is frame.obj


def test_decoding_begins_at_the_position_and_returns_the_end():
    data = encoded(1, id=9)
    message, end = decoder(Example, 1)(memoryview(b"###" + data + b"###"), 3)

    assert (message.id, end) == (9, 3 + len(data))


def test_an_unknown_tag_is_skipped():
    data = encoded(2, id=4, is_new=True)
    assert data.endswith(b"\x01\x01\x01\x01")

    assert decoded(data[:-4] + b"\x02\x01\x01\x01\x63\x03abc", 2) == Example(id=4, is_new=True)


@pytest.mark.parametrize("version", [-1, 4])
def test_a_version_that_is_not_declared_has_no_codec(version):
    with pytest.raises(AssertionError, match=f"Example v{version}"):
        decoder(Example, version)
    with pytest.raises(AssertionError, match=f"Example v{version}"):
        encoder(Example, version)


# ---------------------------------------------------------------- mistakes of ours


@pytest.mark.parametrize(
    ("version", "fields", "where"),
    [
        pytest.param(0, {"id": 1 << 15}, "Example v0 id or Example v0 name", id="out of range"),
        pytest.param(2, {"id": "1"}, "Example v2 id", id="another type"),
        pytest.param(0, {"name": None}, "Example v0 name", id="None where null is not allowed"),
        pytest.param(0, {"name": "x" * 40_000}, "Example v0 id or Example v0 name", id="too long"),
        pytest.param(2, {"name": "\ud800"}, "Example v2 name", id="not UTF-8"),
        pytest.param(2, {"items": None}, "Example v2 items", id="no list"),
        pytest.param(1, {"numbers": [1 << 31]}, "Example v1 numbers", id="number in a list"),
        pytest.param(1, {"items": [Item(name=None)]}, "Example v1 items.name", id="in a part"),  # type: ignore[arg-type]
        pytest.param(2, {"limit": Limit(most=1 << 31)}, "Example v2 limit.most", id="in a tag"),
    ],
)
def test_a_value_that_a_field_cannot_hold_is_refused(version, fields, where):
    with pytest.raises(UnencodableError, match="^" + re.escape(where) + ": "):
        encoded(version, **fields)


# ------------------------------------------------------------------ malformed bytes


PLAIN = "0001 0002 6162"  # id, name
COMPACT = "0001 03 6162"
TO_TAGS = COMPACT + "00 01 01 01"  # note, items, numbers, data

REFUSED = [
    (0, "00", "Example v0 id: the bytes end here: 1 left at 0"),
    (0, "0001 00", "Example v0 id: the bytes end here: 3 left at 0"),
    (0, "0001 0003 6162", "Example v0 name: length 3; 2 bytes are left"),
    (0, "0001 ffff", "Example v0 name: null; this version does not allow it"),
    (0, "0001 fffe", "Example v0 name: length -2; must not be negative"),
    (0, "0001 0002 c328", r"Example v0 name: b'\xc3('; must be UTF-8"),
    (0, PLAIN + "00", "Example v0 items: the bytes end here: 1 left at 6"),
    (0, PLAIN + "ffffffff", "Example v0 items: null; this version does not allow it"),
    (0, PLAIN + "80000000", "Example v0 items: -2147483648 elements; must not be negative"),
    (
        0,
        PLAIN + "00000002 00000001 0000",
        "Example v0 items: 2 elements of at least 6 bytes; 6 bytes are left",
    ),
    (
        0,
        PLAIN + "7fffffff",
        "Example v0 items: 2147483647 elements of at least 6 bytes; 0 bytes are left",
    ),
    (
        0,
        PLAIN + "00000001 00000001 0001",
        "Example v0 items.name: length 1; 0 bytes are left",
    ),
    (
        1,
        PLAIN + "ffff 00000000 00000003 00000001",
        "Example v1 numbers: 3 elements of at least 4 bytes; 4 bytes are left",
    ),
    (
        1,
        PLAIN + "fffe 00000000",
        "Example v1 note: length -2; must not be negative",
    ),
    (
        1,
        PLAIN + "ffff 00000000 00000000 00000005 61",
        "Example v1 data: length 5; 1 bytes are left",
    ),
    (1, PLAIN + "ffff 00000000 00000000 ffffffff", "Example v1 data: null; this version does not"),
    (2, "0001", "Example v2 id: the bytes end here: 2 left at 0"),
    (2, "0001 00", "Example v2 name: null; this version does not allow it"),
    (2, "0001 04 6162", "Example v2 name: length 3; 2 bytes are left"),
    (2, "0001 8080808080 01", "Example v2 name: varint of more than 5 bytes"),
    (2, "0001 ffffffff1f", "Example v2 name: varint 8589934591; must fit in 32 bits"),
    (2, "0001 8080", "Example v2 name: the bytes end within a varint"),
    (2, "0001 ffffffff0f 61", "Example v2 name: length 4294967294; 1 bytes are left"),
    (2, COMPACT + "00 00", "Example v2 items: null; this version does not allow it"),
    (
        2,
        COMPACT + "00 ffffffff0f",
        "Example v2 items: 4294967294 elements of at least 6 bytes; 0 bytes are left",
    ),
    (2, TO_TAGS, "Example v2: the bytes end here: 0 left at 9"),
    (2, TO_TAGS + "01", "Example v2: the bytes end within a varint"),
    (2, TO_TAGS + "01 63", "Example v2: the bytes end within a varint"),
    (2, TO_TAGS + "01 63 05 61", "Example v2: tag 99 of 5 bytes; 1 are left"),
    (2, TO_TAGS + "02 63 00 63 00", "Example v2: tag 99 after tag 99; tags must ascend"),
    (
        2,
        TO_TAGS + "02 01 01 01 00 05 00000005 00",
        "Example v2: tag 0 after tag 1; tags must ascend",
    ),
    (2, TO_TAGS + "02 01 01 01 01 01 00", "Example v2: tag 1 after tag 1; tags must ascend"),
    (2, TO_TAGS + "ffffffff0f", "Example v2: more than 64 tagged fields"),
    (
        2,
        TO_TAGS + "01 01 02 01 01",
        "Example v2 is_new: tagged field of 2 bytes that fills 1",
    ),
    (
        2,
        TO_TAGS + "01 00 03 00000005 00",
        "Example v2 limit: tagged field of 3 bytes that fills 5",
    ),
    (2, TO_TAGS + "01 00 02 0000", "Example v2 limit.most: the bytes end here: 2 left at 12"),
    (
        2,
        COMPACT + "00 02 00000001 01 03 63 00",
        "Example v2 items: the bytes end within a varint",
    ),
    (
        3,
        COMPACT + "00 01 01" + "00" * 8 + "01 04 02 61",
        "Example v3 words: 3 elements of at least 1 bytes; 2 bytes are left",
    ),
]


@pytest.mark.parametrize(("version", "data", "refusal"), REFUSED, ids=[r[2] for r in REFUSED])
def test_malformed_bytes_are_refused_naming_field_value_and_rule(version, data, refusal):
    with pytest.raises(MalformedRequestError, match="^" + re.escape(refusal)):
        decoded(bytes.fromhex(data), version)


def test_a_message_has_a_budget_of_elements():
    data = encoded(3, items=[Item(), Item()], numbers=list(range(17)), words=["a"])

    assert decoded(data, 3, 2 + 17 // 8 + 1).words == ["a"]
    with pytest.raises(MalformedRequestError) as refused:
        decoded(data, 3, 2 + 17 // 8)
    assert str(refused.value) == (
        "Example v3 words: 1 elements; the request has 0 left of its element budget"
    )


def test_a_number_counts_as_an_eighth_of_a_struct():
    data = encoded(1, numbers=list(range(17)))

    assert decoded(data, 1, 2).numbers[-1] == 16
    with pytest.raises(MalformedRequestError, match="numbers: 17 elements; the request has 1 left"):
        decoded(data, 1, 1)


def test_many_elements_are_refused_before_objects_are_made():
    data = bytes.fromhex("0001 03 6162 00") + b"\xff\xff\xff\x07" + bytes(100 << 20)

    with pytest.raises(MalformedRequestError, match="items: 16777214 elements; the request has"):
        decoded(data, 3)


# ------------------------------------------------------------------------------ slices


class Box(Message):
    """A struct that contains structs."""

    items: list[Item] = array(Item)


class Boxes(Message, versions="0-1", flexible="1+"):
    """A message of any number of structs."""

    boxes: list[Box] = array(Box)
    words: list[str] = string_array()


@pytest.mark.parametrize("version", [0, 1])
@pytest.mark.parametrize(("boxes", "items", "words"), [(1, 900, 5), (900, 1, 5), (30, 40, 700)])
def test_a_large_message_is_made_and_read_in_many_steps_and_is_the_same(
    version, boxes, items, words
):
    message = Boxes(
        boxes=[
            Box(items=[Item(number=n * i, name=f"{n}/{i}") for i in range(items)])
            for n in range(boxes)
        ],
        words=[f"word {n}" for n in range(words)],
    )
    writing = sliced_encoder(Boxes, version)(message)
    steps = 0
    while True:
        try:
            next(writing)
        except StopIteration as end:
            data = end.value
            break
        steps += 1
    assert data == encoder(Boxes, version)(message)
    assert steps > 20
    assert sum(1 for _ in sliced_decoder(Boxes, version)(memoryview(data), 0)) == steps
    assert whole(sliced_decoder(Boxes, version)(memoryview(data), 0)) == (message, len(data))
