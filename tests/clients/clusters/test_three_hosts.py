"""Three hosts with addresses of their own, a broker and a ZooKeeper server on each; links are cut.

The hosts are network namespaces on one bridge: a cut link drops packets without an error, also in
one direction only. The test needs the right to create namespaces (root on Linux), and is skipped
without it.
"""

import os
import pathlib
import subprocess
import sys
import time
from collections.abc import Iterator

import fetch
import pytest
import raw
from apache import Daemon
from confluent_kafka.admin import AdminClient, NewTopic
from mixed import Load, until
from tests.clients.systems.namespaces import add_host, add_switch, ip, may_make_namespaces, remove

pytestmark = pytest.mark.jvm

NETWORK = "198.18.77"  # set aside for tests of networks (RFC 2544)
NUMBERS = (1, 2, 3)
ALL = {1, 2, 3}
PORT, ZOOKEEPER_PORT = 9092, 2181
TOPIC, PARTITIONS = "hosts", 3
NO_CARD = "02:00:00:00:00:fe"  # an address that no card has
# A producer with one bootstrap broker that fails after a few seconds.
PROBE = """
import sys
from confluent_kafka import Producer
errors = []
p = Producer({"bootstrap.servers": sys.argv[1], "acks": "all", "message.timeout.ms": 4000,
              "log_level": 0, "socket.timeout.ms": 3000})
reported = lambda error, message: errors.append(error)
p.produce(sys.argv[2], b"lost", partition=int(sys.argv[3]), on_delivery=reported)
p.flush(20)
print(errors[0].name() if errors and errors[0] is not None else "acknowledged")
"""


class Host:
    """One namespace: its card is `eth0`, its address ends in its number."""

    def __init__(self, number: int, switch: str, home: pathlib.Path) -> None:
        self.number = number
        self.address = f"{NETWORK}.{number}"
        self.namespace = f"odk-{os.getpid()}-{number}"
        self.home = home
        self._switch = switch
        self._port = f"port{number}"
        add_host(self.namespace, switch, self._port, self.address)
        self.daemons: dict[str, Daemon] = {}

    def command(self, *command: str) -> list[str]:
        return ["ip", "netns", "exec", self.namespace, *command]

    def unplug(self) -> None:
        ip("-n", self._switch, "link", "set", self._port, "down")

    def plug_in(self) -> None:
        ip("-n", self._switch, "link", "set", self._port, "up")

    def cannot_reach(self, other: "Host") -> None:
        """Drop packets to that host; those from it arrive."""
        ip("-n", self.namespace, "neighbour", "replace", other.address, "lladdr", NO_CARD,
           "nud", "permanent", "dev", "eth0")  # fmt: skip

    def can_reach(self, other: "Host") -> None:
        ip("-n", self.namespace, "neighbour", "del", other.address, "dev", "eth0")

    def start_zookeeper(self) -> None:
        home = self.home / "zookeeper"
        (home / "data").mkdir(parents=True)
        (home / "data" / "myid").write_text(str(self.number))
        servers = "".join(f"server.{n}={NETWORK}.{n}:2888:3888\n" for n in NUMBERS)
        (home / "zoo.cfg").write_text(
            f"tickTime=500\ninitLimit=20\nsyncLimit=6\ndataDir={home / 'data'}\n"
            f"clientPort={ZOOKEEPER_PORT}\nclientPortAddress={self.address}\n"
            f"admin.enableServer=false\n{servers}"
        )
        main = "org.apache.zookeeper.server.quorum.QuorumPeerMain"
        command = fetch.java("3.9", main, str(home / "zoo.cfg"), heap="256M", level="INFO")
        self.daemons["zookeeper"] = Daemon("zookeeper", self.command(*command), home)

    def start_broker(self) -> None:
        home = self.home / "broker"
        home.mkdir(parents=True, exist_ok=True)
        options = {
            "broker.id": self.number,
            "broker.rack": f"rack-{self.number}",
            "listeners": f"PLAINTEXT://0.0.0.0:{PORT}",
            "advertised.listeners": f"PLAINTEXT://{self.address}:{PORT}",
            "log.dirs": home / "data",
            "zookeeper.connect": ",".join(f"{NETWORK}.{n}:{ZOOKEEPER_PORT}" for n in NUMBERS),
            "zookeeper.session.timeout.ms": 4_000,
            "zookeeper.connection.timeout.ms": 30_000,
            "replica.lag.time.max.ms": 4_000,
            "replica.socket.timeout.ms": 3_000,
            "min.insync.replicas": 2,
        }
        file = home / "server.properties"
        file.write_text("".join(f"{key}={value}\n" for key, value in options.items()))
        command = self.command(sys.executable, "-m", "odradek", "server-start", str(file))
        self.daemons["broker"] = Daemon("broker", command, home)

    def try_to_write(self, partition: int) -> str:
        """The result of a producer on this host whose only broker is this host's."""
        arguments = (f"{self.address}:{PORT}", TOPIC, str(partition))
        command = self.command(sys.executable, "-c", PROBE, *arguments)
        done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=True)
        return done.stdout.strip()

    def end(self) -> None:
        for daemon in self.daemons.values():
            daemon.process.kill()
            daemon.process.wait()
        remove(self.namespace)


class Network:
    """The bridge, the hosts on it, and a port of it for this process."""

    def __init__(self, home: pathlib.Path) -> None:
        self.switch = f"odk-{os.getpid()}-switch"
        self.hosts: dict[int, Host] = {}
        try:
            add_switch(self.switch)
            ip("link", "add", "odk-test", "type", "veth", "peer", "name", "test",
               "netns", self.switch)  # fmt: skip
            ip("-n", self.switch, "link", "set", "test", "master", "bridge", "up")
            ip("address", "add", f"{NETWORK}.254/24", "dev", "odk-test")
            ip("link", "set", "odk-test", "up")
            for number in NUMBERS:
                self.hosts[number] = Host(number, self.switch, home / f"host-{number}")
            for host in self.hosts.values():
                host.start_zookeeper()
            for host in self.hosts.values():
                host.start_broker()
            for host in self.hosts.values():
                raw.wait_for_brokers(f"{host.address}:{PORT}", len(NUMBERS), timeout_s=60)
        except BaseException:
            self.end()
            raise
        self.bootstrap = ",".join(f"{host.address}:{PORT}" for host in self.hosts.values())
        self._admin = AdminClient({"bootstrap.servers": self.bootstrap})

    def end(self) -> None:
        for host in self.hosts.values():
            host.end()
        subprocess.run(["ip", "link", "del", "odk-test"], check=False)
        remove(self.switch)

    def seen_by(self, number: int) -> tuple[list[int], list[set[int]]]:
        """Leaders and ISRs in that broker's metadata."""
        admin = AdminClient({"bootstrap.servers": f"{self.hosts[number].address}:{PORT}"})
        found = admin.list_topics(TOPIC, timeout=30).topics[TOPIC].partitions
        order = sorted(found)
        return [found[p].leader for p in order], [set(found[p].isrs) for p in order]

    def wait_for_isr(self, wanted: set[int], *, seen_by: int) -> None:
        until(
            f"every ISR is {wanted}",
            lambda: self.seen_by(seen_by)[1] == [wanted] * PARTITIONS,
        )


@pytest.fixture
def network(tmp_path: pathlib.Path) -> Iterator[Network]:
    if not may_make_namespaces():
        pytest.skip("needs the right to make network namespaces: root on Linux, and `ip`")
    made = Network(tmp_path)
    yield made
    made.end()


def log_of(network: Network, number: int, partition: int) -> bytes:
    folder = network.hosts[number].home / "broker" / "data" / f"{TOPIC}-{partition}"
    return b"".join(file.read_bytes() for file in sorted(folder.glob("*.log")))


def test_cut_links_lose_no_acknowledged_record(network: Network):
    admin = AdminClient({"bootstrap.servers": network.bootstrap})
    admin.create_topics([NewTopic(TOPIC, PARTITIONS, 3)])[TOPIC].result(60)
    network.wait_for_isr(ALL, seen_by=1)
    seen = admin.list_topics(timeout=30).brokers
    assert {n: (b.host, b.port) for n, b in seen.items()} == {
        n: (f"{NETWORK}.{n}", PORT) for n in NUMBERS
    }
    load = Load(network.bootstrap, TOPIC, PARTITIONS)
    try:
        load.continues()
        controller = admin.list_topics(timeout=30).controller_id
        for number in (n for n in NUMBERS if n != controller):
            cut_off(network, load, number)
        cut_off(network, load, controller)
        controller = admin.list_topics(timeout=30).controller_id
        first, second = sorted(ALL - {controller})
        cut_one_way(network, load, first, second, continues=True)
        cut_one_way(network, load, second, first, continues=True)
        # A leader that the controller cannot answer cannot shrink its ISR: as in Apache Kafka its
        # partitions stand still. What counts is that they come back.
        controller = admin.list_topics(timeout=30).controller_id
        cut_one_way(network, load, controller, min(ALL - {controller}), continues=False)
    finally:
        load.stop()
    load.must_be_there()
    network.wait_for_isr(ALL, seen_by=1)
    for partition in range(PARTITIONS):
        logs = [log_of(network, n, partition) for n in NUMBERS]
        assert logs[0]
        assert logs[1:] == [logs[0]] * 2, f"partition {partition}"


def cut_off(network: Network, load: Load, number: int) -> None:
    """A host is isolated: the others continue without it, and it commits nothing by itself."""
    host, rest = network.hosts[number], ALL - {number}
    other = min(rest)
    before, _ = network.seen_by(other)
    host.unplug()
    network.wait_for_isr(rest, seen_by=other)
    load.continues()
    for partition in (p for p, leader in enumerate(before) if leader == number):
        # It was the leader, and is not notified of the new one.
        assert host.try_to_write(partition) != "acknowledged"
    host.plug_in()
    network.wait_for_isr(ALL, seen_by=other)
    until("it has it in its metadata", lambda: network.seen_by(number) == network.seen_by(other))
    load.continues()


def cut_one_way(network: Network, load: Load, number: int, other: int, *, continues: bool) -> None:
    """Packets from one host to another are dropped for a while; others arrive."""
    host, deaf = network.hosts[number], network.hosts[other]
    host.cannot_reach(deaf)
    deadline_s = time.monotonic() + 12
    while time.monotonic() < deadline_s:
        if continues:
            load.continues(20)
        time.sleep(0.1)
    host.can_reach(deaf)
    network.wait_for_isr(ALL, seen_by=number)
    load.continues()


def test_the_hosts_are_the_racks(network: Network):
    """Replicas are spread over them, and brokers register their racks."""
    address = f"{network.hosts[1].address}:{PORT}"
    admin = AdminClient({"bootstrap.servers": address})
    admin.create_topics([NewTopic("spread", 6, 2)])["spread"].result(60)
    partitions = admin.list_topics("spread", timeout=30).topics["spread"].partitions.values()
    assert all(len(set(p.replicas)) == 2 for p in partitions)
    described = admin.describe_cluster(request_timeout=30).result(60)
    assert {node.id: node.rack for node in described.nodes} == {n: f"rack-{n}" for n in NUMBERS}
