"""What the controller's shell is to read next."""

from collections.abc import Iterable
from enum import Enum, auto

from odradek.controller.events import TopicSeen


class Notice(Enum):
    """Something that is to be read. A notice that is still in the queue is not added again."""

    CONTROLLER = auto()  # `/controller` was created, removed or changed
    BROKERS = auto()
    TOPICS = auto()
    TOPIC_NODES = auto()  # those in `_changed_topics`
    DELETIONS = auto()
    REASSIGNMENTS = auto()
    ELECTIONS = auto()
    REBALANCE = auto()  # no watch: the timer for preferred leaders
    UNCLEAN = auto()  # no watch: unclean election was allowed for the topics in `_unclean_allowed`
    LOG_DIRS = auto()


def by_size(topics: Iterable[TopicSeen], partitions_max: int) -> Iterable[tuple[TopicSeen, ...]]:
    """The topics in groups of about as many partitions as may be worked on in one turn."""
    group: list[TopicSeen] = []
    for topic in topics:
        group.append(topic)
        if sum(len(seen.assignments) for seen in group) >= partitions_max:
            yield tuple(group)
            group = []
    yield tuple(group)
