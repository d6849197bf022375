"""The znodes of topics as a term of the controller reads them, and those that cannot be read.

A topic whose node is not what Kafka writes there is left as it was, until the node is repaired or
its deletion is requested. The controller reports it (`unreadable`), because no broker has it in its
metadata.

So is a topic whose node is a copy of another topic's, with that topic's id. Replicas are fetched by
the id: 1. `u` has the id of `t`. 2. A follower of `u` gets the records of `t`, or one of `t` those
of `u`. 3. They differ from its own, which are cut off, although they were committed. The node that
was created first has the id.
"""

from collections.abc import Callable, Sequence
from uuid import UUID

from odradek.controller.events import TopicSeen
from odradek.coord import layout
from odradek.coord.store import NoNodeError, Stat, StoreError
from odradek.coord.znode import CorruptNodeError
from odradek.model.ids import uuid_text


class TopicNodeReader:
    """Decodes the nodes of topics, for one term."""

    def __init__(self, *, draw_id: Callable[[], UUID], skip: Callable[[str], None]) -> None:
        self._draw_id = draw_id
        self._skip = skip  # called with what is wrong with a node that cannot be decoded
        self.unreadable: dict[str, str] = {}  # what is wrong with a topic's node, by its name
        self._owners: dict[UUID, tuple[int, str]] = {}  # creation and name of the oldest with an id
        self._ids: dict[str, UUID] = {}  # of those that have one, by name
        self._is_loaded = False

    def seen(
        self, name: str, node: tuple[bytes | None, Stat] | BaseException | None
    ) -> TopicSeen | None:
        """A topic's node; None if there is none, or if it cannot be read.

        Raises:
            StoreError: what reading the node ended with, unless it does not exist; or the topics
                have to be loaded again, because a copy of this node was taken for the topic.
        """
        if node is None or isinstance(node, NoNodeError):
            self.unreadable.pop(name, None)
            self._disown(name)
            return None
        if isinstance(node, BaseException):
            raise node
        data, stat = node
        try:
            decoded = layout.decode_topic(name, data)
            if decoded.topic_id is not None:
                self._own(name, decoded.topic_id, stat.created_id)
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

    def loaded(self, topics: Sequence[TopicSeen]) -> list[TopicSeen]:
        """All topics at the beginning of a term, without copies of others."""
        self._is_loaded = True
        return [topic for topic in topics if topic.name not in self.unreadable]

    def _own(self, name: str, topic_id: UUID, created_id: int) -> None:
        """Give a topic its id.

        Raises:
            CorruptNodeError: the id is another topic's.
        """
        created, owner = self._owners.get(topic_id, (created_id, name))
        if owner == name:
            self._disown(name)
            self._owners[topic_id] = created_id, name
            self._ids[name] = topic_id
        elif created < created_id:
            raise _copied(name, topic_id, owner)
        elif self._is_loaded:
            raise StoreError(f"{_copied(owner, topic_id, name)}; it was taken for the topic")
        else:
            del self._ids[owner]
            self._owners[topic_id] = created_id, name
            self._ids[name] = topic_id
            problem = str(_copied(owner, topic_id, name))
            self._skip(problem)
            self.unreadable[owner] = problem

    def _disown(self, name: str) -> None:
        topic_id = self._ids.pop(name, None)
        if topic_id is not None:
            del self._owners[topic_id]


def _copied(name: str, topic_id: UUID, owner: str) -> CorruptNodeError:
    problem = f"its id {uuid_text(topic_id)} is that of topic {owner}, which was created before it"
    return CorruptNodeError(layout.topic_path(name), problem)
