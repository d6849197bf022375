"""Topic ids: drawn once, when a topic is made, from the randomness that is handed in."""

from random import Random
from typing import Final
from uuid import UUID

from odradek.model.ids import uuid_text

# Kafka's: "no topic", and the metadata log of KRaft.
_RESERVED: Final = frozenset({UUID(int=0), UUID(int=1)})


def draw_topic_id(random: Random) -> UUID:
    """A random id. None begins with `-`, which tools would take for an option."""
    while True:
        topic_id = UUID(int=random.getrandbits(128), version=4)
        if topic_id not in _RESERVED and not uuid_text(topic_id).startswith("-"):
            return topic_id
