"""Which topic id is a topic's present one."""

from odradek.replica import topic_ids
from odradek.replica.topic_ids import TopicIds

A, B, C = (bytes([n]) * 16 for n in b"abc")


def test_the_last_new_id_of_a_name_is_present_and_earlier_ones_are_replaced():
    ids = TopicIds()
    assert [ids.is_replaced("t", topic_id) for topic_id in (A, A, B, A, B, C, A, B, C)] == [
        *(False, False, False),
        *(True, False, False),
        *(True, True, False),
    ]


def test_each_topic_name_has_its_own_ids():
    ids = TopicIds()
    assert not ids.is_replaced("t", A)
    assert not ids.is_replaced("u", B)
    assert not ids.is_replaced("t", A)
    assert not ids.is_replaced("u", B)


def test_the_number_of_ids_is_limited(monkeypatch):
    monkeypatch.setattr(topic_ids, "IDS_MAX", 2)
    ids = TopicIds()
    for number in range(9):
        assert not ids.is_replaced("t", bytes([number]))
    assert [ids.is_replaced("t", bytes([number])) for number in (7, 6, 5)] == [True, True, False]
    for number in range(9):
        assert not ids.is_replaced(f"u{number}", bytes([100 + number]))

    assert len(ids._present) == 2
    assert len(ids._former) == 2
