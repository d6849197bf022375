"""Records and offsets that clients see are compared with earlier responses."""

import pytest

from odradek.record.records import Record, build_batch
from odradek.sim.checks.history import Facts, History, read_batches, value_of


class Stage:
    def __init__(self):
        self.violations = []
        self.history = History(self.violations.append)
        self.topic = self.history.topic_made("t", b"t" * 16, 1, retention=False)
        self.facts = self.history.of(self.topic, 0)

    def send(self, *keys, idempotent=True):
        for key in keys:
            self.history.sending(key, self.topic, 0, idempotent=idempotent)

    def answered(self, high_watermark, log_start=0, *, floor=None):
        floor = floor or self.history.floor(self.facts, "process")
        self.history.watermarks(
            self.facts, floor, high_watermark=high_watermark, log_start=log_start, where="x"
        )


@pytest.fixture
def stage():
    return Stage()


def test_an_acknowledged_record_that_is_read_is_fine(stage):
    stage.send(b"a", b"b")
    stage.history.acked(stage.facts, 5, [b"a", b"b"])
    stage.history.seen(stage.facts, 6, b"b", "a reader")
    assert stage.violations == []


def test_one_offset_has_one_record(stage):
    stage.send(b"a", b"b")
    stage.history.acked(stage.facts, 5, [b"a"])
    stage.history.seen(stage.facts, 5, b"b", "a reader")
    assert "a reader has b'b'; it was b'a'" in stage.violations[0]


def test_an_idempotent_producers_record_is_there_once(stage):
    stage.send(b"a")
    stage.history.seen(stage.facts, 1, b"a", "a reader")
    stage.history.seen(stage.facts, 2, b"a", "a reader")
    assert "idempotent" in stage.violations[0]


def test_another_producers_record_may_be_there_twice(stage):
    stage.send(b"a", idempotent=False)
    stage.history.seen(stage.facts, 1, b"a", "a reader")
    stage.history.seen(stage.facts, 2, b"a", "a reader")
    assert stage.violations == []


def test_a_record_that_was_sent_elsewhere_is_a_violation(stage):
    other = Facts(stage.topic, 1)
    stage.send(b"a")
    stage.history.seen(other, 0, b"a", "a reader")
    stage.history.seen(stage.facts, 0, b"z", "a reader")
    stage.history.seen(stage.facts, 1, None, "a reader")
    assert len(stage.violations) == 3


def test_what_the_power_took_may_be_replaced_and_nothing_else(stage):
    stage.send(b"a", b"b", b"c")
    stage.history.acked(stage.facts, 0, [b"a", b"b"])
    stage.history.cut(stage.facts, 1)
    stage.history.acked(stage.facts, 1, [b"c"])
    assert stage.violations == []
    stage.history.seen(stage.facts, 0, b"c", "a reader")
    assert len(stage.violations) == 2  # another record there, and the same one twice


def test_watermarks_do_not_fall_below_the_floor_of_the_request(stage):
    early = stage.history.floor(stage.facts, "process")
    stage.answered(10)
    stage.answered(7, floor=early)
    assert stage.violations == []
    stage.answered(9)
    assert "high watermark 9; it was 10" in stage.violations[0]


def test_a_deletion_that_no_client_requested_is_a_violation(stage):
    stage.facts.delete_asked = 4
    stage.answered(10, 4)
    assert stage.violations == []
    stage.answered(10, 5)
    assert "no client deleted" in stage.violations[0]


def test_a_log_start_may_fall_only_after_a_restart(stage):
    stage.facts.delete_asked = 4
    stage.answered(10, 4)
    stage.answered(10, 0, floor=stage.history.floor(stage.facts, "the next process"))
    assert stage.violations == []
    stage.answered(10, 4)
    stage.answered(10, 3)
    assert "log start 3; it was 4" in stage.violations[0]


def test_a_deleted_topic_is_not_seen_again(stage):
    stage.history.topic_seen(stage.topic.id, "metadata")
    stage.history.topic_deleted(stage.topic)
    assert stage.violations == []
    stage.history.topic_seen(stage.topic.id, "metadata")
    assert "deletion was acknowledged" in stage.violations[0]


def test_batches_are_read_up_to_the_first_that_is_damaged():
    keys = b"a", b"b", b"c"
    batches = [
        build_batch([Record(key, value_of(key), 0)], base_offset=offset)
        for offset, key in enumerate(keys)
    ]
    damaged = bytearray(b"".join(batches))
    damaged[-1] ^= 1
    read = list(read_batches(memoryview(damaged)))
    assert [(header.base_offset, found) for header, found in read] == [(0, (b"a",)), (1, (b"b",))]


def test_a_value_of_another_key_is_not_intact():
    batch = build_batch([Record(b"a", value_of(b"b"), 0)])
    ((_, found),) = read_batches(memoryview(batch))
    assert found == (None,)
