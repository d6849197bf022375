"""How many files this process may have open, and how they are divided.

Sockets are files, too. A broker without free file descriptors cannot open a log, so everything that
opens some has a share, and what depends on clients is limited to its share: connections, and those
of the HTTP server. The shares of the rest are what it takes at most:

    logs          closed when they were not used lately
    connections   of clients
    refused       connections that are closed some turns of the loop after they were accepted
    http          of /metrics, with its listener and those that it refuses
    brokers       connections to other brokers: fetchers, the controller's channels, coordinators
    disk          files and directories that threads open for one flush, one small file
    the rest      the store, listeners, locks of directories, cleaners, the process's own
"""

import logging
import resource
from functools import partial
from itertools import count
from typing import Final, NamedTuple

from odradek.model.errors import StartupError
from odradek.net.server import ACCEPTED_AT_ONCE

log = logging.getLogger(__name__)
_UNLIMITED: Final = 1 << 20
_HTTP_PEERS_MAX: Final = 32
_TURNS: Final = 4  # of the loop until a refused connection is closed
_DISK: Final = 16
_REST: Final = 40
_CLEANER: Final = 4  # the pipes of its process, and its end's
_DIRECTORY: Final = 2  # its lock, and a flush of it
_LEAST: Final = 16  # of logs, and of connections: a segment and its indexes, the other brokers


class FileShares(NamedTuple):
    """The open files for logs and for clients, and how many are accepted before some are refused.

    `at_once` is of each listener, in one turn of the loop.
    """

    logs: int
    connections: int
    at_once: int
    http: int
    http_at_once: int


def raise_limit() -> int:
    """Raise the soft limit of open files to the hard one. Returns it."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft != hard:
        try:
            resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
        except (OSError, ValueError) as error:
            log.warning("the limit of open files stays at %d: %s", soft, error)
            hard = soft
        else:
            log.info("the limit of open files is raised from %d to %d, the hard limit", soft, hard)
    return _UNLIMITED if hard == resource.RLIM_INFINITY else hard


def shares(
    limit: int, *, backlog: int, listeners: int = 1, directories: int = 1, cleaners: int = 1
) -> FileShares:
    """Half of what the others leave is for logs, at most 50,000, and the rest for connections.

    `directories` are those of log.dirs, `cleaners` the processes that clean logs.

    Raises:
        StartupError: the others leave too few.
    """
    divide = partial(
        _divide, backlog=backlog, listeners=listeners, directories=directories, cleaners=cleaners
    )
    found = divide(limit)
    if found is None:
        needed = next(more for more in count(limit) if divide(more) is not None)
        raise StartupError(
            f"{limit} open files are allowed, and this broker needs {needed}: raise the limit "
            "(ulimit -n, LimitNOFILE=), or set fewer listeners, log.dirs or log.cleaner.threads"
        )
    return found


def _divide(
    limit: int, *, backlog: int, listeners: int, directories: int, cleaners: int
) -> FileShares | None:
    """The shares of a limit; None if it is too low."""
    at_once = max(1, min(backlog, ACCEPTED_AT_ONCE, limit // (32 * listeners)))
    http = max(2, min(_HTTP_PEERS_MAX, limit // 32))
    http_at_once = max(1, http // 8)
    others = _REST + _DISK + directories * _DIRECTORY + cleaners * _CLEANER
    others += listeners * (1 + _TURNS * at_once) + 1 + http + _TURNS * http_at_once
    others += max(8, limit // 32)  # other brokers
    left = limit - others
    if left < 2 * _LEAST:
        return None
    logs = min(left // 2, 50_000)
    return FileShares(logs, left - logs, at_once, http, http_at_once)
