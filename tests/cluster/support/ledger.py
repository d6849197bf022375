"""What was written to a broker, what it acknowledged, and what is in the log after a kill.

A `Stream` is one producer of one partition, on one connection, with a few batches in flight. A
`Ledger` compares a partition's log with its streams:

    acknowledged    in the log, at the returned offset, byte for byte
    sent            in the log or not: but if so once, complete, and in the order of sending
    anything else   is not in the log

An idempotent stream then sends again the batches without an answer, and the last acknowledged ones,
which the broker must recognise as duplicates (`resume`).
"""

import random
import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass, field

from peers import EARLIEST, Peer, as_stored, framed, producing

from odradek.model.errors import ErrorCode
from odradek.record.batch import read_header
from odradek.record.compression import Codec
from odradek.record.records import Record, build_batch
from odradek.wire.messages.init_producer_id import InitProducerIdRequest, InitProducerIdResponse
from odradek.wire.messages.produce import ProduceResponse

DEPTH = 4  # batches in flight: the broker keeps the last 5 of a producer
REMEMBERED = 5
OFFSETS_KEPT = 500
VERSION = 9
NO_ID = -1
_NOT_REMEMBERED = (ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER, ErrorCode.DUPLICATE_SEQUENCE_NUMBER)


@dataclass(slots=True)
class Sent:
    """A batch, and the offset that the broker returned."""

    batch: bytes
    offset: int = -1


@dataclass(slots=True)
class Stream:
    """One producer. `acks=1` or -1; with a producer id it is idempotent."""

    topic: str
    partition: int
    acks: int
    seed: str
    producer_id: int = NO_ID
    acknowledged: list[Sent] = field(default_factory=list)
    unsure: list[Sent] = field(default_factory=list)
    _sequence: int = 0
    _random: random.Random = field(init=False)

    def __post_init__(self) -> None:
        self._random = random.Random(self.seed)

    def run(self, port: int, ended: threading.Event) -> None:
        """Write until the broker closes the connection, or the test ends it."""
        try:
            with Peer(port) as peer:
                while not ended.is_set():
                    while len(self.unsure) < DEPTH:
                        self._send(peer, Sent(self._batch()))
                    self._receive(peer)
        except OSError:
            return

    def resume(self, peer: Peer) -> None:
        """Send unacknowledged batches again, and the last acknowledged: none may be written twice.

        The broker must recognise the last batch in any case. A producer snapshot does not have
        those before it (nor does Apache Kafka's): they may be refused, but not written.
        """
        assert self.producer_id != NO_ID
        stored = [sent for sent in self.unsure if sent.offset >= 0]
        lost = self.unsure[len(stored) :]
        self.acknowledged += stored
        self.unsure.clear()
        end = peer.offset(self.topic, self.partition)
        for sent in self.acknowledged[-REMEMBERED:]:
            answer = peer.produce(self.topic, self.partition, sent.batch, acks=self.acks)
            is_known = (answer.error_code, answer.base_offset) == (0, sent.offset)
            may_be_dropped = sent is not self.acknowledged[-1]
            assert is_known or (may_be_dropped and answer.error_code in _NOT_REMEMBERED), answer
        assert peer.offset(self.topic, self.partition) == end
        for sent in lost:
            answer = peer.produce(self.topic, self.partition, sent.batch, acks=self.acks)
            assert answer.error_code == ErrorCode.NONE, (self, answer)
            self.acknowledged.append(Sent(sent.batch, answer.base_offset))

    def lost_from(self, offset: int) -> None:
        """The disk lost the log from this offset on: continue after the last batch that is left."""
        kept = [sent for sent in self.acknowledged if sent.offset < offset]
        if len(kept) == len(self.acknowledged):
            return  # of the unsure `Ledger.check` will see
        self.acknowledged = kept
        self.unsure.clear()
        self._sequence = read_header(kept[-1].batch).last_sequence + 1 if kept else 0

    def _send(self, peer: Peer, sent: Sent) -> None:
        self.unsure.append(sent)
        request = producing(self.topic, self.partition, sent.batch, acks=self.acks)
        peer.send(framed(request, VERSION))

    def _receive(self, peer: Peer) -> None:
        answer = peer.answer(ProduceResponse, VERSION).responses[0].partition_responses[0]
        assert answer.error_code == ErrorCode.NONE, (self.topic, self.partition, answer)
        sent = self.unsure.pop(0)
        sent.offset = answer.base_offset
        self.acknowledged.append(sent)

    def _batch(self) -> bytes:
        rng = self._random
        # Recent, because a broker drops producer state that is older than a day.
        now_ms = time.time_ns() // 1_000_000
        records = [
            Record(rng.randbytes(16), rng.randbytes(rng.choice((0, 10, 100, 1_000))), now_ms)
            for n in range(rng.choice((1, 1, 2, 7)))
        ]
        idempotent = self.producer_id != NO_ID
        batch = build_batch(
            records,
            codec=rng.choice(tuple(Codec)),
            producer_id=self.producer_id,
            producer_epoch=0 if idempotent else -1,
            base_sequence=self._sequence if idempotent else -1,
        )
        self._sequence += len(records)
        return batch


class Ledger:
    """One partition and its streams."""

    def __init__(self, topic: str, partition: int, streams: Sequence[Stream]) -> None:
        self.topic = topic
        self.partition = partition
        self.streams = streams
        self._forgotten_to = 0

    def lost_from(self, offset: int) -> None:
        """The disk lost the log from this offset on."""
        for stream in self.streams:
            stream.lost_from(offset)

    def check(self, peer: Peer) -> None:
        """Compare the log with what was acknowledged."""
        start = peer.offset(self.topic, self.partition, EARLIEST)
        end = peer.offset(self.topic, self.partition)
        there = peer.read(self.topic, self.partition, start, end)
        self._check_offsets([batch for _, batch in there], start, end)
        left = {offset: as_stored(batch) for offset, batch in there}
        for stream in self.streams:
            for sent in (each for each in stream.acknowledged if each.offset >= start):
                assert left.pop(sent.offset, None) == as_stored(sent.batch), (
                    f"{self.topic}-{self.partition}: acknowledged at {sent.offset}, not in the "
                    f"log, which has [{start}, {end})"
                )
        for stream in self.streams:
            self._find_unsure(stream, left)
        # What was deleted is still there in the batch that the log begins with, and all of it
        # where the checkpoint of log start offsets was lost.
        unknown = sorted(offset for offset in left if offset >= max(start, self._forgotten_to))
        assert not unknown, (self.topic, self.partition, start, unknown)

    def shorten(self, peer: Peer) -> int:
        """Delete most of the log, and drop it here. Returns the number of batches dropped."""
        start = peer.delete_records(
            self.topic, self.partition, peer.offset(self.topic, self.partition) - OFFSETS_KEPT
        )
        self._forgotten_to = max(start, self._forgotten_to)
        before = sum(len(stream.acknowledged) for stream in self.streams)
        for stream in self.streams:
            kept = [sent for sent in stream.acknowledged if sent.offset >= self._forgotten_to]
            stream.acknowledged = kept or stream.acknowledged[-1:]
        return before - sum(len(stream.acknowledged) for stream in self.streams)

    @staticmethod
    def _check_offsets(batches: Sequence[bytes], start: int, end: int) -> None:
        """Every offset from the start to the end is in one batch."""
        headers = [read_header(batch) for batch in batches]
        assert start == end or headers[0].base_offset <= start < headers[0].next_offset
        ends = [header.next_offset for header in headers]
        assert [header.base_offset for header in headers[1:]] == ends[:-1]
        assert ends[-1:] in ([], [end])

    def _find_unsure(self, stream: Stream, left: dict[int, bytes]) -> None:
        """Unacknowledged batches in the log are in order, and none follows one that is missing."""
        places = {stored: offset for offset, stored in left.items()}
        found = [places.get(as_stored(sent.batch), -1) for sent in stream.unsure]
        written = [offset for offset in found if offset >= 0]
        assert found == written + [-1] * (len(found) - len(written)), (stream, found)
        assert written == sorted(written), (stream, found)
        for sent, offset in zip(stream.unsure, found, strict=True):
            sent.offset = offset
            left.pop(offset, None)
        if stream.producer_id == NO_ID:
            # A plain producer cannot resend safely: batches in the log count as acknowledged.
            stream.acknowledged += [sent for sent in stream.unsure if sent.offset >= 0]
            stream.unsure.clear()


def new_producer_id(peer: Peer) -> int:
    """A producer id from the broker."""
    while True:
        request = InitProducerIdRequest(transactional_id=None, transaction_timeout_ms=60_000)
        answer = peer.request(request, InitProducerIdResponse)
        if answer.error_code == ErrorCode.NONE:
            return answer.producer_id
        # There is no controller yet: clients retry.
        assert answer.error_code == ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, answer


class Load:
    """Runs streams, each in a thread, until `stop`, or until the broker ends."""

    def __init__(self, port: int, streams: Sequence[Stream]) -> None:
        self._ended = threading.Event()
        self._failures: list[BaseException] = []
        self._threads = [
            threading.Thread(target=self._run, args=(stream, port)) for stream in streams
        ]
        for thread in self._threads:
            thread.start()

    def _run(self, stream: Stream, port: int) -> None:
        try:
            stream.run(port, self._ended)
        except BaseException as error:
            self._failures.append(error)

    def stop(self) -> None:
        """Wait until all have ended.

        Raises:
            AssertionError: the broker refused something.
        """
        self._ended.set()
        for thread in self._threads:
            thread.join()
        assert not self._failures, self._failures
