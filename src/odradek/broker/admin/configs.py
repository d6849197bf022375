"""Describing and changing options of topics and brokers, on any broker.

A change is checked against the stored options and written with a notification in one transaction,
unless the options were changed meanwhile; then it is checked again against the newer options. It is
answered when this broker has applied it. A request for a broker's own options goes to that broker.
"""

from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Final, Protocol

from odradek.broker.admin.stored_passwords import StoredPasswords
from odradek.broker.admin.topics import store_errors_answered
from odradek.broker.cluster.metadata_cache import MetadataCache
from odradek.config.broker import BrokerConfig
from odradek.config.describe import (
    DescribedOption,
    describe_broker,
    describe_broker_default,
)
from odradek.config.dynamic import check_fits, is_per_broker, new_listeners, unfit, usable
from odradek.config.stored_topic import describe_stored
from odradek.coord.layout_config import (
    CONFIG_CHANGE_PREFIX,
    CONFIG_CHANGES,
    ConfigEntity,
    broker_entity,
    decode_config,
    encode_config,
    encode_config_change,
    topic_entity,
)
from odradek.coord.store import Create, MultiError, NoNodeError, SetData, Store
from odradek.model.clock import Clock
from odradek.model.errors import ApiError, ErrorCode
from odradek.model.names import topic_name_problem
from odradek.security.tls.stores import TlsError

_ATTEMPTS: Final = 5
_EFFECT_MS_MAX: Final = 5_000
DESCRIBED_MAX: Final = 256

# From the stored options to the new ones.
Change = Callable[[Mapping[str, str]], dict[str, str]]
BrokerChange = Callable[[BrokerConfig], dict[str, str]]


class LoggerLevels(Protocol):
    """The levels of this broker's loggers."""

    def levels(self) -> Mapping[str, str]:
        """The levels by logger, with Kafka's names for levels."""

    def check(self, levels: Mapping[str, str | None]) -> None:
        """Refuse loggers and levels that do not exist.

        Raises:
            ApiError: which one, and why.
        """

    def set(self, logger: str, level: str | None) -> None:
        """Set a logger's level, or (None) let it inherit its parent's."""


class ConfigAdmin:
    """Describes and changes options on one broker. `wait_handled` is `DynamicConfig`'s."""

    def __init__(  # noqa: PLR0913 - what an option may depend on
        self,
        *,
        store: Store,
        metadata: MetadataCache,
        config: Callable[[], BrokerConfig],
        loggers: LoggerLevels,
        clock: Clock,
        wait_handled: Callable[[str, int], Awaitable[bool]],
        why_not_listen: Callable[[str, int], str | None] = lambda _host, _port: None,
        check_tls: Callable[[BrokerConfig], None] = lambda _config: None,
    ) -> None:
        """`why_not_listen`: why an address cannot be listened on here; None if it can. `check_tls`
        raises a TlsError if the listeners cannot use the stores of these options.
        """
        self._check_tls = check_tls
        self.passwords = StoredPasswords(config())
        self._why_not_listen = why_not_listen
        self._store = store
        self._metadata = metadata
        self._config = config
        self.loggers = loggers
        self._clock = clock
        self._wait_handled = wait_handled
        # Most topics have the same options: one description serves all. Of one configuration.
        self._described: dict[object, list[DescribedOption]] = {}
        self._described_for: BrokerConfig | None = None

    @property
    def config(self) -> BrokerConfig:
        """The broker's present options."""
        return self._config()

    # -------------------------------------------------------------------------- describe

    async def describe_topic(
        self, topic: str, names: Sequence[str] | None
    ) -> list[DescribedOption]:
        """A topic's options; an invalid one, which somebody has stored, as it is stored.

        Raises:
            ApiError: there is no such topic.
        """
        problem = topic_name_problem(topic)
        if problem is not None:
            raise ApiError(ErrorCode.INVALID_TOPIC_EXCEPTION, f"Topic name is invalid: {problem}")
        if topic not in self._metadata.topics:
            raise ApiError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
        with store_errors_answered():
            overrides, _ = await self._read(topic_entity(topic))
        return self._once(
            tuple(overrides.items()),
            names,
            lambda: describe_stored(overrides, self.config, names),
        )

    def describe_broker(self, resource: str, names: Sequence[str] | None) -> list[DescribedOption]:
        """The options of this broker, or (no resource) what is set for all brokers.

        Raises:
            ApiError: the request has to go to another broker.
        """
        if is_per_broker(resource, self.config):
            return self._once("own", names, lambda: describe_broker(self.config, names))
        return describe_broker_default(self.config, names)

    def _once(
        self,
        what: object,
        names: Sequence[str] | None,
        describe: Callable[[], list[DescribedOption]],
    ) -> list[DescribedOption]:
        if names is not None:
            return describe()
        if self._described_for is not self.config:
            self._described_for = self.config
            self._described.clear()
        known = self._described.get(what)
        if known is None:
            known = describe()
            if len(self._described) < DESCRIBED_MAX:
                self._described[what] = known
        return known

    # ----------------------------------------------------------------------------- alter

    async def alter_topic(self, topic: str, change: Change, *, validate_only: bool) -> None:
        """Change a topic's options.

        Raises:
            ApiError: there is no such topic, or the options are invalid for it.
        """
        if not topic:
            raise ApiError(ErrorCode.INVALID_REQUEST, "Default topic resources are not allowed.")
        if topic not in self._metadata.topics:
            raise ApiError(
                ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"The topic '{topic}' does not exist."
            )
        await self._alter(topic_entity(topic), change, validate_only=validate_only)

    async def alter_broker(
        self, resource: str, change: BrokerChange, *, validate_only: bool
    ) -> None:
        """Change this broker's options, or (no resource) those for all brokers.

        Raises:
            ApiError: the request has to go to another broker, or the options are invalid.
        """
        own = is_per_broker(resource, self.config)
        entity = broker_entity(self.config.broker_id if own else None)
        with store_errors_answered():
            others = {} if own else await self._set_for_others()

        def changed(stored: Mapping[str, str]) -> dict[str, str]:
            # The stored options, which another broker may have written a moment ago.
            present, _ = usable(self.passwords.decoded(stored), per_broker=own)
            current = self.config.with_dynamic(
                dynamic=present if own else self.config.dynamic,
                dynamic_default=self.config.dynamic_default if own else present,
            )
            altered = change(current)
            check_fits(altered, current, others)
            if own:
                candidate = current.with_dynamic(
                    dynamic=altered, dynamic_default=current.dynamic_default
                )
                self._check_listeners(current, candidate)
                self._check_stores(candidate)
            return self._encrypted(altered, stored)

        await self._alter(entity, changed, validate_only=validate_only)

    def _check_listeners(self, current: BrokerConfig, candidate: BrokerConfig) -> None:
        for point in new_listeners(current, candidate):
            why = self._why_not_listen(point.host, point.port)
            if why is not None:
                raise ApiError(
                    ErrorCode.INVALID_REQUEST,
                    f"listener {point.connection_string} cannot be opened: {why}",
                )

    def _check_stores(self, candidate: BrokerConfig) -> None:
        try:
            self._check_tls(candidate)
        except TlsError as error:
            raise unfit(
                "Validation of dynamic config update of SSLFactory failed: "
                f"org.apache.kafka.common.config.ConfigException: {error}"
            ) from None

    def _encrypted(self, altered: Mapping[str, str], stored: Mapping[str, str]) -> dict[str, str]:
        try:
            return self.passwords.encoded(altered, stored)
        except TlsError as error:
            raise ApiError(ErrorCode.INVALID_REQUEST, str(error)) from None

    async def _alter(self, entity: ConfigEntity, change: Change, *, validate_only: bool) -> None:
        with store_errors_answered():
            for _ in range(_ATTEMPTS):
                stored, version = await self._read(entity)
                data = encode_config(change(stored))
                if validate_only:
                    return
                write = Create(entity.path, data)
                notice = Create(
                    f"{CONFIG_CHANGES}/{CONFIG_CHANGE_PREFIX}",
                    encode_config_change(entity),
                    sequential=True,
                )
                try:
                    _, path = await self._store.multi(
                        [
                            write if version is None else SetData(entity.path, data, version),
                            notice,
                        ]
                    )
                except MultiError:
                    continue  # the node was written meanwhile
                assert isinstance(path, str), path
                await self._until_in_effect(path)
                return
        raise ApiError(
            ErrorCode.UNKNOWN_SERVER_ERROR, f"{entity.path} was written {_ATTEMPTS} times meanwhile"
        )

    async def _until_in_effect(self, notice: str) -> None:
        await self._wait_handled(notice, self._clock.monotonic_ms() + _EFFECT_MS_MAX)

    async def _set_for_others(self) -> dict[str, dict[str, str]]:
        """The own options of each other broker, by its id; a registered one may have none."""
        all_brokers = broker_entity(None).path
        folder, _, default = all_brokers.rpartition("/")
        try:
            names = await self._store.children(folder)
        except NoNodeError:
            names = []
        own = {default, str(self.config.broker_id)}
        names = sorted({*names, *map(str, self._metadata.brokers)} - own)
        paths = [f"{folder}/{name}" for name in names]
        nodes = await self._store.get_many(paths)
        return {
            name: {} if node is None else decode_config(path, node[0])
            for name, path, node in zip(names, paths, nodes, strict=True)
        }

    async def _read(self, entity: ConfigEntity) -> tuple[dict[str, str], int | None]:
        """An entity's options, and the version of its node (None: there is no node)."""
        (node,) = await self._store.get_many([entity.path])
        if node is None:
            return {}, None
        return decode_config(entity.path, node[0]), node[1].version
