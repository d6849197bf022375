"""The present topic id of each topic name, by the requests received since the start.

LeaderAndIsr requests name a topic by name and id. A topic that is deleted and created again has
another id, and no id is used twice. So a request with an id that another one has replaced is late:
it was sent twice, or it was delayed on an old connection, and it would replace the present topic
by the former one. Requests for an earlier registration of the broker are refused by broker epoch.

Kafka's brokers refuse every id but the one they have (`ReplicaManager.becomeLeaderOrFollower`),
and so never accept the id of the topic created next.
"""

from typing import Final

# Of present and of former ids each. Late requests are late by seconds.
IDS_MAX: Final = 10_000


class TopicIds:
    """The present and former ids of topics."""

    def __init__(self) -> None:
        self._present: dict[str, bytes] = {}
        self._former: dict[bytes, None] = {}

    def is_replaced(self, topic: str, topic_id: bytes) -> bool:
        """Whether another id has replaced this one; if not, this becomes the topic's present id."""
        present = self._present.get(topic)
        if present == topic_id:
            return False
        if topic_id in self._former:
            return True
        if present is not None:
            self._former[present] = None
            if len(self._former) > IDS_MAX:
                del self._former[next(iter(self._former))]
        self._present[topic] = topic_id
        if len(self._present) > IDS_MAX:
            del self._present[next(iter(self._present))]
        return False
