"""Records a story: a frame for each instant of simulated time at which something changed.

`ObservedLoop` calls the recorder whenever all that was due has run, before time advances. So a
frame shows the cluster between two events, never in the middle of one.
"""

from collections.abc import Callable, Iterator, Sequence
from typing import Final

from odradek.controller.causes import Decision, Verdict
from odradek.model.partition import TopicPartition
from odradek.record.batch import iter_batches
from odradek.record.control import ControlType, read_marker
from odradek.sim.scenes.replicas import held
from odradek.sim.world.cluster import SimulatedCluster
from odradek.sim.world.network import SimulatedLoop
from odradek.web.stories.sentences import changes
from odradek.web.stories.snapshot import ShownReplica, Snapshot, lanes_of, take
from odradek.web.stories.values import StoryFrame

FRAMES_MAX: Final = 300
RATE_S: Final = 0.5  # a shorter copy has no rate worth showing
# The registrations in the store show the same.
_SEEN_ELSEWHERE: Final = frozenset({Verdict.BROKER_JOINED, Verdict.BROKER_GONE})


class ObservedLoop(SimulatedLoop):
    """A loop that calls `observe` before the time advances."""

    def __init__(self) -> None:
        super().__init__()
        self.observe: Callable[[], None] = lambda: None

    def _wait(self) -> None:
        self.observe()
        super()._wait()


class StoryRecorder:
    """Takes snapshots of a cluster, and makes a frame of each that differs."""

    def __init__(self, cluster: SimulatedCluster, partitions: Sequence[TopicPartition]) -> None:
        self.frames: list[StoryFrame] = []
        self.positions: dict[str, tuple[TopicPartition, int]] = {}  # of consumers
        self.readers: dict[str, set[TopicPartition]] = {}  # what members of groups read
        # When copying to a new replica was first seen, and the bytes that it had then.
        self._copies: dict[tuple[TopicPartition, int], tuple[float, int]] = {}
        self._cluster = cluster
        self._partitions = list(partitions)
        self._began_s = cluster.loop.time()
        self._said: list[str] = []
        self._decided = {broker.id: self._newest(broker.id) for broker in cluster.brokers}
        self._processes = {broker.id: broker.starts for broker in cluster.brokers}
        self._replicas: dict[tuple[TopicPartition, int], ShownReplica] = {}
        self._last = take(cluster, self._partitions)
        self._keep_replicas()

    def begin(self, *sentences: str) -> None:
        """Take the first frame, which has no change to say."""
        self._frame(self._last, list(sentences))

    def say(self, sentence: str) -> None:
        """Add a sentence to the next frame: what a client or an administrator does or gets."""
        self._said.append(sentence)

    def show(self, partition: TopicPartition) -> None:
        """Show this partition, too, from now on."""
        if partition not in self._partitions:
            self._partitions.append(partition)

    def drop_log(self, broker: int) -> None:
        """The log of a broker without power is not known until it starts again."""
        for key in [key for key in self._replicas if key[1] == broker]:
            del self._replicas[key]

    def observe(self) -> None:
        """Take a frame if something has changed."""
        snapshot = take(self._cluster, self._partitions)
        decided = list(self._decisions())
        if snapshot == self._last and not decided and not self._said:
            return
        before, self._last = self._last, snapshot
        self._keep_replicas()
        said, self._said = self._said, []
        sentences = [*said, *decided, *changes(before, snapshot, self._appended)]
        if sentences and len(self.frames) < FRAMES_MAX:
            self._frame(snapshot, sentences)

    # ------------------------------------------------------------------------- inside

    def _frame(self, snapshot: Snapshot, sentences: list[str]) -> None:
        self.frames.append(
            StoryFrame(
                at_s=round(self._cluster.loop.time() - self._began_s, 3),
                sentences=tuple(sentences),
                controller=snapshot.controller,
                controller_epoch=snapshot.controller_epoch,
                brokers=snapshot.brokers,
                stored=snapshot.stored,
                lanes=lanes_of(snapshot, self._replicas, self.positions, self._rates(snapshot)),
                groups=snapshot.groups,
                readers=tuple(
                    (name, tuple(sorted(map(str, read)))) for name, read in self.readers.items()
                ),
                transactions=snapshot.transactions,
            )
        )

    def _rates(self, snapshot: Snapshot) -> dict[tuple[TopicPartition, int], float]:
        """The bytes per second that each new replica has copied so far."""
        now_s = self._cluster.loop.time()
        rates = {}
        for state in snapshot.stored:
            for broker in state.adding:
                replica = snapshot.replica(state.partition, broker)
                if replica is not None:
                    key = state.partition, broker
                    since_s, size_bytes = self._copies.setdefault(key, (now_s, replica.size_bytes))
                    if now_s - since_s >= RATE_S:
                        rates[key] = (replica.size_bytes - size_bytes) / (now_s - since_s)
        return rates

    def _keep_replicas(self) -> None:
        for partition, replicas in self._last.replicas:
            for replica in replicas:
                self._replicas[partition, replica.broker] = replica

    def _newest(self, broker: int) -> int:
        found = self._cluster.brokers[broker].broker
        entries = () if found is None else found.journal.entries
        return entries[-1].number if entries else 0

    def _decisions(self) -> Iterator[str]:
        """What controllers have decided since the last frame, with the causes."""
        for broker in self._cluster.brokers:
            if broker.starts != self._processes[broker.id]:
                self._processes[broker.id] = broker.starts
                self._decided[broker.id] = 0
            if broker.broker is None:
                continue
            for entry in broker.broker.journal.entries:
                if entry.number > self._decided[broker.id]:
                    self._decided[broker.id] = entry.number
                    if self._is_shown(entry.what):
                        yield f"Controller {broker.id}: {_decision(entry.what)}."

    def _is_shown(self, what: Decision | str) -> bool:
        if isinstance(what, str):
            return True
        subject = what.subject
        if isinstance(subject, TopicPartition):
            return subject in self._partitions
        if isinstance(subject, int):
            return what.verdict not in _SEEN_ELSEWHERE
        return any(partition.topic == subject for partition in self._partitions)

    def _appended(self, broker: int, partition: TopicPartition, start: int, end: int) -> str:
        """What a replica has from one offset to another, by the batches in its log."""
        replica = held(self._cluster.brokers[broker], partition)
        log = None if replica is None else replica.log
        parts: list[str] = []
        records = 0
        for segment in () if log is None else log.segments:
            data = memoryview(segment.file.read_now(0, segment.size))
            for position, header in iter_batches(data):
                if not start <= header.base_offset < end:
                    continue
                if header.is_control:
                    marker = read_marker(data[position : position + header.size_bytes])
                    is_commit = marker is not None and marker.type is ControlType.COMMIT
                    kind = "a commit" if is_commit else "an abort"
                    parts.append(f"{kind} marker of producer {header.producer_id}")
                else:
                    records += header.last_offset - header.base_offset + 1
        if records or not parts:
            count = records or end - start
            parts.insert(0, "1 record" if count == 1 else f"{count} records")
        return " and ".join(parts)


def _decision(what: Decision | str) -> str:
    if isinstance(what, Decision) and isinstance(what.subject, int):
        return f"broker {what}"
    return str(what)
