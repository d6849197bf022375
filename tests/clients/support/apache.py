"""Apache Kafka from its jars, on free loopback ports: 3.9 in ZooKeeper mode, or another line.

For tests that compare Odradek with it and for the benchmark. Every process started here is ended
here, by its own handle; each writes to a log file in its directory, whose end is in the error when
it does not start.
"""

import contextlib
import pathlib
import socket
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from typing import Final

import fetch
import raw

HOST: Final = "127.0.0.1"
LINE: Final = "3.9"
# The heap of Kafka's own start script.
BROKER_HEAP: Final = "1G"
_START_TIMEOUT_S: Final = 120.0
_STOP_TIMEOUT_S: Final = 30.0
_CLUSTER_ID: Final = "MkU3OEVBNTcwNTJENDM2Qk"


class Daemon:
    def __init__(self, name: str, command: list[str], home: pathlib.Path) -> None:
        self.name = name
        self.log = home / f"{name}.log"
        self._command = command
        home.mkdir(parents=True, exist_ok=True)
        self.start()

    def start(self) -> None:
        """Start it, also after it has ended."""
        self.started_s = time.monotonic()
        with self.log.open("ab") as log:
            self.process = subprocess.Popen(
                self._command, cwd=self.log.parent,
                stdin=subprocess.DEVNULL, stdout=log, stderr=log,
            )  # fmt: skip

    @property
    def pid(self) -> int:
        return self.process.pid

    def stop(self) -> None:
        """Stop it as an operator does; kill it if that takes too long."""
        self.process.terminate()
        try:
            self.process.wait(_STOP_TIMEOUT_S)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()

    def must_live(self) -> None:
        """Raise if it has ended, with the end of its log."""
        if self.process.poll() is not None:
            text = self.log.read_text(errors="replace")[-3000:]
            raise RuntimeError(f"{self.name} ended with {self.process.returncode}:\n{text}")


def free_port() -> int:
    """A port on which no process listens, kept until the end of this process.

    A server of Java takes seconds to bind it, and is restarted on it. Meanwhile the system would
    give it to an outgoing connection, so on Linux a socket stays bound to it. SO_REUSEADDR, set
    after the bind, admits a server that sets it as well (Java's and asyncio's do), and no other
    probe.
    """
    with socket.socket() as probe:
        probe.bind((HOST, 0))
        port = int(probe.getsockname()[1])
        if sys.platform == "linux":
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            probe.detach()
    return port


class ZooKeeper(Daemon):
    """One ZooKeeper server with an empty or existing data directory, of the line's version."""

    def __init__(self, home: pathlib.Path, line: str = LINE) -> None:
        self.port = free_port()
        home.mkdir(parents=True, exist_ok=True)
        file = home / "zoo.cfg"
        file.write_text(
            f"tickTime=2000\ndataDir={home / 'data'}\nclientPort={self.port}\n"
            f"clientPortAddress={HOST}\nmaxClientCnxns=0\nadmin.enableServer=false\n"
            "4lw.commands.whitelist=srvr\n"
        )
        main = "org.apache.zookeeper.server.quorum.QuorumPeerMain"
        command = fetch.java(line, main, str(file), heap="512M", level="INFO")
        super().__init__("zookeeper", command, home)
        self._wait()

    @property
    def address(self) -> str:
        return f"{HOST}:{self.port}"

    def _wait(self) -> None:
        deadline_s = time.monotonic() + _START_TIMEOUT_S
        while time.monotonic() < deadline_s:
            self.must_live()
            try:
                with socket.create_connection((HOST, self.port), 5) as connection:
                    connection.sendall(b"srvr")
                    if b"Mode:" in connection.recv(4096):
                        return
            except OSError:
                pass
            time.sleep(0.02)
        raise TimeoutError("ZooKeeper does not come up")


class Broker(Daemon):
    """One Apache Kafka broker; the options of the distribution's own server.properties."""

    def __init__(
        self,
        home: pathlib.Path,
        zookeeper: str,
        *,
        broker_id: int = 0,
        brokers: int = 1,
        properties: Mapping[str, str] = {},
        listeners: Sequence[str] = (),
        port: int | None = None,
        heap: str = BROKER_HEAP,
        line: str = LINE,
    ) -> None:
        self.port = port or free_port()
        options = {
            "broker.id": str(broker_id),
            "listeners": ",".join([f"PLAINTEXT://{HOST}:{self.port}", *listeners]),
            "zookeeper.connect": zookeeper,
            "zookeeper.connection.timeout.ms": "18000",
            **_usual(home, brokers),
            **properties,
        }
        super().__init__(f"broker-{broker_id}", _command(home, line, options, heap), home)

    @property
    def address(self) -> str:
        return f"{HOST}:{self.port}"

    def wait(self) -> float:
        """Wait for its first Metadata response. Returns the seconds since its start."""
        deadline_s = time.monotonic() + _START_TIMEOUT_S
        while time.monotonic() < deadline_s:
            self.must_live()
            try:
                raw.wait_for_metadata(self.address, timeout_s=1.0)
            except TimeoutError:
                continue
            return time.monotonic() - self.started_s
        raise TimeoutError(f"{self.name} does not answer")


class KRaftNode(Broker):
    """One node of Apache Kafka 4: a broker, and the first of them the controller, too."""

    def __init__(
        self,
        home: pathlib.Path,
        node_id: int,
        *,
        controller_port: int,
        brokers: int = 1,
        properties: Mapping[str, str] = {},
        heap: str = BROKER_HEAP,
        line: str = "4",
    ) -> None:
        self.port = free_port()
        listeners, roles = [f"PLAINTEXT://{HOST}:{self.port}"], "broker"
        if node_id == 1:
            listeners.append(f"CONTROLLER://{HOST}:{controller_port}")
            roles = "broker,controller"
        options = {
            "process.roles": roles,
            "node.id": str(node_id),
            "controller.quorum.voters": f"1@{HOST}:{controller_port}",
            "listeners": ",".join(listeners),
            "advertised.listeners": listeners[0],
            "controller.listener.names": "CONTROLLER",
            "listener.security.protocol.map": "CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT",
            "inter.broker.listener.name": "PLAINTEXT",
            **_usual(home, brokers),
            **properties,
        }
        command = _command(home, line, options, heap)
        formatting = ["format", "-t", _CLUSTER_ID, "-c", command[-1]]
        subprocess.run(
            fetch.java(line, "kafka.tools.StorageTool", *formatting), check=True,
            capture_output=True, timeout=_START_TIMEOUT_S,
        )  # fmt: skip
        Daemon.__init__(self, f"broker-{node_id}", command, home)


@contextlib.contextmanager
def running(
    line: str,
    home: pathlib.Path,
    count: int,
    *,
    racks: Sequence[str] = (),
    properties: Mapping[str, str] = {},
    heap: str = "512M",
) -> Iterator[list[Broker]]:
    """Brokers 1 to `count` of a line that serve, with their ZooKeeper, until the end."""
    with contextlib.ExitStack() as stack:
        zookeeper = ""
        if line != "4":
            server = ZooKeeper(home / "zookeeper", line)
            stack.callback(server.stop)
            zookeeper = server.address
        brokers: list[Broker] = []
        controller_port = free_port()
        for number in range(1, count + 1):
            place = home / f"broker-{number}"
            own = {"broker.rack": racks[number - 1]} if racks else {}
            broker = (
                Broker(
                    place, zookeeper, broker_id=number, brokers=count,
                    properties={**properties, **own}, heap=heap, line=line,
                )
                if zookeeper
                else KRaftNode(
                    place, number, controller_port=controller_port, brokers=count,
                    properties={**properties, **own}, heap=heap, line=line,
                )
            )  # fmt: skip
            stack.callback(broker.stop)
            brokers.append(broker)
        for broker in brokers:
            broker.wait()
            raw.wait_for_brokers(broker.address, count, timeout_s=_START_TIMEOUT_S)
        yield brokers


def _usual(home: pathlib.Path, brokers: int) -> dict[str, str]:
    """The options that all lines have in common."""
    return {
        "log.dirs": str(home / "data"),
        "num.network.threads": "3",
        "num.io.threads": "8",
        "socket.send.buffer.bytes": "102400",
        "socket.receive.buffer.bytes": "102400",
        "num.recovery.threads.per.data.dir": "1",
        "offsets.topic.replication.factor": str(min(3, brokers)),
        "transaction.state.log.replication.factor": str(min(3, brokers)),
        "transaction.state.log.min.isr": str(min(2, brokers)),
        "group.initial.rebalance.delay.ms": "0",
    }


def _command(home: pathlib.Path, line: str, options: Mapping[str, str], heap: str) -> list[str]:
    """The command that starts a broker with these options; its last argument is their file."""
    home.mkdir(parents=True, exist_ok=True)
    file = home / "server.properties"
    file.write_text("".join(f"{key}={value}\n" for key, value in options.items()))
    command = fetch.java(line, "kafka.Kafka", str(file), heap=heap, level="INFO")
    command.insert(1, f"-Xms{heap}")
    return command
