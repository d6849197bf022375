"""The parts of a broker that reports and gauges read."""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Protocol

from odradek.broker.cluster.lifecycle import Lifecycle
from odradek.broker.cluster.store_age import StoreComparison
from odradek.broker.controller.journal import DecisionJournal
from odradek.broker.controller.shell import ControllerShell
from odradek.broker.coordinators.group_shell import GroupShell
from odradek.broker.incidents import Incidents
from odradek.broker.replication.replica_fetchers import ReplicaFetchers
from odradek.broker.replication.replica_manager import ReplicaManager
from odradek.broker.settings import TopicSettingsBook
from odradek.broker.storage.cleaner_shell import LogCleaner
from odradek.config.broker import BrokerConfig
from odradek.log.logs import Logs
from odradek.model.clock import MonotonicMs
from odradek.net.server import Server

if TYPE_CHECKING:
    from odradek.broker.http import Health


class ReportedParts(Protocol):
    """The parts of a broker that its reports read."""

    config: BrokerConfig
    controller: ControllerShell
    journal: DecisionJournal
    incidents: Incidents
    server: Server
    cleaner: LogCleaner
    groups: GroupShell
    settings: TopicSettingsBook
    replicas: ReplicaManager
    fetchers: ReplicaFetchers
    logs: Logs
    lifecycle: Lifecycle
    store_comparison: StoreComparison | None  # once the logs are loaded

    def last_fetches(self) -> Mapping[int, MonotonicMs]:
        """When each follower that fetches from this broker sent its last fetch."""

    def health(self) -> "Health":
        """State, version and listeners."""
