"""Which offsets a query reads: divided into tasks, limited, compared with the log."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from odradek.model.partition import TopicPartition
from odradek.spark.offsets import Piece, behind, cut, from_json, limited, losses, to_json

A, B = TopicPartition("a", 0), TopicPartition("b", 1)
SIZES = st.lists(st.integers(0, 50), min_size=1, max_size=6)


def pieces(*sizes):
    return [Piece(TopicPartition("t", n), 100, 100 + size) for n, size in enumerate(sizes)]


def test_a_checkpoint_is_the_connectors_json():
    assert to_json({B: 3, A: 23}) == {"a": {"0": 23}, "b": {"1": 3}}
    assert from_json({"a": {"0": 23}, "b": {"1": 3}}) == {A: 23, B: 3}


def test_a_partition_is_a_task_and_an_empty_one_is_not():
    assert cut(pieces(5, 0, 7), min_partitions=None, records_max=None) == [
        pieces(5, 0, 7)[0],
        pieces(5, 0, 7)[2],
    ]


@pytest.mark.parametrize(
    ("sizes", "least", "most", "expected"),
    [
        ((10, 30), 4, None, [10, 10, 10, 10]),
        ((10, 10), 3, None, [5, 5, 5, 5]),
        ((10,), None, 4, [3, 3, 4]),
        ((2,), 5, None, [1, 1]),
        ((100, 1), 4, None, [25, 25, 25, 25, 1]),
    ],
)
def test_large_partitions_are_divided(sizes, least, most, expected):
    tasks = cut(pieces(*sizes), min_partitions=least, records_max=most)

    assert [task.size for task in tasks] == expected


@given(sizes=SIZES, least=st.none() | st.integers(1, 20), most=st.none() | st.integers(1, 20))
def test_tasks_cover_every_offset_once(sizes, least, most):
    tasks = cut(pieces(*sizes), min_partitions=least, records_max=most)

    covered = [(task.partition, n) for task in tasks for n in range(task.start, task.end)]
    assert sorted(covered) == [
        (piece.partition, n) for piece in pieces(*sizes) for n in range(piece.start, piece.end)
    ]
    assert most is None or all(task.size <= most for task in tasks)


@given(sizes=SIZES, least=st.integers(1, 60))
def test_there_are_the_requested_tasks_or_one_for_each_offset(sizes, least):
    tasks = cut(pieces(*sizes), min_partitions=least, records_max=None)

    assert len(tasks) >= min(least, sum(sizes))


def test_rounding_leaves_no_task_out():
    assert len(cut(pieces(*[10] * 6), min_partitions=37, records_max=None)) == 37


@given(sizes=SIZES, most=st.integers(1, 300))
def test_a_trigger_reads_a_share_of_each_partition_and_always_makes_progress(sizes, most):
    start = {piece.partition: piece.start for piece in pieces(*sizes)}
    end = {piece.partition: piece.end for piece in pieces(*sizes)}

    upto = limited(start, end, most)

    assert all(start[name] <= upto[name] <= end[name] for name in end)
    assert behind(start, upto) <= most + len(sizes)
    assert all(upto[name] > start[name] for name in end if end[name] > start[name])


def test_markers_and_gaps_are_not_a_loss():
    assert losses({A: 10}, {A: 20}, {A: 0}) == []
    assert losses({A: 10}, {A: 10}, {A: 15}) == []  # nothing was to be read


def test_what_is_missing_is_named():
    assert losses({A: 10, B: 1}, {A: 20, B: 1}, {A: 12}) == [
        "a-0: offsets 10 to 11 were requested, the partition begins at 12",
        "b-1 was deleted",
    ]
    (loss,) = losses({A: 10}, {A: 4}, {A: 0})
    assert loss.startswith("Partition a-0's offset was changed from 10 to 4")
