"""Checkpoint files: text files with an offset for each partition or leader epoch.

    0                    version of the format
    2                    the number of lines that follow
    orders 0 1500        topic, partition, offset     (recovery point, log start, high watermark
    orders 1 1322                                      and cleaner checkpoints of a log directory;
                                                       and of the formats: all below is v2)

    0
    1
    4 0                  leader epoch, start offset   (`leader-epoch-checkpoint` of a partition)

This module converts between bytes and values; its callers write through a temporary file and a
rename. A file with any malformed line is refused as a whole.
"""

from collections.abc import Iterable, Mapping
from typing import Final

from odradek.model.errors import OdradekError
from odradek.model.partition import TopicPartition

RECOVERY_POINT_FILE: Final = "recovery-point-offset-checkpoint"
LOG_START_OFFSET_FILE: Final = "log-start-offset-checkpoint"
HIGH_WATERMARK_FILE: Final = "replication-offset-checkpoint"
CLEANER_FILE: Final = "cleaner-offset-checkpoint"
# Not a file of Kafka, which ignores it: see `odradek.log.upgrade`.
FORMAT_FILE: Final = "record-format-checkpoint"
LEADER_EPOCH_FILE: Final = "leader-epoch-checkpoint"

OFFSET_MAX: Final = (1 << 63) - 1  # a long in Kafka's files and messages
NUMBER_MAX: Final = (1 << 31) - 1  # an int: partitions and leader epochs
_VERSION: Final = "0"


class CheckpointError(OdradekError):
    """A checkpoint file is malformed. The message names the line and the rule."""


def encode_offsets(offsets: Mapping[TopicPartition, int]) -> bytes:
    """The content of an offset checkpoint file."""
    return _encode([f"{topic} {number} {offset}" for (topic, number), offset in offsets.items()])


def decode_offsets(data: bytes) -> dict[TopicPartition, int]:
    """The offsets in an offset checkpoint; an empty file has none.

    Raises:
        CheckpointError: another version or number of lines, a malformed or duplicate line.
    """
    offsets: dict[TopicPartition, int] = {}
    for number, line in _lines(data):
        match line.split():
            case [topic, partition_text, offset_text]:
                index = _integer(partition_text, number, line, NUMBER_MAX)
                partition = TopicPartition(topic, index)
                offset = _integer(offset_text, number, line)
            case _:
                raise CheckpointError(f"line {number}: {line!r} is not `topic partition offset`")
        if partition in offsets:
            raise CheckpointError(f"line {number}: {partition} is listed twice")
        offsets[partition] = offset
    return offsets


def encode_epochs(starts: Iterable[tuple[int, int]]) -> bytes:
    """The content of a leader epoch checkpoint file, from epochs with their start offsets."""
    return _encode([f"{epoch} {start_offset}" for epoch, start_offset in starts])


def decode_epochs(data: bytes) -> list[tuple[int, int]]:
    """Leader epochs with their start offsets, both increasing.

    Raises:
        CheckpointError: another version or number of lines, a malformed line, or one that does
            not increase.
    """
    starts: list[tuple[int, int]] = []
    for number, line in _lines(data):
        match line.split():
            case [epoch_text, offset_text]:
                epoch = _integer(epoch_text, number, line, NUMBER_MAX)
                start_offset = _integer(offset_text, number, line)
            case _:
                raise CheckpointError(f"line {number}: {line!r} is not `epoch start-offset`")
        if starts and (epoch <= starts[-1][0] or start_offset <= starts[-1][1]):
            raise CheckpointError(f"line {number}: {line!r} does not increase after {starts[-1]}")
        starts.append((epoch, start_offset))
    return starts


def _encode(lines: list[str]) -> bytes:
    return "".join(f"{line}\n" for line in (_VERSION, str(len(lines)), *lines)).encode()


def _lines(data: bytes) -> list[tuple[int, str]]:
    """The lines after the file's head, each with its line number."""
    if not data:
        return []
    try:
        version, *rest = data.decode().splitlines()
    except UnicodeDecodeError as error:
        raise CheckpointError(f"not UTF-8: {error}") from None
    if version.strip() != _VERSION:
        raise CheckpointError(f"line 1: version {version!r}, not {_VERSION}")
    if not rest:
        raise CheckpointError("line 2: the number of lines is missing")
    count = _integer(rest[0], 2, rest[0])
    lines = rest[1:]
    if count != len(lines):
        raise CheckpointError(f"line 2: the count is {count}, but {len(lines)} lines follow")
    return list(enumerate(lines, start=3))


def _integer(text: str, number: int, line: str, most: int = OFFSET_MAX) -> int:
    # int() accepts more: signs, blanks, underscores, digits of other scripts.
    if not (text.isascii() and text.isdigit() and len(text) <= 19 and int(text) <= most):
        raise CheckpointError(
            f"line {number}: {text!r} in {line!r} is not a number from 0 to {most}"
        )
    return int(text)
