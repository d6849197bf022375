"""The four strategies by example; that they are balanced and sticky is a property's business."""

import pytest

from odradek.client.group.assignors import (
    ASSIGNORS,
    assign_cooperative_sticky,
    assign_range,
    assign_round_robin,
    assign_sticky,
)
from odradek.client.group.protocol import (
    Member,
    decode_assignment,
    decode_generation,
    decode_sticky,
    decode_subscription,
    encode_assignment,
    encode_generation,
    encode_sticky,
    encode_subscription,
)
from odradek.model.errors import MalformedRequestError
from odradek.model.partition import TopicPartition


def parts(*names):
    return [TopicPartition(name[:-1], int(name[-1])) for name in names]


def test_range_gives_the_first_members_one_more():
    members = {name: Member(("t",)) for name in ("c1", "c2", "c3")}

    assigned = assign_range({"t": 10}, members)

    assert [[p.partition for p in assigned[m]] for m in ("c1", "c2", "c3")] == [
        [0, 1, 2, 3],
        [4, 5, 6],
        [7, 8, 9],
    ]


def test_range_minds_each_topic_by_itself():
    members = {"b": Member(("t", "u")), "a": Member(("t",))}

    assert assign_range({"t": 3, "u": 2}, members) == {
        "a": parts("t0", "t1"),
        "b": parts("t2", "u0", "u1"),
    }


def test_static_members_come_first_by_their_instance():
    members = {"a": Member(("t",)), "z": Member(("t",), instance_id="1")}

    assert assign_range({"t": 1}, members) == {"z": parts("t0"), "a": []}


def test_round_robin_goes_over_all_topics_and_passes_over_who_does_not_read():
    members = {"a": Member(("t", "u")), "b": Member(("u",)), "c": Member(("t", "u"))}

    assert assign_round_robin({"t": 2, "u": 3, "v": 1}, members) == {
        "a": parts("t0", "u0"),
        "b": parts("u1"),
        "c": parts("t1", "u2"),
    }


def test_a_topic_that_nobody_reads_or_that_does_not_exist_is_nobodys():
    for assignor in ASSIGNORS.values():
        assert assignor.assign({"t": 2}, {"a": Member(("u",))}) == {"a": []}


def test_sticky_keeps_what_each_had():
    members = {
        "a": Member(("t",), user_data=encode_sticky(parts("t0", "t1", "t2"), 4)),
        "b": Member(("t",)),
    }

    assert assign_sticky({"t": 3}, members) == {"a": parts("t0", "t1"), "b": parts("t2")}


def test_the_later_generation_has_the_better_claim():
    members = {
        "a": Member(("t",), user_data=encode_sticky(parts("t0"), 4)),
        "b": Member(("t",), user_data=encode_sticky(parts("t0"), 5)),
    }

    assert assign_sticky({"t": 2}, members)["b"] == parts("t0")


def test_cooperative_takes_nothing_before_it_is_given_up():
    members = {"a": Member(("t",), tuple(parts("t0", "t1")), generation=3), "b": Member(("t",))}

    first = assign_cooperative_sticky({"t": 2}, members)
    assert first == {"a": parts("t0"), "b": []}

    members["a"] = members["a"]._replace(owned=tuple(first["a"]), generation=4)
    members["b"] = members["b"]._replace(generation=4)
    assert assign_cooperative_sticky({"t": 2}, members) == {"a": parts("t0"), "b": parts("t1")}


def test_cooperative_reads_the_generation_of_older_members_from_their_data():
    members = {
        "a": Member(("t",), tuple(parts("t0")), -1, user_data=encode_generation(2)),
        "b": Member(("t",), tuple(parts("t0")), -1, user_data=encode_generation(7)),
    }

    # Of `b` by right; but `a` still claims it, so this round gives it to nobody.
    assert assign_cooperative_sticky({"t": 2}, members)["b"] == []


def test_what_members_tell_each_other_comes_back_as_it_was():
    member = Member(("t", "u"), tuple(parts("t0", "u1")), 7, None, b"data", "rack")

    assert decode_subscription(encode_subscription(member)) == member
    assert decode_assignment(encode_assignment(parts("u1", "t0"))) == parts("t0", "u1")
    assert decode_sticky(encode_sticky(parts("t0", "u1"), 7)) == (tuple(parts("t0", "u1")), 7)
    assert decode_generation(encode_generation(9)) == 9


def test_a_newer_version_is_read_as_the_newest_known():
    newer = b"\x00\x09" + encode_subscription(Member(("t",)))[2:] + b"more"

    assert decode_subscription(newer).topics == ("t",)


def test_sticky_data_of_the_first_version_has_no_generation():
    assert decode_sticky(encode_sticky(parts("t0"), 7)[:-4]) == (tuple(parts("t0")), -1)


@pytest.mark.parametrize("data", [None, b"", b"\0\0\0\x05", b"\0\0\0\x01\0\x01\xff\0\0\0\0"])
def test_sticky_data_that_is_none_owns_nothing(data):
    assert decode_sticky(data) == ((), -1)


@pytest.mark.parametrize("data", [b"\0", b"\xff\xff\0", b"\0\x03\0\0"])
def test_a_damaged_subscription_is_refused(data):
    with pytest.raises(MalformedRequestError):
        decode_subscription(data)


def test_no_assignment_is_no_partitions():
    assert decode_assignment(b"") == []
