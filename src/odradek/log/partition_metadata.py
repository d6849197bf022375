"""`partition.metadata`: the id of the topic that a partition's directory belongs to.

    version: 0
    topic_id: hYR4ZUmUTeGoyaMoVyZa4g

A topic that was deleted and created again has another id, and a directory of the old one must not
be used for it. Directories older than topic ids have no such file.
"""

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
    text = data.decode("utf-8", "replace")
    fields = dict(line.partition(":")[::2] for line in text.splitlines())
    try:
        if fields["version"].strip() == "0":
            return parse_uuid(fields["topic_id"].strip()).bytes
    except (KeyError, ValueError):
        pass
    raise StartupError(
        f"{path}: {text!r} is not `version: 0` and `topic_id: <id>`. To keep the partition, "
        f"write the file again with the topic id from the coordination store"
    )
