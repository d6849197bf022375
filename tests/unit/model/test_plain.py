"""Values of pure machines as JSON, and back."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum
from typing import NamedTuple, NewType
from uuid import UUID

import pytest

from odradek.model.errors import ErrorCode
from odradek.model.partition import Assignment, LeaderAndIsr, TopicPartition
from odradek.model.plain import NotPlainError, from_plain, to_plain

WallMs = NewType("WallMs", int)
NAME = TopicPartition("t", 7)
LED = LeaderAndIsr(leader=1, leader_epoch=0, isr=(1, 2), partition_epoch=-1)


class Colour(Enum):
    RED = "r"


class Pair(NamedTuple):
    name: TopicPartition
    at: WallMs = WallMs(5)


@dataclass(frozen=True, slots=True)
class Everything:
    names: tuple[TopicPartition, ...]
    answers: Mapping[TopicPartition, LeaderAndIsr | ErrorCode | None]
    by_topic: Mapping[str, tuple[int, str]] = field(default_factory=dict)
    topic_id: UUID | None = None
    payload: bytes = b""
    ids: frozenset[int] = frozenset()
    subject: "TopicPartition | str | int" = 0
    items: Sequence[float] = ()
    colour: Colour | None = None


@dataclass(frozen=True, slots=True)
class Nothing:
    pass


FULL = Everything(
    names=(NAME,),
    answers={NAME: LED, TopicPartition("t", 8): ErrorCode.NONE, TopicPartition("u", 0): None},
    by_topic={"t": (1, "x")},
    topic_id=UUID(int=7),
    payload=b"\x00\xff",
    ids=frozenset({3, 20, 1}),
    subject=NAME,
    items=(0.5, 1),
    colour=Colour.RED,
)


@pytest.mark.parametrize(
    ("kind", "value"),
    [
        (Everything | Nothing, FULL),
        (Everything | Nothing, Everything((), {})),
        (Everything | Nothing, Nothing()),
        (tuple[Pair, ...], (Pair(NAME), Pair(NAME, WallMs(6)))),
        (dict[str, int], {"class": 1, "other": 2}),
        (Mapping[int, int], {}),
        (Assignment, Assignment(replicas=(1, 2), adding=(2,))),
        (list[set[str]], [{"a", "b"}, set()]),
        (WallMs, 3),
        (ErrorCode | None, ErrorCode.NOT_CONTROLLER),
        (bool | None, True),
        (int | bool, 1),
    ],
)
def test_a_value_is_read_back_as_it_was(kind, value):
    read = from_plain(kind, json.loads(json.dumps(to_plain(value))))
    assert read == value
    assert type(read) is type(value)


def test_a_field_with_its_default_value_is_left_out():
    assert to_plain(Pair(NAME)) == {
        "class": "Pair",
        "name": {"class": "TopicPartition", "topic": "t", "partition": 7},
    }


@pytest.mark.parametrize("value", [object(), print, {1: object()}, (1, [iter(())])])
def test_what_is_not_a_value_has_no_json_form(value):
    with pytest.raises(NotPlainError):
        to_plain(value)


@pytest.mark.parametrize(
    ("kind", "plain"),
    [
        (int, "1"),
        (int, True),
        (Colour, "GREEN"),
        (UUID, "not one"),
        (bytes | str, "61"),  # either could be meant
        (Everything | Nothing, {"class": "Pair"}),
        (Pair, {"class": "Pair"}),  # no name
        (Pair, {"class": "Pair", "name": to_plain(NAME), "more": 1}),
        (tuple[int, int], [1]),
        (object, "anything"),
    ],
)
def test_json_that_does_not_fit_is_refused(kind, plain):
    with pytest.raises(NotPlainError):
        from_plain(kind, plain)
