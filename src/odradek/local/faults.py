"""Faults of the brokers of one directory: the network, the session, the answers, the clock.

The brokers must have been started for it (`odradek up --faults`, `UpOptions.faults`). A broker that
is started again has no faults.

    faults = ClusterFaults(ClusterDirectory(path))
    faults.partition([0], [1, 2])       # broker 0 and the others exchange nothing
    faults.partition([0, "store"], [1, 2])  # ... and these have no coordination store either
    faults.partition([0, "clients"], [1, 2])  # clients reach broker 0 alone
    faults.slow(2, ms=200)              # what broker 2 sends arrives 200 ms later
    faults.fail_next("Produce", "NOT_LEADER_OR_FOLLOWER")
    faults.expire_session(1)
    faults.heal()                       # ends partitions, delays and answers with errors
"""

import json
import pathlib
import secrets
import socket
from collections.abc import Collection, Iterable, Mapping
from types import MappingProxyType
from typing import Any, Final, NamedTuple

from odradek.coord.presence import SocketAddress
from odradek.local import processes
from odradek.local.directory import BrokerRecord, ClusterDirectory, LocalError

STORE: Final = "store"
CLIENTS: Final = "clients"
CLIENT: Final = "client:"  # and a client.id
Member = int | str
_TIMEOUT_S: Final = 30.0


class FaultSocket:
    """A connection to the socket of one broker (`odradek.broker.faults.control`)."""

    def __init__(self, path: pathlib.Path) -> None:
        """Connect.

        Raises:
            LocalError: no broker serves the socket.
        """
        self._path = path
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self._socket.settimeout(_TIMEOUT_S)
        address = SocketAddress(str(path))
        try:
            self._socket.connect(address.text)
        except OSError as error:
            self._socket.close()
            raise LocalError(
                f"no faults can be injected at {path}: {error.strerror or error}; the broker must "
                "run, and must have been started with odradek up --faults"
            ) from None
        finally:
            address.release()
        self._reader = self._socket.makefile("rb")

    def ask(self, request: Mapping[str, object]) -> None:
        """Send a request, and wait until it has taken effect.

        Raises:
            LocalError: it was refused, or the broker ended.
        """
        try:
            self._socket.sendall(json.dumps(request).encode() + b"\n")
            line = self._reader.readline()
        except OSError as error:
            raise LocalError(f"{self._path}: {error}") from None
        if not line:
            raise LocalError(f"{self._path}: the broker closed the connection")
        answer: dict[str, Any] = json.loads(line)
        if "error" in answer:
            raise LocalError(str(answer["error"]))

    def close(self) -> None:
        self._reader.close()
        self._socket.close()


class Cut(NamedTuple):
    """What a broker is cut off from."""

    brokers: tuple[int, ...] = ()
    store: bool = False
    named_clients: Mapping[str, bool] = MappingProxyType({})  # by client id; False: not cut off
    other_clients: bool = False

    def cuts_client(self, client_id: str) -> bool:
        return self.named_clients.get(client_id, self.other_clients)


NOTHING: Final = Cut()


def cuts(groups: Iterable[Iterable[Member]], brokers: Collection[int]) -> dict[int, Cut]:
    """What each broker of a partition is cut off from.

    `groups` are disjoint. The store is named STORE, all clients CLIENTS, and those of one client.id
    CLIENT and the id, which then is in its own group only. What no group has, reaches all.

    Raises:
        LocalError: a member is unknown, is in two groups, or there are fewer than two groups.
    """
    sides = [list(group) for group in groups]
    if len(sides) < 2:
        raise LocalError("a partition needs at least two groups: partition([0], [1, 2])")
    seen: set[Member] = set()
    for member in (member for side in sides for member in side):
        if not _is_member(member, brokers):
            known = ", ".join(map(str, sorted(brokers)))
            raise LocalError(
                f"partition: {member!r} is not a broker ({known}), {STORE!r}, {CLIENTS!r} or "
                f"'{CLIENT}ID'"
            )
        if member in seen:
            raise LocalError(f"partition: {member!r} is in two groups")
        seen.add(member)
    found = {}
    for side in sides:
        others = [m for other in sides if other is not side for m in other]
        cut = Cut(
            tuple(member for member in others if isinstance(member, int)),
            STORE in others,
            {**_clients(side, is_cut=False), **_clients(others, is_cut=True)},
            CLIENTS in others,
        )
        found.update({member: cut for member in side if isinstance(member, int)})
    return found


def _is_member(member: Member, brokers: Collection[int]) -> bool:
    if isinstance(member, str):
        return member in (STORE, CLIENTS) or member.startswith(CLIENT)
    return member in brokers


def _clients(members: Iterable[Member], *, is_cut: bool) -> dict[str, bool]:
    return {
        member.removeprefix(CLIENT): is_cut
        for member in members
        if isinstance(member, str) and member.startswith(CLIENT)
    }


class ClusterFaults:
    """The faults of the brokers of one directory."""

    def __init__(self, directory: ClusterDirectory) -> None:
        self._directory = directory

    def partition(self, *groups: Iterable[Member]) -> None:
        """Cut the groups off from each other; brokers in no group keep all their connections.

        It replaces the partition before.

        Raises:
            LocalError: see `cuts`; or a broker does not run, or not with faults.
        """
        records = self._directory.expect().brokers
        apart = cuts(groups, records)
        for broker_id in self._running(records):
            cut = apart.get(broker_id, NOTHING)
            addresses = [each for other in cut.brokers for each in _addresses(records[other])]
            clients = {"named": dict(cut.named_clients), "others": cut.other_clients}
            request = {"addresses": addresses, "store": cut.store, "clients": clients}
            self._ask(broker_id, {"do": "cut", **request})

    def heal(self) -> None:
        """End partitions, delays and answers with errors of all brokers that run."""
        for broker_id in self._running(self._directory.expect().brokers):
            self._ask(broker_id, {"do": "heal"})
        for ticket in self._directory.faults(0).parent.glob("*.ticket"):
            ticket.unlink(missing_ok=True)

    def slow(self, broker_id: int, ms: int) -> None:
        """Delay everything that a broker sends; 0 ends it."""
        self._ask(broker_id, {"do": "slow", "ms": ms})

    def fail_next(
        self, api: str, error: str, *, times: int = 1, broker_id: int | None = None
    ) -> None:
        """Answer the next requests of clients with an error, at one broker or at any of them."""
        folder = self._directory.faults(0).parent
        tickets = [folder / f"{secrets.token_hex(8)}.ticket" for _ in range(times)]
        for ticket in tickets:
            ticket.touch()
        request = {
            "do": "fail_next", "api": api, "error": error, "tickets": list(map(str, tickets)),
        }  # fmt: skip
        brokers = self._running(self._directory.expect().brokers)
        for each in brokers if broker_id is None else [broker_id]:
            self._ask(each, request)

    def expire_session(self, broker_id: int) -> None:
        """End the session of a broker with the coordination store."""
        self._ask(broker_id, {"do": "expire_session"})

    def set_clock(self, ahead_ms: int, broker_id: int) -> None:
        """Set the wall clock of a broker, which then does what has become due."""
        self._ask(broker_id, {"do": "set_clock", "ahead_ms": ahead_ms})

    def _ask(self, broker_id: int, request: Mapping[str, object]) -> None:
        if broker_id not in self._directory.expect().brokers:
            raise LocalError(f"there is no broker {broker_id} in {self._directory.path}")
        connection = FaultSocket(self._directory.faults(broker_id))
        try:
            connection.ask(request)
        finally:
            connection.close()

    @staticmethod
    def _running(records: Mapping[int, BrokerRecord]) -> list[int]:
        """The brokers whose processes run; a paused one would not answer."""
        return [
            broker_id
            for broker_id, record in sorted(records.items())
            if record.process
            and processes.is_alive(record.process)
            and not processes.is_paused(record.process)
        ]


def _addresses(record: BrokerRecord) -> list[tuple[str, int]]:
    found = []
    for listener in record.listeners:
        host, _, port = listener.partition("://")[2].rpartition(":")
        found.append((host.strip("[]"), int(port)))
    return found
