"""What a story consists of, as values: its introduction, its runs and their frames."""

from dataclasses import dataclass

from odradek.model.partition import TopicPartition
from odradek.web.lanes.values import PartitionLanes


@dataclass(frozen=True, slots=True, kw_only=True)
class Story:
    """One story of the shelf."""

    name: str  # in its URL
    title: str
    introduction: str
    files: tuple[str, ...]  # of the code that the story shows, below src/odradek


@dataclass(frozen=True, slots=True, kw_only=True)
class ShownBroker:
    """A broker, as the operating system, the coordination store and the network have it."""

    broker: int
    process: str  # running, paused, down, starting or stopping
    is_registered: bool
    rack: str | None = None
    dropped_to: tuple[int, ...] = ()  # brokers that receive nothing of what this one sends


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredPartition:
    """A partition as the coordination store has it."""

    partition: TopicPartition
    replicas: tuple[int, ...]
    adding: tuple[int, ...] = ()
    removing: tuple[int, ...] = ()
    leader: int = -1
    leader_epoch: int = -1
    isr: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class ShownGroup:
    """A consumer group, as its coordinator has it."""

    group: str
    coordinator: int
    state: str
    generation: int
    members: tuple[tuple[str, tuple[str, ...]], ...] = ()  # client id and assigned partitions
    committed: tuple[tuple[str, int], ...] = ()  # partition and committed offset


@dataclass(frozen=True, slots=True, kw_only=True)
class ShownTransaction:
    """A transactional id, as its coordinator has it."""

    transactional_id: str
    coordinator: int
    producer_id: int
    producer_epoch: int
    state: str
    partitions: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class StoryFrame:
    """The cluster after a change, and the sentences that say what has changed."""

    at_s: float  # simulated time since the first frame
    sentences: tuple[str, ...]
    controller: int | None
    controller_epoch: int
    brokers: tuple[ShownBroker, ...]
    stored: tuple[StoredPartition, ...]
    lanes: tuple[PartitionLanes, ...]
    groups: tuple[ShownGroup, ...] = ()
    readers: tuple[tuple[str, tuple[str, ...]], ...] = ()  # members, and what each reads now
    transactions: tuple[ShownTransaction, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class StoryRun:
    """One play of a story; a story that compares two rules or two settings has two."""

    title: str  # the rule or the setting
    frames: tuple[StoryFrame, ...]
    is_damaged: bool  # records were lost, or are there twice


@dataclass(frozen=True, slots=True, kw_only=True)
class Played:
    """A story that was played to its end."""

    story: Story
    runs: tuple[StoryRun, ...]
    # For each step the index of the frame that each run shows: the same moment of its plan.
    steps: tuple[tuple[int, ...], ...]
