"""Which topic id is the present one under a name, as far as one life of a broker has heard.

Orders name a topic by name and id. A topic that is deleted and made again has another id, and ids
never come back. So what orders an id that another has followed is late: it was sent twice, or
waited on a connection that was given up, and obeying it would put a former topic in the place of
the present one. Orders to a former life of the broker are refused by its epoch.

Kafka's brokers refuse every id but the one they have (`ReplicaManager.becomeLeaderOrFollower`),
and so never take the next one in.
"""

from typing import Final

# Of each kind. Late orders are late by seconds.
REMEMBERED_MAX: Final = 10_000


class Incarnations:
    """The ids that topics have and had."""

    def __init__(self) -> None:
        self._present: dict[str, bytes] = {}
        self._past: dict[bytes, None] = {}

    def is_past(self, topic: str, topic_id: bytes) -> bool:
        """Whether another id has followed this one; if not, this is the present one from now on."""
        present = self._present.get(topic)
        if present == topic_id:
            return False
        if topic_id in self._past:
            return True
        if present is not None:
            self._past[present] = None
            if len(self._past) > REMEMBERED_MAX:
                del self._past[next(iter(self._past))]
        self._present[topic] = topic_id
        if len(self._present) > REMEMBERED_MAX:
            del self._present[next(iter(self._present))]
        return False
