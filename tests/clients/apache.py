"""Apache Kafka 3.9 in ZooKeeper mode, out of the jars, on free loopback ports.

For tests that put ours beside it and for the benchmark against it. Every process started
here is ended here, by its own handle; each writes into a log file in its directory, whose
end is told when it does not come up.
"""

import pathlib
import socket
import subprocess
import time
from collections.abc import Mapping, Sequence
from typing import Final

import fetch
import raw

HOST: Final = "127.0.0.1"
LINE: Final = "3.9"
# What Kafka's own start script gives a broker.
BROKER_HEAP: Final = "1G"
_START_TIMEOUT_S: Final = 60.0
_STOP_TIMEOUT_S: Final = 30.0


class Daemon:
    """One Java process."""

    def __init__(self, name: str, command: list[str], home: pathlib.Path) -> None:
        self.name = name
        self.log = home / f"{name}.log"
        home.mkdir(parents=True, exist_ok=True)
        self.started_s = time.monotonic()
        with self.log.open("ab") as log:
            self.process = subprocess.Popen(
                command, cwd=home, stdin=subprocess.DEVNULL, stdout=log, stderr=log
            )

    @property
    def pid(self) -> int:
        return self.process.pid

    def stop(self) -> None:
        """End it as its operator would; kill it if that takes too long."""
        self.process.terminate()
        try:
            self.process.wait(_STOP_TIMEOUT_S)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()

    def must_live(self) -> None:
        """Raise if it has gone, with what it said last."""
        if self.process.poll() is not None:
            said = self.log.read_text(errors="replace")[-3000:]
            raise RuntimeError(f"{self.name} ended with {self.process.returncode}:\n{said}")


def free_port() -> int:
    """A port on which nobody listens at this moment."""
    with socket.socket() as probe:
        probe.bind((HOST, 0))
        return int(probe.getsockname()[1])


class ZooKeeper(Daemon):
    """One ZooKeeper server with an empty or existing data directory."""

    def __init__(self, home: pathlib.Path) -> None:
        self.port = free_port()
        home.mkdir(parents=True, exist_ok=True)
        file = home / "zoo.cfg"
        file.write_text(
            f"tickTime=2000\ndataDir={home / 'data'}\nclientPort={self.port}\n"
            f"clientPortAddress={HOST}\nmaxClientCnxns=0\nadmin.enableServer=false\n"
            "4lw.commands.whitelist=srvr\n"
        )
        main = "org.apache.zookeeper.server.quorum.QuorumPeerMain"
        command = fetch.java(LINE, main, str(file), heap="512M", level="INFO")
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
    ) -> None:
        self.port = port or free_port()
        options = {
            "broker.id": str(broker_id),
            "listeners": ",".join([f"PLAINTEXT://{HOST}:{self.port}", *listeners]),
            "log.dirs": str(home / "data"),
            "zookeeper.connect": zookeeper,
            "zookeeper.connection.timeout.ms": "18000",
            "num.network.threads": "3",
            "num.io.threads": "8",
            "socket.send.buffer.bytes": "102400",
            "socket.receive.buffer.bytes": "102400",
            "num.recovery.threads.per.data.dir": "1",
            "offsets.topic.replication.factor": str(min(3, brokers)),
            "transaction.state.log.replication.factor": str(min(3, brokers)),
            "transaction.state.log.min.isr": str(min(2, brokers)),
            "group.initial.rebalance.delay.ms": "0",
            **properties,
        }
        home.mkdir(parents=True, exist_ok=True)
        file = home / "server.properties"
        file.write_text("".join(f"{key}={value}\n" for key, value in options.items()))
        command = fetch.java(LINE, "kafka.Kafka", str(file), heap=heap, level="INFO")
        command.insert(1, f"-Xms{heap}")
        super().__init__(f"broker-{broker_id}", command, home)

    @property
    def address(self) -> str:
        return f"{HOST}:{self.port}"

    def wait(self) -> float:
        """Return when it first answers Metadata: the seconds from its start until then."""
        deadline_s = time.monotonic() + _START_TIMEOUT_S
        while time.monotonic() < deadline_s:
            self.must_live()
            try:
                raw.wait_for_metadata(self.address, timeout_s=1.0)
            except TimeoutError:
                continue
            return time.monotonic() - self.started_s
        raise TimeoutError(f"{self.name} does not answer")
