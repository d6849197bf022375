"""ZooKeeper servers that can be killed, stopped and started again: one, or an ensemble of three.

Their clock ticks fast, so that sessions of a second are allowed.
"""

import os
import pathlib
import signal
import socket
import time
from collections.abc import Mapping
from typing import Final

import apache
import fetch

_TICK_MS: Final = 200
_START_TIMEOUT_S: Final = 60.0


class Server:
    """One server; `start` starts its process."""

    def __init__(
        self,
        home: pathlib.Path,
        number: int,
        ports: list[tuple[int, int, int]],
        options: Mapping[str, str],
    ) -> None:
        self.home = home
        self.number = number
        self.client_port = ports[number][0]
        self._daemon: apache.Daemon | None = None
        data = home / "data"
        data.mkdir(parents=True)
        (data / "myid").write_text(str(number))
        lines = [
            f"tickTime={_TICK_MS}",
            "initLimit=50",
            "syncLimit=10",
            f"dataDir={data}",
            f"clientPort={self.client_port}",
            f"clientPortAddress={apache.HOST}",
            "maxClientCnxns=0",
            "maxSessionTimeout=60000",
            "admin.enableServer=false",
            "4lw.commands.whitelist=srvr",
            *(f"{key}={value}" for key, value in options.items()),
        ]
        if len(ports) > 1:
            lines += [
                f"server.{other}={apache.HOST}:{peer}:{election}"
                for other, (_, peer, election) in enumerate(ports)
            ]
        (home / "zoo.cfg").write_text("\n".join(lines) + "\n")

    @property
    def address(self) -> str:
        return f"{apache.HOST}:{self.client_port}"

    def start(self) -> None:
        main = "org.apache.zookeeper.server.quorum.QuorumPeerMain"
        command = fetch.java(
            apache.LINE, main, str(self.home / "zoo.cfg"), heap="256M", level="INFO"
        )
        self._daemon = apache.Daemon("zookeeper", command, self.home)

    def kill(self) -> None:
        assert self._daemon is not None
        self._daemon.process.kill()
        self._daemon.process.wait()

    def pause(self) -> None:
        assert self._daemon is not None
        os.kill(self._daemon.pid, signal.SIGSTOP)

    def resume(self) -> None:
        assert self._daemon is not None
        os.kill(self._daemon.pid, signal.SIGCONT)

    def close(self) -> None:
        if self._daemon is not None and self._daemon.process.poll() is None:
            self.resume()
            self.kill()

    def mode(self) -> str | None:
        """standalone, leader, follower; None while it does not serve."""
        assert self._daemon is not None
        self._daemon.must_live()
        try:
            with socket.create_connection((apache.HOST, self.client_port), 5) as connection:
                connection.sendall(b"srvr")
                text = b""
                while chunk := connection.recv(4096):
                    text += chunk
        except OSError:
            return None
        _, found, rest = text.partition(b"Mode: ")
        return rest.split()[0].decode() if found else None

    def wait(self) -> str:
        deadline_s = time.monotonic() + _START_TIMEOUT_S
        while time.monotonic() < deadline_s:
            if mode := self.mode():
                return mode
            time.sleep(0.05)
        raise TimeoutError(f"ZooKeeper {self.number} does not serve")


class Ensemble:
    """The servers of one ensemble."""

    def __init__(self, home: pathlib.Path, size: int, options: Mapping[str, str] = {}) -> None:
        ports: list[tuple[int, int, int]] = []
        taken: set[int] = set()
        while len(ports) < size:
            three = (apache.free_port(), apache.free_port(), apache.free_port())
            if len({*three} - taken) == 3:
                ports.append(three)
                taken |= {*three}
        self.servers = [Server(home / str(n), n, ports, options) for n in range(size)]
        try:
            for server in self.servers:
                server.start()
            for server in self.servers:
                server.wait()
        except BaseException:
            self.close()
            raise

    @property
    def address(self) -> str:
        return ",".join(server.address for server in self.servers)

    def settle(self) -> None:
        """Wait until all serve, and one of them leads."""
        deadline_s = time.monotonic() + _START_TIMEOUT_S
        while time.monotonic() < deadline_s:
            modes = sorted(server.mode() or "" for server in self.servers)
            if modes[-1] == "leader" and set(modes[:-1]) == {"follower"}:
                return
            time.sleep(0.05)
        raise TimeoutError("the ensemble does not agree on a leader")

    def in_mode(self, mode: str) -> Server:
        """The leader, or a follower."""
        return next(server for server in self.servers if server.mode() == mode)

    def serving(self, port: int) -> Server:
        return next(server for server in self.servers if server.client_port == port)

    def close(self) -> None:
        for server in self.servers:
            server.close()
