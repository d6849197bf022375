"""How many files this process may have open, and how they are divided.

Sockets are files, too. A broker without free file descriptors cannot open a log, so its connections
are limited to what its logs leave.
"""

import logging
import resource
from typing import Final, NamedTuple

from odradek.net.server import ACCEPTED_AT_ONCE

log = logging.getLogger(__name__)
_UNLIMITED: Final = 1 << 20
# For the store, listeners, connections to other brokers, /metrics and directories.
_RESERVED: Final = 32
# A refused connection is closed some turns of the loop after it was accepted.
_TURNS: Final = 4


class FileShares(NamedTuple):
    """The open files for logs and for connections."""

    logs: int
    connections: int


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


def shares(limit: int, *, backlog: int) -> FileShares:
    """Half of the files are for logs, the other half for connections, less a reserve."""
    logs = max(16, min(limit // 2, 50_000))
    refused = _TURNS * min(backlog, ACCEPTED_AT_ONCE)
    return FileShares(logs, max(1, limit - logs - _RESERVED - refused))
