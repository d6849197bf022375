"""The znodes of topics as a term of the controller reads them, and those that cannot be read.

A topic whose node is not what Kafka writes there is left as it was, until the node is repaired or
its deletion is requested. The controller reports it (`unreadable`), because no broker has it in its
metadata.
"""

from collections.abc import Callable
from uuid import UUID

from odradek.controller.events import TopicSeen
from odradek.coord import layout
from odradek.coord.store import NoNodeError, Stat
from odradek.coord.znode import CorruptNodeError


class TopicNodeReader:
    """Decodes the nodes of topics, for one term."""

    def __init__(self, *, draw_id: Callable[[], UUID], skip: Callable[[str], None]) -> None:
        self._draw_id = draw_id
        self._skip = skip  # called with what is wrong with a node that cannot be decoded
        self.unreadable: dict[str, str] = {}  # what is wrong with a topic's node, by its name

    def seen(
        self, name: str, node: tuple[bytes | None, Stat] | BaseException | None
    ) -> TopicSeen | None:
        """A topic's node; None if there is none, or if it cannot be read.

        Raises:
            StoreError: what reading the node ended with, unless it does not exist.
        """
        if node is None or isinstance(node, NoNodeError):
            self.unreadable.pop(name, None)
            return None
        if isinstance(node, BaseException):
            raise node
        data, stat = node
        try:
            decoded = layout.decode_topic(name, data)
        except CorruptNodeError as error:
            self._skip(str(error))
            self.unreadable[name] = str(error)
            return None
        self.unreadable.pop(name, None)
        return TopicSeen(
            name=name,
            id=decoded.topic_id,
            spare_id=None if decoded.topic_id else self._draw_id(),
            assignments=decoded.assignments,
            store_version=stat.version,
        )
