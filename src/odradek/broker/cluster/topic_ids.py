"""Topic ids: generated once, when a topic is created."""

from random import Random
from typing import Final
from uuid import UUID

from odradek.model.ids import uuid_text

# Kafka's: "no topic", and the metadata log of KRaft.
_RESERVED: Final = frozenset({UUID(int=0), UUID(int=1)})


def draw_topic_id(random: Random) -> UUID:
    """A random id that does not begin with `-`, which tools would parse as an option."""
    while True:
        topic_id = UUID(int=random.getrandbits(128), version=4)
        if topic_id not in _RESERVED and not uuid_text(topic_id).startswith("-"):
            return topic_id
