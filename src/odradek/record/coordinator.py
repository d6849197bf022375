"""Events and effects that the state machines of both coordinators share.

A machine begins with the log (`Replayed`, `MarkerReplayed`), then serves (`Loaded`), and ends when
another broker becomes the coordinator (`Resigned`).
"""

from dataclasses import dataclass

from odradek.record.records import Record


@dataclass(frozen=True, slots=True)
class Replayed:
    """The next records of the log, of one batch; `producer_id` is -1 outside of a transaction."""

    records: tuple[Record, ...]
    producer_id: int


@dataclass(frozen=True, slots=True)
class MarkerReplayed:
    """The next batch of the log is the marker of a producer's transaction."""

    producer_id: int
    committed: bool


@dataclass(frozen=True, slots=True)
class Loaded:
    """All of the log has been replayed, and is below the high watermark."""


@dataclass(frozen=True, slots=True)
class Resigned:
    """Another broker is the coordinator. Requests that wait get NOT_COORDINATOR."""


@dataclass(frozen=True, slots=True)
class RecordSkipped:
    """Effect of `Replayed`: a record is damaged, and nothing of it was taken."""

    offset: int
    reason: str


@dataclass(frozen=True, slots=True)
class Note:
    """Effect: write a line to the log of the broker."""

    text: str


SharedEffect = RecordSkipped | Note
