"""Whether a broker with these options could start: checked before a process is, and before they
are stored.
"""

import errno
import os
import random
import socket
import time
from collections.abc import Mapping
from contextlib import suppress
from typing import Final

from odradek.config.broker import BrokerConfig, ConfigConflictError, InvalidConfigError
from odradek.config.providers import resolve
from odradek.local.directory import LocalError
from odradek.local.processes import PROC
from odradek.model.printable import printable
from odradek.net.config_sources import HostSources

# Below the range from which the system takes ports for outgoing connections. In that range a
# client that keeps trying to connect to a stopped broker can end up connected to itself, and the
# broker then finds its port in use.
_PORTS: Final = range(20_000, 32_000)
_EVERY_INTERFACE: Final = ("", "0.0.0.0", "::")
_LISTENS: Final = "0A"  # TCP_LISTEN in /proc/net/tcp
_COMMAND_CHARS_MAX: Final = 100
_TRIES: Final = 40
_BETWEEN_TRIES_S: Final = 0.05


def check_startable(brokers: Mapping[int, Mapping[str, str]]) -> None:
    """Refuse wrong values, and ports at which a process listens already.

    Raises:
        LocalError: the broker, and the option with its value and the rule; or the port, and the
            process that has it, where the system shows it.
    """
    for broker_id, options in brokers.items():
        try:
            resolved = resolve(options, HostSources())
            config = BrokerConfig(resolved, host_name=socket.getfqdn())
        except (InvalidConfigError, ConfigConflictError) as error:
            raise LocalError(f"broker {broker_id}: {error}") from None
        points = [(point.host, point.port) for point in config.listeners]
        for host, port in [*points, (config.odradek_http_host, config.odradek_http_port)]:
            if port > 0:
                _check_port(broker_id, host, port)


def _check_port(broker_id: int, host: str, port: int) -> None:
    where = "::" if host == "::" else "0.0.0.0" if host in _EVERY_INTERFACE else host
    # The sockets of a broker that was just killed are closed a moment after its end is seen.
    for _ in range(_TRIES):
        if is_free(where, port):
            return
        time.sleep(_BETWEEN_TRIES_S)
    if not is_free(where, port):
        raise LocalError(
            f"broker {broker_id} cannot listen at port {port} of {host or 'every interface'}: "
            f"{holder_of(port) or 'a process that this user cannot see'} listens there; end it, "
            "or choose other ports with --port and --http-port"
        )


def free_ports(host: str, count: int) -> list[int]:
    """Ports on which no process listens at this moment, all different.

    Raises:
        LocalError: the host is not one of this machine's, or there are too few.
    """
    found: list[int] = []
    for port in random.sample(_PORTS, k=len(_PORTS)):
        if len(found) == count:
            break
        if is_free(host, port):
            found.append(port)
    if len(found) < count:
        raise LocalError(f"fewer than {count} ports from {_PORTS[0]} to {_PORTS[-1]} are free")
    return found


def is_free(host: str, port: int) -> bool:
    """Whether no process listens there at this moment.

    Raises:
        LocalError: the host is not one of this machine's.
    """
    try:
        family, kind, _, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
    except socket.gaierror as error:
        raise LocalError(f"--host {host}: {error.strerror}") from None
    with socket.socket(family, kind) as probe:
        # As the broker does: connections of an ended process that still close do not count.
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(address)
        except OSError as error:
            if error.errno == errno.EADDRNOTAVAIL:
                raise LocalError(f"--host {host}: is not an address of this machine") from None
            if error.errno == errno.EACCES:
                raise LocalError(f"port {port}: this user may not listen there") from None
            return False
    return True


def holder_of(port: int) -> str | None:
    """The process that listens at a port, with its command; None if the system does not show it."""
    sockets = {f"socket:[{inode}]" for inode in _listening(port)}
    for folder in PROC.glob("[0-9]*") if sockets else ():
        with suppress(OSError):
            for descriptor in (folder / "fd").iterdir():
                with suppress(OSError):
                    if os.readlink(descriptor) in sockets:
                        words = (folder / "cmdline").read_bytes().decode(errors="replace")
                        command = printable(" ".join(words.split("\0")).strip())
                        return f"pid {folder.name} ({command[:_COMMAND_CHARS_MAX]})"
    return None


def _listening(port: int) -> set[str]:
    """The inodes of the sockets that listen at this port, from /proc/net."""
    found = set()
    for name in ("tcp", "tcp6"):
        with suppress(OSError):
            for line in (PROC / "net" / name).read_text().splitlines()[1:]:
                fields = line.split()
                if fields[3] == _LISTENS and int(fields[1].rpartition(":")[2], 16) == port:
                    found.add(fields[9])
    return found
