"""The small text files: offset checkpoints, leader epochs, whose a directory is, topic ids."""

from pathlib import Path

from odradek.config.properties import parse
from odradek.files.segments import FileError
from odradek.log.checkpoints import CheckpointError, decode_epochs, decode_offsets
from odradek.log.partition_metadata import decode_metadata
from odradek.model.errors import StartupError
from odradek.model.partition import TopicPartition


def offsets(path: str | Path) -> dict[TopicPartition, int]:
    """An offset checkpoint: recovery points, log starts, high watermarks, first dirty offsets.

    Raises:
        FileError: it is malformed.
        OSError: the file cannot be read.
    """
    try:
        return decode_offsets(Path(path).read_bytes())
    except CheckpointError as error:
        raise FileError(f"{path}: {error}") from None


def leader_epochs(path: str | Path) -> list[tuple[int, int]]:
    """A `leader-epoch-checkpoint`: epochs, and the offset at which each begins.

    Raises:
        FileError: it is malformed.
        OSError: the file cannot be read.
    """
    try:
        return decode_epochs(Path(path).read_bytes())
    except CheckpointError as error:
        raise FileError(f"{path}: {error}") from None


def meta_properties(path: str | Path) -> dict[str, str]:
    """A `meta.properties`: broker and cluster of a log directory.

    Raises:
        OSError: the file cannot be read.
    """
    return dict(parse(Path(path).read_bytes().decode("utf-8", "replace")))


def topic_id(path: str | Path) -> bytes:
    """The topic id in a `partition.metadata`.

    Raises:
        FileError: it says something else.
        OSError: the file cannot be read.
    """
    try:
        return decode_metadata(Path(path).read_bytes(), str(path))
    except StartupError as error:
        raise FileError(str(error)) from None
