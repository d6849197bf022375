"""The classes that message declarations become."""

import pytest

from odradek.wire.schema import Message, Versions, array, int32, parse_versions, string


class Part(Message):
    """A struct in a message."""

    number: int = int32(default=-1)


class Whole(Message, versions="1-3", flexible="2+", api_key=99):
    """A message with a struct."""

    name: str | None = string("2+", nullable="3+", default=None)
    parts: list[Part] = array(Part)


@pytest.mark.parametrize(
    ("text", "first", "last"), [("3", 3, 3), ("3-5", 3, 5), ("0+", 0, 1 << 15)]
)
def test_versions_are_written_as_kafka_writes_them(text, first, last):
    versions = parse_versions(text)

    assert versions == Versions(first, last)
    assert str(versions) == text
    assert first in versions
    assert last in versions
    assert first - 1 not in versions
    assert last + 1 not in versions


def test_none_is_the_empty_range():
    assert 0 not in parse_versions(None)


def test_a_message_has_the_defaults_of_its_fields():
    assert (Whole().name, Whole().parts, Part().number) == (None, [], -1)


def test_messages_are_equal_when_their_fields_are():
    assert Whole(parts=[Part(number=1)]) == Whole(parts=[Part(number=1)])
    assert Whole(parts=[Part(number=1)]) != Whole(parts=[Part(number=2)])
    assert Part() != Whole()


def test_a_message_prints_its_fields():
    assert repr(Whole(name="a", parts=[Part()])) == "Whole(name='a', parts=[Part(number=-1)])"


def test_a_message_has_no_other_fields():
    with pytest.raises(TypeError, match="nmae"):
        Whole(nmae="a")  # type: ignore[call-arg]
    with pytest.raises(AttributeError):
        Whole().nmae = "a"  # type: ignore[attr-defined]


def test_a_message_is_mutable_and_so_not_hashable():
    with pytest.raises(TypeError, match="unhashable"):
        hash(Part())
