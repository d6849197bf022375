"""Topics that somebody asked about and that are made on demand, each once.

    TopicMaker       any name, where `auto.create.topics.enable` says so (Metadata)
    InternalTopics   Kafka's own two, with their own options (FindCoordinator)

Topics are made by the controller; a broker that is none asks it (KIP-590's way without the
envelope).

Who asked is answered at once and asks again; what goes wrong is logged, for there is nobody else
to be told. So a request may name a hundred thousand topics: some are begun, the others when they
are asked for again.
"""

import logging
from collections.abc import Awaitable, Callable, Iterable, Mapping
from typing import Final, NamedTuple, Protocol

from odradek.broker.serving.tasks import Tasks
from odradek.config.broker import BrokerConfig
from odradek.model.errors import ApiError, ErrorCode
from odradek.model.names import GROUP_TOPIC, TRANSACTION_TOPIC
from odradek.wire.messages.create_topics import (
    CreatableTopic,
    CreatableTopicConfig,
    CreateTopicsRequest,
    CreateTopicsResponse,
)
from odradek.wire.schema import Message

MADE_AT_ONCE: Final = 1_000
# What the controller says that was not to wait until the topic shows.
_BEGUN: Final = ErrorCode.REQUEST_TIMED_OUT

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


class Controller(Protocol):
    """The controller on this broker (`TopicAdmin`)."""

    @property
    def is_controller(self) -> bool:
        """Whether it reigns."""

    @property
    def create_one(self) -> Create:
        """How it makes a topic."""


class ByController:
    """Makes a topic where topics are made: here, if this is the controller's broker, or there."""

    def __init__(self, here: Controller, ask: Callable[[Message], Awaitable[Message]]) -> None:
        """`ask` sends to the controller (`ControllerLink.ask`)."""
        self._here = here
        self._ask = ask

    async def __call__(
        self, name: str, partitions: int, replication_factor: int, configs: Mapping[str, str]
    ) -> None:
        """Make it.

        Raises:
            ApiError: it cannot be made, is there already, or nobody can be asked.
        """
        if self._here.is_controller:
            await self._here.create_one(name, partitions, replication_factor, configs)
            return
        topic = CreatableTopic(
            name=name,
            num_partitions=partitions,
            replication_factor=replication_factor,
            configs=[CreatableTopicConfig(name=key, value=value) for key, value in configs.items()],
        )
        try:
            answer = await self._ask(CreateTopicsRequest(topics=[topic], timeout_ms=0))
        except OSError as error:
            raise ApiError(ErrorCode.NOT_CONTROLLER, str(error)) from error
        assert isinstance(answer, CreateTopicsResponse)
        for made in answer.topics:
            if made.error_code not in {ErrorCode.NONE, _BEGUN}:
                raise ApiError(ErrorCode(made.error_code), made.error_message)


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
