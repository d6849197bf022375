"""Brokers that lose a real ZooKeeper, explained by `odradek doctor` and `odradek why`.

docs/troubleshooting.md shows the output. Each broker reaches ZooKeeper through a relay of its own,
which is cut, or goes silent.
"""

import contextlib
import json
import pathlib
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator

import pytest
import raw
from apache import HOST
from ensemble import Ensemble
from mixed import OurBroker, until
from tests.troubleshooting import CUT_OFF, SILENT, check

pytestmark = pytest.mark.jvm


class Relay:
    """Passes connections on to a server, until it is cut or holds back all that comes."""

    def __init__(self, address: str) -> None:
        host, port = address.rsplit(":", 1)
        self._server = host, int(port)
        self._flows = threading.Event()
        self._flows.set()
        self._is_cut = False
        self._open: list[socket.socket] = []
        self._listening = socket.create_server((HOST, 0))
        self.address = f"{HOST}:{self._listening.getsockname()[1]}"
        threading.Thread(target=self._accept, daemon=True).start()

    def _accept(self) -> None:
        while True:
            try:
                client, _ = self._listening.accept()
            except OSError:
                return
            if self._is_cut:
                client.close()
                continue
            server = socket.create_connection(self._server)
            self._open += [client, server]
            for source, target in ((client, server), (server, client)):
                threading.Thread(target=self._pass, args=(source, target), daemon=True).start()

    def _pass(self, source: socket.socket, target: socket.socket) -> None:
        try:
            while data := source.recv(65_536):
                self._flows.wait()
                target.sendall(data)
        except OSError:
            pass
        finally:
            for each in (source, target):
                each.close()

    def hold(self) -> None:
        """Accept connections, and pass nothing on."""
        self._flows.clear()

    def cut(self) -> None:
        """Close all connections, and each that comes."""
        self._is_cut = True
        for each in self._open:
            end(each)
        self._open.clear()

    def heal(self) -> None:
        self._is_cut = False
        self._flows.set()

    def close(self) -> None:
        self.heal()
        self._listening.close()
        self.cut()


def end(connection: socket.socket) -> None:
    """Wake the thread that reads, which a close alone does not."""
    with contextlib.suppress(OSError):
        connection.shutdown(socket.SHUT_RDWR)


class Brokers:
    """Brokers 0 and 1, and how `doctor` and `why` are asked."""

    def __init__(self, home: pathlib.Path, zookeeper: str) -> None:
        self.relays = [Relay(zookeeper) for _ in range(2)]
        options = {
            "zookeeper.session.timeout.ms": "4000",
            "offsets.topic.num.partitions": "1",
        }
        self.brokers = [
            OurBroker(home / f"broker-{n}", relay.address, n, options)
            for n, relay in enumerate(self.relays)
        ]

    def start(self) -> None:
        for broker in self.brokers:
            broker.start()
        self.wait_until_registered()

    def wait_until_registered(self) -> None:
        raw.wait_for_brokers(self.brokers[0].address, 2, timeout_s=60)

    def finding(self, subject: str, text: str) -> str:
        """The finding on the store, as the doctor prints it."""

        def look() -> str | None:
            for each in json.loads(self.asked("doctor", "--json"))["findings"]:
                about = each["kind"], each["subject"].partition(" at ")[0]
                if about == ("store", subject) and text in each["why"]:
                    return (
                        f"{each['severity']}: store: {each['subject']}\n"
                        f"    why: {each['why']}\n    fix: {each['fix']}"
                    )
            return None

        return self.shown(until(text, look))

    def why_broker(self, broker: int) -> str:
        return self.shown(self.asked("why", "broker", str(broker)).splitlines()[0])

    def asked(self, *arguments: str) -> str:
        """What a command prints; the doctor's exit code is 1 then."""
        servers = ",".join(broker.address for broker in self.brokers)
        command = [sys.executable, "-m", "odradek", *arguments, "--bootstrap-server", servers]
        return subprocess.run(command, capture_output=True, text=True, check=False).stdout

    def shown(self, text: str) -> str:
        for relay in self.relays:
            text = text.replace(relay.address, "localhost:2181")
        return text

    def close(self) -> None:
        for broker in self.brokers:
            broker.kill()
        for relay in self.relays:
            relay.close()


@pytest.fixture(scope="module")
def two(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Brokers]:
    home = tmp_path_factory.mktemp("troubles")
    zookeeper = Ensemble(home / "zookeeper", 1)
    brokers = Brokers(home, zookeeper.address)
    try:
        brokers.start()
        yield brokers
    finally:
        brokers.close()
        zookeeper.close()


def test_a_broker_that_is_cut_off_serves_and_is_not_to_be_started(two, tmp_path):
    two.relays[1].cut()
    try:
        found = two.finding("broker 1", "it is not registered any more")
        assert raw.metadata(two.brokers[1].address).brokers  # it serves
        check(CUT_OFF, [found, two.why_broker(1)], tmp_path)
    finally:
        two.relays[1].heal()
    two.wait_until_registered()


def test_a_silent_zookeeper_is_one_finding_and_the_brokers_serve(two, tmp_path):
    for relay in two.relays:
        relay.hold()
    try:
        found = two.finding("ZooKeeper", "it answers no broker")
        assert all(raw.metadata(broker.address).brokers for broker in two.brokers)
        check(SILENT, [found], tmp_path)
    finally:
        for relay in two.relays:
            relay.heal()
    two.wait_until_registered()
