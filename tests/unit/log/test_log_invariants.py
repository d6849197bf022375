"""What always holds of a log: each rule is broken once, and the violation is reported."""

import pytest

from odradek.log.leader_epochs import LeaderEpochs
from odradek.log.log import Log
from odradek.log.producer_state import ProducerState
from odradek.model.invariants import InvariantError
from odradek.record.batch import read_header
from odradek.record.control import ControlType


@pytest.fixture
def log(world):
    """Three segments [0, 2), [2, 4) and [4, 7), with an ended and an open transaction."""
    log = world.create()
    world.append(b"a", b"b")
    log.roll()
    world.append(b"c", producer_id=7, producer_epoch=0, base_sequence=0)
    world.append(b"d")
    log.roll()
    transactional = {"producer_epoch": 0, "base_sequence": 0, "transactional": True}
    world.append(b"e", producer_id=8, **transactional)
    world.mark(ControlType.COMMIT, 8)
    world.append(b"f", epoch=3, producer_id=9, **transactional)
    log.set_high_watermark(5)
    return log


def test_a_log_keeps_the_invariants(log):
    log.validate()
    log.set_high_watermark(7)
    log.validate()
    log.advance_log_start(3)
    log.validate()
    log.truncate_to(4)
    log.validate()
    log.truncate_fully_and_start_at(20)
    log.validate()


def test_a_log_that_starts_anew_at_a_lower_offset_keeps_the_invariants(log):
    log.truncate_fully_and_start_at(1)
    log.validate()


def set_to(**values):
    def break_it(log, world):
        for name, value in values.items():
            setattr(log, name, value)

    return break_it


class _WrongLog(Log):
    __slots__ = ()

    @property
    def last_stable_offset(self):
        return self.high_watermark + 1


def read_beyond_the_high_watermark(log, world):
    log.__class__ = _WrongLog


def reverse_segments(log, world):
    log.segments.reverse()


def drop_first_segment(log, world):
    del log.segments[0]


def drop_active_segment(log, world):
    del log.segments[-1]


def unknown_open_transaction(log, world):
    log.producers.first_unstable_offset = 3


def high_watermark_without_its_effect(log, world):
    log.high_watermark = 7


def producer_with_batches_at(*offsets, transactional=False):
    def break_it(log, world):
        log.producers = ProducerState()
        for number, offset in enumerate(offsets):
            batch = world.batch(
                b"x",
                producer_id=number if transactional else 1,
                producer_epoch=0,
                base_sequence=0,
                transactional=transactional,
            )
            log.producers.appended(read_header(batch), offset)

    return break_it


@pytest.mark.parametrize(
    ("break_it", "what"),
    [
        (set_to(high_watermark=8), r"t-0: HW 8 is not within \[0, 7\]"),
        (set_to(log_start_offset=6), r"HW 5 is not within \[6, 7\]"),
        (read_beyond_the_high_watermark, "LSO 6 is not between log start 0 and HW 5"),
        (set_to(recovery_point=8), "the recovery point 8 is above the LEO 7"),
        (reverse_segments, "the base offsets of segments do not increase"),
        (drop_first_segment, "segment 2 is not found"),
        (drop_active_segment, "the last segment is not the active one"),
        (set_to(log_start_offset=-1), "log start -1 is before"),
        (
            set_to(leo=3, high_watermark=3, recovery_point=0),
            "the LEO 3 is before the active segment",
        ),
        (set_to(epochs=LeaderEpochs([(3, 0), (1, 3)])), "leader epochs .* do not increase"),
        (set_to(epochs=LeaderEpochs([(1, 3), (3, 3)])), "leader epochs .* do not increase"),
        (set_to(epochs=LeaderEpochs([(1, 0), (3, 8)])), r"begin outside of \[0, 7\]"),
        (set_to(log_start_offset=1), r"begin outside of \[1, 7\]"),
        (set_to(producers_end=8), "the producer state is that of 8, the LEO is 7"),
        (unknown_open_transaction, "first unstable offset 3 is wrong"),
        (high_watermark_without_its_effect, r"the transaction \[4, 5\] holds back the LSO"),
        (producer_with_batches_at(3, 2), r"batches \[3, 2\] of producer 1"),
        (producer_with_batches_at(9), r"batches \[9\] of producer 1; the LEO is 7"),
        (producer_with_batches_at(4, 3, transactional=True), "open transactions"),
    ],
)
def test_a_contradiction_is_reported(log, world, break_it, what):
    break_it(log, world)
    with pytest.raises(InvariantError, match=what):
        log.validate()
