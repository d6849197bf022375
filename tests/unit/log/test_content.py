"""What the batches of a log show, compared with its index and its producer state."""

import pytest

from odradek.log.repair.content import check_content
from odradek.model.invariants import InvariantError
from odradek.record.control import ControlType

TRANSACTIONAL = {"producer_epoch": 0, "transactional": True}


@pytest.fixture
def log(world):
    log = world.create()
    world.append(b"a", producer_id=7, base_sequence=0, **TRANSACTIONAL)
    world.mark(ControlType.ABORT, 7)
    log.roll()
    world.append(b"b", producer_id=8, base_sequence=0, **TRANSACTIONAL)
    world.append(b"c")
    return log


def test_a_sound_log_has_one_batch_at_an_offset_and_all_aborted_transactions(world, log):
    check_content(log)
    log.truncate_to(1)
    check_content(log)


def write_the_last_batch_twice(world, log):
    size = log.active_segment.size
    data = bytes(log.read(3, 1000, end_offset=4, wait=True).data)
    log.active_segment.file.write(size, (data,))
    log.active_segment.size += len(data)


def begin_a_segment_twice(world, log):
    size = log.segments[0].size
    data = bytes(log.read(2, 1000, end_offset=3, wait=True).data)
    log.segments[0].file.write(size, (data,))
    log.segments[0].size += len(data)


def forget_the_aborted(world, log):
    log.segments[0].keep_aborted_below(0)


def forget_an_open_transaction(world, log):
    log.producers.clear()


def end_before_the_last_batch(world, log):
    log.leo = 3


def note_a_batch_that_is_not_there(world, log):
    log.truncate_to(3)
    appended = world.append(b"d", producer_id=8, base_sequence=1, **TRANSACTIONAL)
    assert appended.first_offset == 3
    log.active_segment.size = log.active_segment.find(3, wait=True)
    log.leo = 3


@pytest.mark.parametrize(
    ("break_it", "what"),
    [
        (write_the_last_batch_twice, "offset 3 is there twice"),
        (begin_a_segment_twice, "segment 2 begins below 3"),
        (forget_the_aborted, r"segment 0 lacks the aborted transactions \[\(7, 1\)\]"),
        (forget_an_open_transaction, "the transaction of producer 8 at 2 is not in the"),
        (end_before_the_last_batch, "the batches end at 4, the LEO is 3"),
        (note_a_batch_that_is_not_there, "producer 8 has last sequence 1 in the producer state"),
    ],
)
def test_it_says_what_does_not_agree(world, log, break_it, what):
    break_it(world, log)

    with pytest.raises(InvariantError, match=what):
        check_content(log)
