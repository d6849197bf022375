"""Where each leader epoch began in one partition's log.

Every reign of a leader has an epoch, and every batch carries the epoch it was written in. From
the offsets at which epochs begin, a leader tells a follower (or a consumer) where an epoch
ended, and the follower truncates to that instead of to its high watermark (KIP-101). How an
epoch's end is found (KIP-279, KIP-320):

    asked for                             answer: epoch, end offset
    the latest epoch                      that epoch, the log end offset
    a later one than all                  -1, -1: this log knows nothing of it
    an earlier one than all               the asked epoch, the start of the first known
    one in between                        the largest known one not above it, and where the
                                          next one begins

Epochs and start offsets both rise strictly, as in the `leader-epoch-checkpoint` file.
"""

from bisect import bisect_left, bisect_right
from collections.abc import Iterable
from typing import Final

from odradek.log.checkpoints import decode_epochs, encode_epochs

UNKNOWN: Final = (-1, -1)


class LeaderEpochs:
    """The leader epochs of one log. Methods that change it say whether they did."""

    __slots__ = ("_epochs", "_start_offsets")

    def __init__(self, starts: Iterable[tuple[int, int]] = ()) -> None:
        self._epochs: list[int] = []
        self._start_offsets: list[int] = []
        for epoch, start_offset in starts:
            self._epochs.append(epoch)
            self._start_offsets.append(start_offset)

    @classmethod
    def decode(cls, data: bytes) -> "LeaderEpochs":
        """What a `leader-epoch-checkpoint` says.

        Raises:
            CheckpointError: it is malformed.
        """
        return cls(decode_epochs(data))

    def encode(self) -> bytes:
        """The text of the `leader-epoch-checkpoint`."""
        return encode_epochs(self.starts())

    def starts(self) -> list[tuple[int, int]]:
        """Every epoch with its start offset."""
        return list(zip(self._epochs, self._start_offsets, strict=True))

    @property
    def latest_epoch(self) -> int:
        """The epoch of the last batch, or of the leader that has not written yet; -1 if none."""
        return self._epochs[-1] if self._epochs else -1

    @property
    def previous_epoch(self) -> int:
        """The epoch before the latest; -1 if none."""
        return self._epochs[-2] if len(self._epochs) > 1 else -1

    def assign(self, epoch: int, start_offset: int) -> bool:
        """An epoch begins: a leader took office here, or a batch of it arrived.

        What contradicts it, a later epoch or one that begins later, goes: the log was truncated
        and written anew. So the first to write an epoch decides where it began.
        """
        assert epoch >= 0, epoch
        assert start_offset >= 0, start_offset
        epochs, start_offsets = self._epochs, self._start_offsets
        if epochs and epoch == epochs[-1] and start_offset >= start_offsets[-1]:
            return False
        kept = min(bisect_left(epochs, epoch), bisect_left(start_offsets, start_offset))
        del epochs[kept:], start_offsets[kept:]
        epochs.append(epoch)
        start_offsets.append(start_offset)
        return True

    def end_offset_for(self, epoch: int, leo: int) -> tuple[int, int]:
        """The epoch to answer with, and where it ended; `UNKNOWN` if this log cannot say."""
        epochs = self._epochs
        if epoch < 0 or not epochs or epoch > epochs[-1]:
            return UNKNOWN
        if epoch == epochs[-1]:
            return epoch, leo
        later = bisect_right(epochs, epoch)
        return (epochs[later - 1] if later else epoch), self._start_offsets[later]

    def epoch_at(self, offset: int) -> int:
        """The epoch in which `offset` was, or will be, written; -1 if it is not known."""
        index = bisect_right(self._start_offsets, offset)
        return self._epochs[index - 1] if index else -1

    def truncate_from_end(self, leo: int) -> bool:
        """The log now ends at `leo`: epochs that begin there or later have no batch any more."""
        kept = bisect_left(self._start_offsets, leo)
        if kept == len(self._epochs):
            return False
        del self._epochs[kept:], self._start_offsets[kept:]
        return True

    def truncate_from_start(self, log_start_offset: int) -> bool:
        """The log now starts at `log_start_offset`: earlier epochs go, the one there stays."""
        first = bisect_right(self._start_offsets, log_start_offset) - 1
        if first < 0 or (first == 0 and self._start_offsets[0] == log_start_offset):
            return False
        del self._epochs[:first], self._start_offsets[:first]
        self._start_offsets[0] = log_start_offset
        return True

    def clear(self) -> bool:
        """The log begins anew, elsewhere."""
        changed = bool(self._epochs)
        self._epochs.clear()
        self._start_offsets.clear()
        return changed
