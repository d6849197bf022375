"""The four assignors by example; tests/property checks that they are balanced and sticky."""

import pytest

from odradek.client.group.assignors import (
    ASSIGNORS,
    assign_cooperative_sticky,
    assign_range,
    assign_round_robin,
    assign_sticky,
)
from odradek.client.group.protocol import (
    MemberSubscription,
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
    members = {name: MemberSubscription(("t",)) for name in ("c1", "c2", "c3")}

    assigned = assign_range({"t": 10}, members)

    assert [[p.partition for p in assigned[m]] for m in ("c1", "c2", "c3")] == [
        [0, 1, 2, 3],
        [4, 5, 6],
        [7, 8, 9],
    ]


def test_range_assigns_each_topic_separately():
    members = {"b": MemberSubscription(("t", "u")), "a": MemberSubscription(("t",))}

    assert assign_range({"t": 3, "u": 2}, members) == {
        "a": parts("t0", "t1"),
        "b": parts("t2", "u0", "u1"),
    }


def test_static_members_come_first_by_instance_id():
    members = {"a": MemberSubscription(("t",)), "z": MemberSubscription(("t",), instance_id="1")}

    assert assign_range({"t": 1}, members) == {"z": parts("t0"), "a": []}


def test_round_robin_skips_members_that_do_not_subscribe():
    members = {
        "a": MemberSubscription(("t", "u")),
        "b": MemberSubscription(("u",)),
        "c": MemberSubscription(("t", "u")),
    }

    assert assign_round_robin({"t": 2, "u": 3, "v": 1}, members) == {
        "a": parts("t0", "u0"),
        "b": parts("u1"),
        "c": parts("t1", "u2"),
    }


def test_a_topic_without_subscribers_or_partitions_is_not_assigned():
    for assignor in ASSIGNORS.values():
        assert assignor.assign({"t": 2}, {"a": MemberSubscription(("u",))}) == {"a": []}


def test_sticky_keeps_partitions_with_their_owners():
    members = {
        "a": MemberSubscription(("t",), user_data=encode_sticky(parts("t0", "t1", "t2"), 4)),
        "b": MemberSubscription(("t",)),
    }

    assert assign_sticky({"t": 3}, members) == {"a": parts("t0", "t1"), "b": parts("t2")}


def test_the_claim_of_the_later_generation_wins():
    members = {
        "a": MemberSubscription(("t",), user_data=encode_sticky(parts("t0"), 4)),
        "b": MemberSubscription(("t",), user_data=encode_sticky(parts("t0"), 5)),
    }

    assert assign_sticky({"t": 2}, members)["b"] == parts("t0")


def test_cooperative_assigns_a_partition_only_after_its_revocation():
    members = {
        "a": MemberSubscription(("t",), tuple(parts("t0", "t1")), generation=3),
        "b": MemberSubscription(("t",)),
    }

    first = assign_cooperative_sticky({"t": 2}, members)
    assert first == {"a": parts("t0"), "b": []}

    members["a"] = members["a"]._replace(owned=tuple(first["a"]), generation=4)
    members["b"] = members["b"]._replace(generation=4)
    assert assign_cooperative_sticky({"t": 2}, members) == {"a": parts("t0"), "b": parts("t1")}


def test_cooperative_reads_the_generation_of_older_members_from_user_data():
    members = {
        "a": MemberSubscription(("t",), tuple(parts("t0")), -1, user_data=encode_generation(2)),
        "b": MemberSubscription(("t",), tuple(parts("t0")), -1, user_data=encode_generation(7)),
    }

    # `b` should own it, but `a` still claims it, so no member gets it in this round.
    assert assign_cooperative_sticky({"t": 2}, members)["b"] == []


def test_subscriptions_and_assignments_round_trip():
    member = MemberSubscription(("t", "u"), tuple(parts("t0", "u1")), 7, None, b"data", "rack")

    assert decode_subscription(encode_subscription(member)) == member
    assert decode_assignment(encode_assignment(parts("u1", "t0"))) == parts("t0", "u1")
    assert decode_sticky(encode_sticky(parts("t0", "u1"), 7)) == (tuple(parts("t0", "u1")), 7)
    assert decode_generation(encode_generation(9)) == 9


def test_a_newer_version_is_decoded_as_the_newest_supported_one():
    newer = b"\x00\x09" + encode_subscription(MemberSubscription(("t",)))[2:] + b"more"

    assert decode_subscription(newer).topics == ("t",)


def test_sticky_data_of_the_first_version_has_no_generation():
    assert decode_sticky(encode_sticky(parts("t0"), 7)[:-4]) == (tuple(parts("t0")), -1)


@pytest.mark.parametrize("data", [None, b"", b"\0\0\0\x05", b"\0\0\0\x01\0\x01\xff\0\0\0\0"])
def test_invalid_sticky_data_owns_nothing(data):
    assert decode_sticky(data) == ((), -1)


@pytest.mark.parametrize("data", [b"\0", b"\xff\xff\0", b"\0\x03\0\0"])
def test_a_damaged_subscription_is_refused(data):
    with pytest.raises(MalformedRequestError):
        decode_subscription(data)


def test_an_empty_assignment_has_no_partitions():
    assert decode_assignment(b"") == []
