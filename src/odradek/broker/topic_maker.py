"""Topics that somebody asked about and that are made on demand, each once.

    TopicMaker       any name, where `auto.create.topics.enable` says so (Metadata)
    InternalTopics   Kafka's own two, with their own options (FindCoordinator)

Who asked is answered at once and asks again; what goes wrong is logged, for there is nobody else
to be told. So a request may name a hundred thousand topics: some are begun, the others when they
are asked for again.
"""

import logging
from collections.abc import Awaitable, Callable, Iterable, Mapping
from typing import Final, NamedTuple, Protocol

from odradek.broker.tasks import Tasks
from odradek.config.broker import BrokerConfig
from odradek.model.errors import ApiError, ErrorCode
from odradek.model.names import GROUP_TOPIC, TRANSACTION_TOPIC

MADE_AT_ONCE: Final = 1_000

log = logging.getLogger(__name__)


class NewTopic(NamedTuple):
    """What is asked for; -1 stands for the broker's default."""

    name: str
    partitions: int = -1
    replication_factor: int = -1
    configs: Mapping[str, str] = {}


class Create(Protocol):
    """Makes one topic (`TopicAdmin.create_one`)."""

    def __call__(
        self, name: str, partitions: int, replication_factor: int, configs: Mapping[str, str]
    ) -> Awaitable[None]:
        """Make it, without waiting until it shows."""


class TopicMaker:
    """Makes topics in the background; a name that is being made is not made twice."""

    def __init__(self, create: Create, tasks: Tasks) -> None:
        self._create = create
        self._tasks = tasks
        self._being_made: set[str] = set()

    def make(self, names: Iterable[str]) -> None:
        """Begin to make these with the broker's defaults; whoever asks again will see."""
        for name in names:
            self.begin(NewTopic(name))

    def begin(self, topic: NewTopic) -> None:
        """Begin to make one, if not too many are being made."""
        if topic.name not in self._being_made and len(self._being_made) < MADE_AT_ONCE:
            self._being_made.add(topic.name)
            self._tasks.start(self._make(topic), f"make topic {topic.name}")

    async def _make(self, topic: NewTopic) -> None:
        try:
            await self._create(*topic)
        except ApiError as error:
            if error.code is not ErrorCode.TOPIC_ALREADY_EXISTS:
                log.warning("topic %s, asked for, could not be made: %s", topic.name, error)
        finally:
            self._being_made.discard(topic.name)


_GROUP_CONFIGS: Final = {"cleanup.policy": "compact", "compression.type": "producer"}
_TRANSACTION_CONFIGS: Final = {
    "cleanup.policy": "compact",
    "compression.type": "uncompressed",
    "unclean.leader.election.enable": "false",
}


class InternalTopics:
    """Makes `__consumer_offsets` and `__transaction_state` as Kafka does."""

    def __init__(self, maker: TopicMaker, config: Callable[[], BrokerConfig]) -> None:
        self._maker = maker
        self._config = config

    def make(self, name: str) -> None:
        """Begin to make one of the two."""
        config = self._config()
        if name == GROUP_TOPIC:
            self._maker.begin(
                NewTopic(
                    name,
                    config.offsets_topic_num_partitions,
                    config.offsets_topic_replication_factor,
                    {**_GROUP_CONFIGS, "segment.bytes": str(config.offsets_topic_segment_bytes)},
                )
            )
        else:
            assert name == TRANSACTION_TOPIC, name
            self._maker.begin(
                NewTopic(
                    name,
                    config.transaction_state_log_num_partitions,
                    config.transaction_state_log_replication_factor,
                    {
                        **_TRANSACTION_CONFIGS,
                        "min.insync.replicas": str(config.transaction_state_log_min_isr),
                        "segment.bytes": str(config.transaction_state_log_segment_bytes),
                    },
                )
            )
