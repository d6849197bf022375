"""The small text files: checkpoints of offsets and leader epochs, owner, and topic id."""

from pathlib import Path

from odradek.config.properties import parse
from odradek.files.segments import FileFormatError
from odradek.log.checkpoints import CheckpointError, decode_epochs, decode_offsets
from odradek.log.partition_metadata import decode_metadata
from odradek.model.errors import StartupError
from odradek.model.partition import TopicPartition


def offsets(path: str | Path) -> dict[TopicPartition, int]:
    """Offsets of recovery points, log starts, high watermarks or first dirty offsets.

    Raises:
        FileFormatError: the file is malformed.
        OSError: the file cannot be read.
    """
    try:
        return decode_offsets(Path(path).read_bytes())
    except CheckpointError as error:
        raise FileFormatError(f"{path}: {error}") from None


def leader_epochs(path: str | Path) -> list[tuple[int, int]]:
    """Epochs of a `leader-epoch-checkpoint`, each with its start offset.

    Raises:
        FileFormatError: the file is malformed.
        OSError: the file cannot be read.
    """
    try:
        return decode_epochs(Path(path).read_bytes())
    except CheckpointError as error:
        raise FileFormatError(f"{path}: {error}") from None


def meta_properties(path: str | Path) -> dict[str, str]:
    """The properties of a log directory's `meta.properties`: broker id, cluster id.

    Raises:
        OSError: the file cannot be read.
    """
    return dict(parse(Path(path).read_bytes().decode("utf-8", "replace")))


def topic_id(path: str | Path) -> bytes:
    """The topic id in a `partition.metadata`.

    Raises:
        FileFormatError: the file is malformed.
        OSError: the file cannot be read.
    """
    try:
        return decode_metadata(Path(path).read_bytes(), str(path))
    except StartupError as error:
        raise FileFormatError(str(error)) from None
