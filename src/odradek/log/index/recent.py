"""Where the latest batches of a log begin: most reads begin with one of them, and need no index."""

from array import array
from bisect import bisect_right
from typing import Final

KEPT_MAX: Final = 256


class RecentBatches:
    """Offsets and positions of the last batches of the active segment, and of its end."""

    __slots__ = ("_offsets", "_positions")

    def __init__(self, offset: int, position: int) -> None:
        """`offset` and `position` are the end of the segment; what is before it is not known."""
        self._offsets = array("q", (offset,))
        self._positions = array("q", (position,))

    def __len__(self) -> int:
        return len(self._offsets)

    def add(self, end_offset: int, end_position: int) -> None:
        """A batch was appended: the segment ends here now."""
        offsets = self._offsets
        offsets.append(end_offset)
        self._positions.append(end_position)
        if len(offsets) > KEPT_MAX:
            del offsets[: KEPT_MAX // 2], self._positions[: KEPT_MAX // 2]

    def position_of(self, offset: int) -> int | None:
        """Where the batch with `offset` begins; the end, if `offset` is above all batches.

        None: the batch is older than those that are known here.
        """
        index = bisect_right(self._offsets, offset) - 1
        return self._positions[index] if index >= 0 else None

    def whole_batches_in(self, position: int, bytes_max: int) -> int:
        """The size of the whole batches from there on; 0: not one fits, or they are not recent.

        A read that ends within a batch reads and sends bytes that are read and sent again.
        """
        positions = self._positions
        if position < positions[0] or bytes_max <= 0:  # a client may send any number
            return 0
        return positions[bisect_right(positions, position + bytes_max) - 1] - position
