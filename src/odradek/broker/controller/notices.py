"""What the controller's shell is to read next."""

from enum import Enum, auto


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
