"""Fetch sessions: requests contain changes only, and everything after a lost session."""

from odradek.client.fetch.requests import FetchSessionHandler, Wanted
from odradek.model.errors import ErrorCode
from odradek.model.partition import TopicPartition

A, B = TopicPartition("a", 0), TopicPartition("b", 1)
ID_A, ID_B = b"a" * 16, b"b" * 16


def wanted(**offsets):
    ids = {"a": (A, ID_A), "b": (B, ID_B)}
    return {ids[name][0]: Wanted(ids[name][1], offset, 100, 0) for name, offset in offsets.items()}


def named(ask):
    return [(t.topic, [(p.partition, p.fetch_offset) for p in t.partitions]) for t in ask.topics]


def test_the_first_request_is_full_and_later_ones_contain_changes():
    session = FetchSessionHandler()

    first = session.ask(wanted(a=0, b=5))
    assert (first.session_id, first.session_epoch) == (0, 0)
    assert named(first) == [("a", [(0, 0)]), ("b", [(1, 5)])]
    session.answered(0, 77)

    second = session.ask(wanted(a=3, b=5))
    assert (second.session_id, second.session_epoch) == (77, 1)
    assert named(second) == [("a", [(0, 3)])]
    assert second.forgotten == []
    session.answered(0, 77)
    assert session.ask(wanted(a=3, b=5)).session_epoch == 2


def test_removed_partitions_are_in_the_request():
    session = FetchSessionHandler()
    session.ask(wanted(a=0, b=5))
    session.answered(0, 77)

    ask = session.ask(wanted(a=0))

    assert [(t.topic, t.topic_id, t.partitions) for t in ask.forgotten] == [("b", ID_B, [1])]
    assert ask.topics == []


def test_a_recreated_topic_replaces_the_former_one():
    session = FetchSessionHandler()
    session.ask(wanted(a=0))
    session.answered(0, 77)

    ask = session.ask({A: Wanted(ID_B, 0, 100, 0)})

    assert [t.topic_id for t in ask.forgotten] == [ID_A]
    assert [t.topic_id for t in ask.topics] == [ID_B]


def test_after_a_lost_session_the_request_is_full():
    session = FetchSessionHandler()
    session.ask(wanted(a=0))
    session.answered(0, 77)

    session.answered(ErrorCode.FETCH_SESSION_ID_NOT_FOUND, 0)

    ask = session.ask(wanted(a=0))
    assert (ask.session_id, ask.session_epoch) == (0, 0)
    assert named(ask) == [("a", [(0, 0)])]


def test_without_a_session_slot_every_request_is_full():
    session = FetchSessionHandler()
    session.ask(wanted(a=0))
    session.answered(0, 0)

    assert named(session.ask(wanted(a=0))) == [("a", [(0, 0)])]


def test_other_errors_keep_the_session():
    session = FetchSessionHandler()
    session.ask(wanted(a=0))
    session.answered(0, 77)

    session.answered(ErrorCode.UNKNOWN_SERVER_ERROR, 0)
    assert session.ask(wanted(a=0)).session_id == 77


def test_without_sessions_every_request_is_full_and_asks_for_none():
    session = FetchSessionHandler(has_session=False)
    session.ask(wanted(a=0, b=5))
    session.answered(0, 0)

    ask = session.ask(wanted(b=6))

    assert (ask.session_id, ask.session_epoch, ask.forgotten) == (0, -1, [])
    assert named(ask) == [("b", [(1, 6)])]
