"""What the controller's shell is to read next."""

from collections.abc import Callable, Iterable, Sequence
from enum import Enum, auto

from odradek.controller.events import TopicSeen
from odradek.coord import layout
from odradek.coord.store import Store
from odradek.coord.znode import CorruptNodeError


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


async def failed_log_dirs(
    store: Store, names: Sequence[str], skip: Callable[[str], None]
) -> tuple[int, ...]:
    """The brokers that these notices of failed log directories name, each once.

    `skip` is called with what is wrong with a notice that cannot be read.
    """
    paths = [f"{layout.LOG_DIR_EVENTS}/{name}" for name in names]
    brokers: dict[int, None] = {}
    for path, node in zip(paths, await store.get_many(paths), strict=True):
        try:
            if node is not None:
                brokers[layout.decode_log_dir_event(path, node[0])] = None
        except CorruptNodeError as error:
            skip(str(error))
    return tuple(brokers)
