"""`partition.metadata`: the id of the topic that a partition's directory belongs to.

    version: 0
    topic_id: hYR4ZUmUTeGoyaMoVyZa4g

A topic that was deleted and created again has another id, and a directory of the old one must not
be used for it. Directories older than topic ids have no such file.
"""

from functools import lru_cache
from typing import Final
from uuid import UUID

from odradek.model.errors import StartupError
from odradek.model.ids import parse_uuid, uuid_text

PARTITION_METADATA: Final = "partition.metadata"


def encode_metadata(topic_id: bytes) -> bytes:
    """The content of the file."""
    return f"version: 0\ntopic_id: {uuid_text(UUID(bytes=topic_id))}".encode()


def decode_metadata(data: bytes, path: str) -> bytes:
    """The topic id in the file at `path`.

    Raises:
        StartupError: the file is malformed.
    """
    topic_id = _topic_id(data)
    if topic_id is not None:
        return topic_id
    text = data.decode("utf-8", "replace")
    raise StartupError(
        f"{path}: {text!r} is not `version: 0` and `topic_id: <id>`. To keep the partition, "
        f"write the file again with the topic id from the coordination store"
    )


@lru_cache(maxsize=64)  # the partitions of a topic have equal files, and are loaded together
def _topic_id(data: bytes) -> bytes | None:
    lines = data.decode("utf-8", "replace").splitlines()
    fields = dict(line.partition(":")[::2] for line in lines)
    try:
        if fields["version"].strip() == "0":
            return parse_uuid(fields["topic_id"].strip()).bytes
    except (KeyError, ValueError):
        pass
    return None
