"""The levels of this process's loggers, with Kafka's names for levels.

TRACE, which Python does not have, is level 5. Loggers belong to the process: brokers in one process
share their levels. The audit log has Kafka's name; the other names of Kafka's are aliases of ours,
so that a command of Kafka's documentation does what it says.
"""

import logging
from collections.abc import Mapping
from typing import Final

from odradek.broker.controller.journal import STATE_CHANGES
from odradek.broker.serving.acl_authorizer import AUDIT_LOGGER
from odradek.model.errors import ApiError, ErrorCode

ROOT: Final = "root"
_PREFIX: Final = "odradek"
ALIASES: Final[Mapping[str, str]] = {
    "kafka": _PREFIX,
    "kafka.cluster.Partition": "odradek.broker.replication.roles",
    "kafka.controller": "odradek.broker.controller",
    "kafka.controller.ControllerChannelManager": "odradek.broker.controller.channels",
    "kafka.controller.KafkaController": "odradek.broker.controller",
    "kafka.coordinator.group.GroupCoordinator": "odradek.broker.coordinators.group_shell",
    "kafka.coordinator.transaction.TransactionCoordinator": "odradek.broker.coordinators.txn_shell",
    "kafka.coordinator.transaction.TransactionMarkerChannelManager": (
        "odradek.broker.coordinators.txn_markers"
    ),
    "kafka.log.LogCleaner": "odradek.broker.storage.cleaner_shell",
    "kafka.log.LogManager": "odradek.log.logs",
    "kafka.network.RequestChannel$": "odradek.broker.serving.request_loop",
    "kafka.request.logger": "odradek.broker.serving.request_loop",
    "kafka.server.KafkaServer": "odradek.broker.server",
    "kafka.server.ReplicaFetcherThread": "odradek.broker.replication.replica_fetcher",
    "kafka.server.ReplicaManager": "odradek.broker.replication.replica_manager",
    "kafka.zookeeper.ZooKeeperClient": "odradek.coord.zookeeper",
    "state.change.logger": STATE_CHANGES,
}
_TRACE: Final = 5
_LEVELS: Final[Mapping[str, int]] = {
    "FATAL": logging.CRITICAL,
    "ERROR": logging.ERROR,
    "WARN": logging.WARNING,
    "INFO": logging.INFO,
    "DEBUG": logging.DEBUG,
    "TRACE": _TRACE,
}


class ProcessLoggers:
    """Python's loggers of this package, the audit log, Kafka's names for them, and the root."""

    def levels(self) -> Mapping[str, str]:
        """The effective level of each logger."""
        return {name: _word(_logger(name).getEffectiveLevel()) for name in self._names()}

    def check(self, levels: Mapping[str, str | None]) -> None:
        """Refuse levels and loggers that do not exist.

        Raises:
            ApiError: INVALID_CONFIG, or INVALID_REQUEST for the root logger without a level.
        """
        known = self._names()
        for name, level in levels.items():
            if name not in known:
                raise ApiError(ErrorCode.INVALID_CONFIG, f"Logger {name} does not exist!")
            if level is None and name == ROOT:
                raise ApiError(
                    ErrorCode.INVALID_REQUEST,
                    f"Removing the log level of the {ROOT} logger is not allowed",
                )
            if level is not None and level not in _LEVELS:
                raise ApiError(
                    ErrorCode.INVALID_CONFIG,
                    f"Cannot set the log level of {name} to {level} as it is not a supported log "
                    f"level. Valid log levels are {', '.join(sorted(_LEVELS))}",
                )

    def set(self, logger: str, level: str | None) -> None:
        """Set a logger's level, or (None) let it inherit its parent's."""
        _logger(logger).setLevel(logging.NOTSET if level is None else _LEVELS[level])

    def _names(self) -> list[str]:
        ours = sorted(
            name
            for name in logging.root.manager.loggerDict
            if name == _PREFIX or name.startswith(f"{_PREFIX}.")
        )
        return [ROOT, *ours, AUDIT_LOGGER, *ALIASES]


def _logger(name: str) -> logging.Logger:
    return logging.getLogger(None if name == ROOT else ALIASES.get(name, name))


def _word(level: int) -> str:
    """The finest of Kafka's levels that logs no more than this one."""
    return next((word for word, number in _LEVELS.items() if level >= number), "TRACE")
