"""Partitions whose leader in the metadata is about to be replaced, as far as this broker can see.

A client that loses its leader asks another broker for the new one within a millisecond. Answered
with the old leader, it waits for its next look: librdkafka a second or two. So a broker that has
reason to expect a newer leader epoch delays its Metadata or FindCoordinator response until
UpdateMetadata brings it, at most for `odradek.metadata.hold.ms` after the reason came up:

* its replica fetcher has lost the connection to the leader (`lost`), and not made another one;
* the controller's LeaderAndIsr has a newer leader epoch than the metadata (`announced`).

Pure: the metadata cache calls it, with the time.
"""

from collections.abc import Iterable, Iterator

from odradek.model.clock import MonotonicMs

Expected = dict[int, tuple[int, int]]  # of one topic: index -> leader epoch, deadline


class ExpectedLeaders:
    """The partitions of which a newer leader epoch is expected, until when."""

    def __init__(self, hold_ms: int) -> None:
        """`hold_ms`: how long a response may wait; 0: none waits, and nothing is kept."""
        self.hold_ms = hold_ms
        self._topics: dict[str, Expected] = {}

    def __bool__(self) -> bool:
        """Whether any is expected, or was until a deadline that may have passed."""
        return bool(self._topics)

    def items(self) -> Iterator[tuple[tuple[str, int], tuple[int, int]]]:
        """Topic and index; the leader epoch that is expected, and until when."""
        for topic, expected in self._topics.items():
            for index, reason in expected.items():
                yield (topic, index), reason

    def expect(self, topic: str, index: int, epoch: int, monotonic_ms: MonotonicMs) -> None:
        """From now on a leader epoch of at least `epoch` is expected."""
        known_epoch, _ = self._topics.get(topic, {}).get(index, (-1, 0))
        if self.hold_ms and epoch > known_epoch:  # a reason that lasts does not extend the time
            self._topics.setdefault(topic, {})[index] = (epoch, monotonic_ms + self.hold_ms)

    def met(self, topic: str, index: int, epoch: int) -> None:
        """The metadata has this leader epoch now."""
        expected = self._topics.get(topic)
        if expected is not None and expected.get(index, (epoch + 1, 0))[0] <= epoch:
            self.drop(topic, index)

    def drop(self, topic: str, index: int) -> None:
        """Nothing is expected of this partition: it is deleted, or its leader is back."""
        expected = self._topics.get(topic)
        if expected is not None:
            expected.pop(index, None)
            if not expected:
                del self._topics[topic]

    def until_ms(self, topics: Iterable[str] | None, monotonic_ms: MonotonicMs) -> int:
        """When a response about these topics (None: all) has to be sent; 0: it need not wait."""
        names = self._topics if topics is None else topics
        expected = [(name, index) for name in names for index in self._topics.get(name, ())]
        return self.until_ms_of(expected, monotonic_ms)

    def until_ms_of(self, partitions: Iterable[tuple[str, int]], monotonic_ms: MonotonicMs) -> int:
        """When a response about these partitions has to be sent; 0: it need not wait."""
        latest_ms = 0
        for name, index in partitions:
            _, deadline_ms = self._topics.get(name, {}).get(index, (0, 0))
            if deadline_ms <= monotonic_ms:
                self.drop(name, index)
            latest_ms = max(latest_ms, deadline_ms)
        return latest_ms if latest_ms > monotonic_ms else 0
