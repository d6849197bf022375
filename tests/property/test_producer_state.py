"""Compares the producer state with a model that keeps every batch.

The model is the log itself: every batch that was appended, in order. The answers of the
state must follow from the log, and a snapshot must not change them.
"""

from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from odradek.log.producer_state import ProducerState
from odradek.model.errors import ApiError, ErrorCode
from odradek.record.batch import SEQUENCE_MAX, BatchHeader
from odradek.record.control import ControlType, Marker

DAY_MS = 86_400_000
PRODUCERS = st.integers(0, 2)


def header(producer_id, epoch, sequence, count, transactional, timestamp):
    return BatchHeader(
        0, 100, 0, 2, 0, 0x10 if transactional else 0, count - 1, timestamp, timestamp,
        producer_id, epoch, sequence, count,
    )  # fmt: skip


class ProducerStateLife(RuleBasedStateMachine):
    def __init__(self):
        super().__init__()
        self.state = ProducerState()
        self.log = []  # (base offset, header, marker or None)
        self.dropped = set()  # base offsets of batches that are in no snapshot
        self.leo = 0
        self.high_watermark = 0
        self.now_ms = 0

    def of(self, producer_id):
        return [entry for entry in self.log if entry[1].producer_id == producer_id]

    def current(self, producer_id):
        """Epoch, the data batches of that epoch, whether a transaction is open."""
        entries = self.of(producer_id)
        if not entries:
            return None, [], False
        epoch = entries[-1][1].producer_epoch
        batches = []
        for base_offset, batch, marker in reversed(entries):
            if batch.producer_epoch != epoch:
                break
            if marker is None:
                batches.insert(0, (base_offset, batch))
        last_marker = max((i for i, entry in enumerate(entries) if entry[2]), default=-1)
        is_open = any(entry[1].is_transactional for entry in entries[last_marker + 1 :])
        return epoch, batches, is_open

    def expected(self, batch):
        """The verdict on this batch by the rules, computed from the log alone."""
        epoch, batches, is_open = self.current(batch.producer_id)
        if epoch is None:
            return "append"
        if batch.producer_epoch == epoch:
            for base_offset, known in batches[-5:]:
                same = (known.base_sequence, known.last_offset_delta)
                if (
                    same == (batch.base_sequence, batch.last_offset_delta)
                    and base_offset not in self.dropped
                ):
                    return base_offset
            due = (batches[-1][1].last_sequence + 1) & SEQUENCE_MAX if batches else 0
            error = ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER if batch.base_sequence != due else None
        elif batch.producer_epoch < epoch:
            error = ErrorCode.INVALID_PRODUCER_EPOCH
        else:
            error = ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER if batch.base_sequence else None
        if error is None and is_open and not batch.is_transactional:
            error = ErrorCode.INVALID_TXN_STATE
        return error or "append"

    @rule(
        producer_id=PRODUCERS,
        epoch_step=st.sampled_from([0, 0, 0, 0, 1, -1]),
        sequence_step=st.sampled_from([0, 0, 0, 0, 1, -1, -2, -7]),
        restart=st.booleans(),
        count=st.integers(1, 3),
        transactional=st.booleans(),
    )
    def produce(self, producer_id, epoch_step, sequence_step, restart, count, transactional):
        epoch, batches, is_open = self.current(producer_id)
        due = batches[-1][1].last_sequence + 1 if batches else (0 if epoch else SEQUENCE_MAX - 4)
        if epoch_step == 1 and restart:
            due = 0
        batch = header(
            producer_id,
            max(0, (epoch or 0) + epoch_step),
            (due + sequence_step) & SEQUENCE_MAX,
            count,
            transactional or is_open,
            self.now_ms,
        )
        self.send(batch)

    @precondition(lambda self: any(marker is None for _, _, marker in self.log))
    @rule(back=st.integers(0, 12))
    def send_again(self, back):
        batches = [batch for _, batch, marker in self.log if marker is None]
        self.send(batches[-1 - back % len(batches)])

    def send(self, batch):
        expected = self.expected(batch)
        try:
            stored = self.state.check(batch)
        except ApiError as refused:
            answer = refused.code
        else:
            answer = "append" if stored is None else stored.base_offset
        assert answer == expected
        if answer == "append":
            self.state.appended(batch, self.leo)
            self.log.append((self.leo, batch, None))
            self.leo += batch.record_count

    @rule(producer_id=PRODUCERS, bump=st.booleans(), commit=st.booleans())
    def end_transaction(self, producer_id, bump, commit):
        epoch, _, is_open = self.current(producer_id)
        batch = header(producer_id, (epoch or 0) + bump, -1, 1, True, self.now_ms)
        marker = Marker(ControlType.COMMIT if commit else ControlType.ABORT, 0)
        self.state.check_marker(
            producer_id, producer_epoch=batch.producer_epoch, coordinator_epoch=0
        )
        completed = self.state.marker_appended(batch, marker, self.leo)
        assert [done.aborted for done in [completed] if done] == [not commit] * is_open
        self.log.append((self.leo, batch, marker))
        self.leo += 1

    @rule(replicated=st.integers(0, 8))
    def replicate(self, replicated):
        self.high_watermark = min(self.leo, self.high_watermark + replicated)
        self.state.high_watermark_advanced(self.high_watermark)

    @rule()
    def restart_with_everything_replicated(self):
        """A snapshot keeps the last batch of each producer."""
        self.high_watermark = self.leo
        self.state.high_watermark_advanced(self.leo)
        before = list(self.state.active_producers())
        snapshot = self.state.encode_snapshot()
        self.state = ProducerState()
        self.state.load_snapshot(snapshot, wall_ms=self.now_ms, expiration_ms=DAY_MS)
        assert list(self.state.active_producers()) == before
        for producer_id in range(3):
            _, batches, _ = self.current(producer_id)
            self.dropped.update(base_offset for base_offset, _ in batches[:-1])

    @invariant()
    def the_last_stable_offset_is_below_everything_undecided(self):
        undecided = [self.high_watermark]
        for producer_id in range(3):
            first = None
            for base_offset, batch, marker in self.of(producer_id):
                if marker is None and batch.is_transactional and first is None:
                    first = base_offset
                elif marker:
                    if first is not None and base_offset >= self.high_watermark:
                        undecided.append(first)
                    first = None
            if first is not None:
                undecided.append(first)
        assert self.state.last_stable_offset(self.high_watermark) == min(undecided)


TestProducerStateLife = ProducerStateLife.TestCase
