"""The start offset of each leader epoch in one partition's log (Kafka: `LeaderEpochFileCache`).

Each batch has the epoch of the leader that wrote it. From the start offsets of the epochs a leader
tells a follower (or a consumer) where an epoch ended, and the follower truncates to that offset and
not to its high watermark (KIP-101). How the end of an epoch is found (KIP-279, KIP-320):

    requested epoch                       answer: epoch, end offset
    the latest                            that epoch, the log end offset
    above the latest                      -1, -1: not known to this log
    below the first                       the requested epoch, the start of the first one
    another one                           the largest one that is not above it, and the start
                                          offset of the next one

Epochs and start offsets both increase strictly, as in the `leader-epoch-checkpoint` file.
"""

from bisect import bisect_left, bisect_right
from collections.abc import Iterable
from typing import Final

from odradek.log.checkpoints import decode_epochs, encode_epochs

UNKNOWN: Final = (-1, -1)


class LeaderEpochs:
    """The leader epochs of one log. Methods that may change them return whether they did."""

    __slots__ = ("_epochs", "_start_offsets")

    def __init__(self, starts: Iterable[tuple[int, int]] = ()) -> None:
        self._epochs: list[int] = []
        self._start_offsets: list[int] = []
        for epoch, start_offset in starts:
            self._epochs.append(epoch)
            self._start_offsets.append(start_offset)

    @classmethod
    def decode(cls, data: bytes) -> "LeaderEpochs":
        """Read a `leader-epoch-checkpoint` file.

        Raises:
            CheckpointError: the file is malformed.
        """
        return cls(decode_epochs(data))

    def encode(self) -> bytes:
        """The content of the `leader-epoch-checkpoint` file."""
        return encode_epochs(self.starts())

    def starts(self) -> list[tuple[int, int]]:
        return list(zip(self._epochs, self._start_offsets, strict=True))

    @property
    def latest_epoch(self) -> int:
        """The epoch of the last batch, or of a leader that has not written yet; -1 if none."""
        return self._epochs[-1] if self._epochs else -1

    def assign(self, epoch: int, start_offset: int) -> bool:
        """Add an epoch: this broker became leader, or received a batch with a new epoch.

        Later epochs, and those with a start offset that is not lower, are removed: the log was
        truncated and written again. The first batch of an epoch decides its start offset.
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
        """The epoch to answer, and its end offset; `UNKNOWN` if it is above the latest."""
        epochs = self._epochs
        if epoch < 0 or not epochs or epoch > epochs[-1]:
            return UNKNOWN
        if epoch == epochs[-1]:
            return epoch, leo
        later = bisect_right(epochs, epoch)
        return (epochs[later - 1] if later else epoch), self._start_offsets[later]

    def epoch_at(self, offset: int) -> int:
        """The latest leader epoch that starts at or below `offset`; -1 if there is none."""
        index = bisect_right(self._start_offsets, offset)
        return self._epochs[index - 1] if index else -1

    def truncate_from_end(self, leo: int) -> bool:
        """The log was truncated to `leo`: remove the epochs that start there or later."""
        kept = bisect_left(self._start_offsets, leo)
        if kept == len(self._epochs):
            return False
        del self._epochs[kept:], self._start_offsets[kept:]
        return True

    def truncate_from_start(self, log_start_offset: int) -> bool:
        """The log start offset moved: remove earlier epochs, keep the one at the offset."""
        first = bisect_right(self._start_offsets, log_start_offset) - 1
        if first < 0 or (first == 0 and self._start_offsets[0] == log_start_offset):
            return False
        del self._epochs[:first], self._start_offsets[:first]
        self._start_offsets[0] = log_start_offset
        return True

    def clear(self) -> bool:
        """Remove all epochs: the log was truncated fully."""
        changed = bool(self._epochs)
        self._epochs.clear()
        self._start_offsets.clear()
        return changed
