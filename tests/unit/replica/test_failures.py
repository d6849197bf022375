"""Failures of fetches: what lasts is logged once."""

from odradek.model.partition import TopicPartition
from odradek.replica.failures import LASTING_MS, Failure, FetchFailures

T0, T1 = TopicPartition("t", 0), TopicPartition("t", 1)


def test_a_failure_is_as_old_as_the_first_and_has_the_reason_of_the_last():
    failures = FetchFailures()
    failures.failed(T0, "UNKNOWN_LEADER_EPOCH", 5)
    failures.failed(T0, "OFFSET_OUT_OF_RANGE", 900)
    failures.failed(None, "no route", 7)
    assert list(failures) == [
        (T0, Failure(5, "OFFSET_OUT_OF_RANGE")),
        (None, Failure(7, "no route")),
    ]
    assert failures.ended(T0).since_ms == 5
    assert failures.ended(T0) is None
    assert len(failures) == 1


def test_what_lasts_is_logged_once_by_reason():
    failures = FetchFailures()
    failures.failed(T0, "a", 0)
    failures.failed(T1, "a", 1)
    failures.failed(None, "b", 2)
    assert failures.to_log(LASTING_MS - 1) == {}
    assert [s for s, _ in failures.to_log(LASTING_MS + 1)["a"]] == [T0, T1]
    failures.failed(T0, "another reason", LASTING_MS + 2)
    assert list(failures.to_log(LASTING_MS * 9)) == ["b"]


def test_a_failure_after_progress_is_another_one():
    failures = FetchFailures()
    failures.failed(T0, "a", 0)
    failures.to_log(LASTING_MS)
    failures.ended(T0)
    failures.failed(T0, "a", LASTING_MS)
    assert failures.to_log(LASTING_MS * 2 - 1) == {}
    assert list(failures.to_log(LASTING_MS * 2)) == ["a"]
