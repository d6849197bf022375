"""Options that changed in the store, given to the parts that use them."""

import logging
from collections.abc import Mapping
from ipaddress import ip_address
from typing import Final, Protocol

from odradek.broker.admin.clients import stored_rate
from odradek.broker.admin.configs import ConfigAdmin
from odradek.broker.controller.shell import ControllerShell
from odradek.broker.serving.client_quotas import CLIENT_QUOTAS, ClientQuotas
from odradek.broker.serving.scram_credentials import ScramCredentials
from odradek.broker.settings import TopicSettingsBook
from odradek.config.broker import BrokerConfig, ConfigConflictError, InvalidConfigError
from odradek.config.stored_topic import read_stored
from odradek.coord.layout_config import ConfigEntity
from odradek.net.server import Server
from odradek.quota.precedence import Entity, Part

CONNECTION_RATE: Final = "connection_creation_rate"

log = logging.getLogger(__name__)


class Configured(Protocol):
    """The parts whose options change while they run."""

    config: BrokerConfig
    settings: TopicSettingsBook
    controller: ControllerShell
    client_quotas: ClientQuotas
    scram_credentials: ScramCredentials
    server: Server
    config_admin: ConfigAdmin

    def set_config(self, config: BrokerConfig) -> None:
        """Use other options from now on, in all parts."""


class ConfigChanges:
    """The listener of `DynamicConfig`."""

    def __init__(self, broker: Configured) -> None:
        self._broker = broker

    def topic_config(self, topic: str, overrides: Mapping[str, str]) -> None:
        """Apply a topic's own options; invalid ones are logged and left out."""
        stored = read_stored(overrides)
        for problem in stored.invalid.values():
            self.note(f"topic {topic}: an option that is stored has no effect: {problem}")
        settings = self._broker.settings
        settings.invalid.pop(topic, None)
        if stored.invalid:
            settings.invalid[topic] = stored.invalid
        settings.set_topic(topic, stored.in_effect)
        if overrides.get("unclean.leader.election.enable", "").strip().lower() == "true":
            self._broker.controller.unclean_allowed(topic)

    def broker_config(self, dynamic: Mapping[str, str], dynamic_default: Mapping[str, str]) -> None:
        """Apply the options stored for this broker and for all brokers."""
        broker = self._broker
        try:
            config = broker.config.with_dynamic(
                dynamic=broker.config_admin.passwords.decoded(dynamic),
                dynamic_default=dynamic_default,
            )
        except (InvalidConfigError, ConfigConflictError) as error:
            self.note(f"the broker keeps its options: {error}")
            return
        # Equal values may come from different layers, which DescribeConfigs shows.
        if (config.dynamic, config.dynamic_default, config.values) != (
            broker.config.dynamic,
            broker.config.dynamic_default,
            broker.config.values,
        ):
            broker.set_config(config)

    def client_configs(
        self, configs: Mapping[ConfigEntity, Mapping[str, str]], *, whole: bool
    ) -> None:
        """Apply the quotas and credentials of users, client ids and addresses."""
        self._broker.scram_credentials.set(configs, whole=whole)
        limits = {
            _quota_entity(entity): self._limits(entity, overrides)
            for entity, overrides in configs.items()
            if entity.levels[0][0] != "ips"
        }
        self._broker.server.rates.set_address_limits(
            {
                _address(entity): self._number(entity, overrides, CONNECTION_RATE)
                for entity, overrides in configs.items()
                if entity.levels[0][0] == "ips"
            },
            whole=whole,
        )
        broker, quotas = self._broker, self._broker.client_quotas
        quotas.set_limits(limits, whole=whole)
        # How long requests take is measured only while a quota limits it.
        broker.server.wrap_frames("quotas", quotas.timed if quotas.times_requests else None)

    def _limits(self, entity: ConfigEntity, overrides: Mapping[str, str]) -> dict[str, float]:
        """The quotas among the options of a user, which may have SCRAM credentials as well."""
        found = {option: self._number(entity, overrides, option) for option in CLIENT_QUOTAS}
        return {option: limit for option, limit in found.items() if limit is not None}

    def _number(
        self, entity: ConfigEntity, overrides: Mapping[str, str], option: str
    ) -> float | None:
        """The value of an option; None if it is not set, or (with a log line) not a number."""
        text = overrides.get(option)
        rate = None if text is None else stored_rate(text)
        if text is not None and rate is None:
            self.note(f"{entity.path}: {option}={text} is not a number: ignored")
        return rate

    def note(self, text: str) -> None:
        """Log an option that cannot be used."""
        log.warning("%s", text)


def _address(entity: ConfigEntity) -> str | None:
    """An address as sockets show it; host names are not resolved."""
    ((_, name),) = entity.levels
    try:
        return None if name is None else str(ip_address(name))
    except ValueError:
        return name


def _quota_entity(entity: ConfigEntity) -> Entity:
    parts = {kind: Part.DEFAULT if name is None else name for kind, name in entity.levels}
    return Entity(parts.get("users", Part.ABSENT), parts.get("clients", Part.ABSENT))
