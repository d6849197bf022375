"""Topics that are created because a request named them, each once.

    TopicMaker       any name, if `auto.create.topics.enable` is set (Metadata)
    InternalTopics   `__consumer_offsets` and `__transaction_state`, with their own options
                     (FindCoordinator)

The controller creates topics; another broker sends it CreateTopics (as in KIP-590, but without the
envelope).

The client is answered at once and retries; failures are logged, because no request waits for the
outcome. A request may name a hundred thousand topics: the creation of some begins, that of the
others when they are named again.
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

MADE_AT_ONCE: Final = 1_000
# The controller's answer to a request that does not wait for the topic.
_BEGUN: Final = ErrorCode.REQUEST_TIMED_OUT

log = logging.getLogger(__name__)


class NewTopic(NamedTuple):
    """A topic to create; -1 stands for the broker's default."""

    name: str
    partitions: int = -1
    replication_factor: int = -1
    configs: Mapping[str, str] = {}


class Create(Protocol):
    """Creates one topic (`TopicAdmin.create_one`)."""

    def __call__(
        self, name: str, partitions: int, replication_factor: int, configs: Mapping[str, str]
    ) -> Awaitable[None]:
        """Create it, without waiting until the metadata has it."""


class Controller(Protocol):
    """The controller on this broker (`TopicAdmin`)."""

    @property
    def is_controller(self) -> bool:
        """Whether this broker is the active controller."""

    @property
    def create_one(self) -> Create:
        """The function that creates a topic."""


AskToCreate = Callable[
    [CreateTopicsRequest, type[CreateTopicsResponse]], Awaitable[CreateTopicsResponse]
]


class ByController:
    """Creates topics by the controller, which may be on this broker."""

    def __init__(self, here: Controller, ask: AskToCreate) -> None:
        """`ask` sends a request to the controller (`ControllerLink.ask`)."""
        self._here = here
        self._ask = ask

    async def __call__(
        self, name: str, partitions: int, replication_factor: int, configs: Mapping[str, str]
    ) -> None:
        """Create a topic.

        Raises:
            ApiError: it is invalid, exists already, or the controller cannot be reached.
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
            request = CreateTopicsRequest(topics=[topic], timeout_ms=0)
            answer = await self._ask(request, CreateTopicsResponse)
        except OSError as error:
            raise ApiError(ErrorCode.NOT_CONTROLLER, str(error)) from error
        for made in answer.topics:
            if made.error_code not in {ErrorCode.NONE, _BEGUN}:
                raise ApiError(ErrorCode(made.error_code), made.error_message)


class TopicMaker:
    """Creates topics in the background; a name is created once at a time."""

    def __init__(self, create: Create, tasks: Tasks) -> None:
        self._create = create
        self._tasks = tasks
        self._being_made: set[str] = set()

    def make(self, names: Iterable[str]) -> None:
        """Begin to create topics with the broker's defaults."""
        for name in names:
            self.begin(NewTopic(name))

    def begin(self, topic: NewTopic) -> None:
        """Begin to create a topic, unless too many are being created."""
        if topic.name not in self._being_made and len(self._being_made) < MADE_AT_ONCE:
            self._being_made.add(topic.name)
            self._tasks.start(self._make(topic), f"make topic {topic.name}")

    async def _make(self, topic: NewTopic) -> None:
        try:
            await self._create(*topic)
        except ApiError as error:
            if error.code is not ErrorCode.TOPIC_ALREADY_EXISTS:
                log.warning("topic %s could not be created automatically: %s", topic.name, error)
        finally:
            self._being_made.discard(topic.name)


_GROUP_CONFIGS: Final = {"cleanup.policy": "compact", "compression.type": "producer"}
_TRANSACTION_CONFIGS: Final = {
    "cleanup.policy": "compact",
    "compression.type": "uncompressed",
    "unclean.leader.election.enable": "false",
}


class InternalTopics:
    """Creates `__consumer_offsets` and `__transaction_state` as Kafka does."""

    def __init__(self, maker: TopicMaker, config: Callable[[], BrokerConfig]) -> None:
        self._maker = maker
        self._config = config

    def make(self, name: str) -> None:
        """Begin to create one of the two."""
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
