"""The image and the compose file of deploy/docker, executed in an empty Debian: no engine.

A Debian with its own Python stands for the base image. The compose file is read by `docker-compose
config` there, and each service runs in a network namespace of its own.
"""

import json
import os
import pathlib
import subprocess
import sys

import fetch
import pytest
from apache import Daemon
from tests.clients.systems import roots
from tests.clients.systems.image import Container, build, instructions
from tests.clients.systems.namespaces import add_host, add_switch, may_make_namespaces, remove

ROOT = pathlib.Path(__file__).parents[3]
DOCKER = ROOT / "deploy" / "docker"
# The base image has Python's headers, too.
PACKAGES = "ca-certificates,python3-dev,python3-venv,docker-compose"
NETWORK = "198.18.78"  # set aside for tests of networks (RFC 2544)
READ = "import sys, urllib.request; print(urllib.request.urlopen(sys.argv[1], timeout=5).read())"
# Passes connections on, as an engine does for `ports`.
PUBLISH = """
import asyncio, sys
async def copy(reader, writer):
    while data := await reader.read(65536):
        writer.write(data)
        await writer.drain()
    writer.close()
async def serve(reader, writer):
    there_reader, there_writer = await asyncio.open_connection(sys.argv[2], int(sys.argv[3]))
    await asyncio.gather(copy(reader, there_writer), copy(there_reader, writer))
async def main():
    server = await asyncio.start_server(serve, "0.0.0.0", int(sys.argv[1]))
    await server.serve_forever()
asyncio.run(main())
"""

pytestmark = [
    pytest.mark.skipif(os.environ.get("ODRADEK_CLIENTS") != "1", reason="run by `./run clients`"),
    pytest.mark.skipif(
        not roots.may_make_systems() or not may_make_namespaces(),
        reason="needs root, debootstrap and `ip`",
    ),
]


@pytest.fixture(scope="module")
def base():
    """A Debian whose python3 is also called python, as in the base image."""
    root = roots.system("trixie", PACKAGES, "image")
    link = root / "usr/local/bin/python"
    link.unlink(missing_ok=True)
    link.symlink_to("/usr/bin/python3")
    return root


@pytest.fixture(scope="module")
def image(base, tmp_path_factory):
    """The image, of which every instruction was executed."""
    made, executed = build(DOCKER / "Dockerfile", ROOT, base, tmp_path_factory.mktemp("image"))
    assert executed == [f"{word} {rest}" for word, rest in instructions(DOCKER / "Dockerfile")]
    return made


class Network:
    """Hosts on a bridge."""

    def __init__(self):
        self.switch = f"odk-{os.getpid()}-switch"
        self.addresses = {}
        add_switch(self.switch)

    def add(self, name):
        """The namespace of a host with the next address."""
        number = len(self.addresses) + 1
        namespace = f"odk-{os.getpid()}-{name}"
        self.addresses[name] = f"{NETWORK}.{number}"
        add_host(namespace, self.switch, f"port{number}", self.addresses[name])
        return namespace

    def end(self):
        for name in self.addresses:
            remove(f"odk-{os.getpid()}-{name}")
        remove(self.switch)


@pytest.fixture
def network():
    made = Network()
    yield made
    made.end()


def test_a_container_of_the_image_is_healthy_serves_clients_and_stops_cleanly(
    image, network, tmp_path
):
    container = Container(image, tmp_path / "broker", network.add("broker"), host="broker",
                          hosts={"broker": f"{NETWORK}.1"})  # fmt: skip
    try:
        container.becomes_healthy()
        uids = pathlib.Path(f"/proc/{container.pid}/status").read_text().partition("Uid:\t")[2]
        assert uids.split("\t")[0] == "10092"
        written = container.execute(
            "kafka-console-producer", "--bootstrap-server", "broker:9092", "--topic", "t",
            typed="hello\n",
        )  # fmt: skip
        assert written.returncode == 0, written.stderr
        read = container.execute(
            "kafka-console-consumer", "--bootstrap-server", "broker:9092", "--topic", "t",
            "--from-beginning", "--max-messages", "1",
        )  # fmt: skip
        assert read.stdout == "hello\n", read.stderr
        assert "install odradek-fast" not in container.output()
        assert container.stop() == 0, container.output()
    finally:
        container.end()


def test_the_services_of_the_compose_file_are_a_cluster_with_a_page(base, image, network, tmp_path):
    services = composed(base, tmp_path / "compose")["services"]
    assert sorted(services) == ["broker-1", "broker-2", "broker-3", "page", "zookeeper"]
    machine = Machine(image, network, tmp_path)
    for name, service in services.items():
        machine.connect(name, service)
    try:
        for name in sorted(services, key=lambda name: len(services[name].get("depends_on", {}))):
            machine.start(name, services[name])
        machine.containers["page"].becomes_healthy()
        tool = ("--bootstrap-server", "localhost:9093,localhost:9094,localhost:9095")
        machine.run("kafka-topics", *tool, "--create", "--topic", "orders")
        machine.run("kafka-console-producer", *tool, "--topic", "orders", typed="one\ntwo\n")
        read = machine.run(
            "kafka-console-consumer", *tool, "--topic", "orders", "--from-beginning",
            "--max-messages", "2",
        )  # fmt: skip
        assert sorted(read.split()) == ["one", "two"]
        described = machine.run("kafka-topics", *tool, "--describe", "--topic", "orders")
        assert "ReplicationFactor: 3" in described
        page = machine.run("python", "-c", READ, "http://localhost:8000/topics")
        assert "orders" in page
        for name in ("page", "broker-3"):
            assert machine.containers[name].stop() == 0, machine.containers[name].output()
    finally:
        machine.end()


def composed(base, root):
    """The compose file as docker-compose reads it."""
    roots.copied(base, root)
    (root / "source/deploy").mkdir(parents=True)
    subprocess.run(["cp", "-r", DOCKER, root / "source/deploy"], check=True)
    file = "/source/deploy/docker/compose.yml"
    return json.loads(roots.run_in(root, [f"docker-compose -f {file} config --format json"]))


class Machine:
    """The machine on which the services run: a namespace with the ports that they publish."""

    def __init__(self, image, network, home):
        self._image = image
        self._network = network
        self._home = home
        self._space = network.add("machine")
        self._spaces = {}
        self._daemons = []
        self.containers = {}

    def connect(self, name, service):
        """Give a service an address of its own, unless it is in the machine's network."""
        if service.get("network_mode") != "host":
            self._spaces[name] = self._network.add(name)

    def start(self, name, service):
        """Start a service when those that it depends on are as it says."""
        for other, needed in service.get("depends_on", {}).items():
            if needed["condition"] == "service_healthy":
                self.containers[other].becomes_healthy()
        space = self._spaces.get(name, self._space)
        for port in service.get("ports", []):
            self._publish(port["published"], self._network.addresses[name], port["target"])
        if service["image"].startswith("zookeeper:"):
            self._daemons.append(zookeeper(space, self._home))
            return
        self.containers[name] = Container(
            self._image, self._home / name, space, host=service.get("hostname", name),
            environment=service.get("environment"), command=service.get("command") or (),
            health_check=service.get("healthcheck", {}).get("test", ["CMD"])[1:],
            hosts=self._network.addresses,
        )  # fmt: skip

    def _publish(self, published, address, target):
        command = [sys.executable, "-c", PUBLISH, str(published), address, str(target)]
        name = f"publish-{published}"
        self._daemons.append(Daemon(name, self._here(*command), self._home / name))

    def _here(self, *command):
        return ["ip", "netns", "exec", self._space, *command]

    def run(self, program, *arguments, typed=""):
        """What one of our programs prints on this machine."""
        done = subprocess.run(
            self._here(str(pathlib.Path(sys.executable).parent / program), *arguments),
            input=typed, capture_output=True, text=True, check=False, timeout=120,
        )  # fmt: skip
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    def end(self):
        for container in self.containers.values():
            container.end()
        for daemon in self._daemons:
            daemon.process.kill()
            daemon.process.wait()


def zookeeper(space, home):
    """A server as in ZooKeeper's own image: its client port is 2181, on all addresses."""
    file = home / "zoo.cfg"
    file.write_text(
        f"tickTime=500\ndataDir={home / 'data'}\nclientPort=2181\nadmin.enableServer=false\n"
    )
    main = "org.apache.zookeeper.server.ZooKeeperServerMain"
    command = fetch.java("3.9", main, str(file), heap="256M", level="INFO")
    return Daemon("zookeeper", ["ip", "netns", "exec", space, *command], home / "zookeeper")
