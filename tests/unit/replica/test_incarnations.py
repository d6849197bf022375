"""Which topic id is the present one under a name."""

from odradek.replica import incarnations
from odradek.replica.incarnations import Incarnations

A, B, C = (bytes([n]) * 16 for n in b"abc")


def test_the_last_id_heard_under_a_name_is_the_present_one_and_those_before_are_past():
    ids = Incarnations()
    assert [ids.is_past("t", topic_id) for topic_id in (A, A, B, A, B, C, A, B, C)] == [
        *(False, False, False),
        *(True, False, False),
        *(True, True, False),
    ]


def test_each_name_has_ids_of_its_own():
    ids = Incarnations()
    assert not ids.is_past("t", A)
    assert not ids.is_past("u", B)
    assert not ids.is_past("t", A)
    assert not ids.is_past("u", B)


def test_what_is_remembered_has_a_limit(monkeypatch):
    monkeypatch.setattr(incarnations, "REMEMBERED_MAX", 2)
    ids = Incarnations()
    for number in range(9):
        assert not ids.is_past("t", bytes([number]))
    assert [ids.is_past("t", bytes([number])) for number in (7, 6, 5)] == [True, True, False]
    for number in range(9):
        assert not ids.is_past(f"u{number}", bytes([100 + number]))

    assert len(ids._present) == 2
    assert len(ids._past) == 2
