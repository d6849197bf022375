"""As much of the protocol as is needed to reach a broker and to create a topic.

For the helpers of tests and benchmarks, which must not depend on a client library's timeouts
or share a bug with the broker they test. Old versions that are not flexible only.
"""

import socket
import struct
import time
from typing import NamedTuple

METADATA, FIND_COORDINATOR, CREATE_TOPICS, DELETE_TOPICS = 3, 10, 19, 20
NOT_CONTROLLER = 41


class Topic(NamedTuple):
    """A topic in a Metadata response."""

    error_code: int
    leaders: tuple[int, ...]  # of partition 0, 1, ...; -1: none


class Metadata(NamedTuple):
    """A broker's view of the cluster."""

    brokers: dict[int, str]  # id -> host:port
    controller: int
    topics: dict[str, Topic]


class Reader:
    """Reads a response from front to back."""

    def __init__(self, data: bytes) -> None:
        self._data = data
        self._at = 0

    def number(self, kind: str) -> int:
        (value,) = struct.unpack_from(">" + kind, self._data, self._at)
        self._at += struct.calcsize(">" + kind)
        return int(value)

    def text(self) -> str:
        length = self.number("h")
        start, self._at = self._at, self._at + max(length, 0)
        return self._data[start : self._at].decode()

    def numbers(self) -> tuple[int, ...]:
        return tuple(self.number("i") for _ in range(self.number("i")))


def text(value: str | None) -> bytes:
    if value is None:
        return struct.pack(">h", -1)
    data = value.encode()
    return struct.pack(">h", len(data)) + data


def frame(api_key: int, version: int, body: bytes) -> bytes:
    """A request with its length before it."""
    request = struct.pack(">hhi", api_key, version, 1) + text("raw") + body
    return struct.pack(">i", len(request)) + request


def connect(address: str, *, timeout_s: float = 30.0) -> socket.socket:
    """A connection to host:port."""
    host, _, port = address.rpartition(":")
    connection = socket.create_connection((host, int(port)), timeout_s)
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return connection


def call(connection: socket.socket, request: bytes) -> Reader:
    """The response to a framed request, without its header."""
    connection.sendall(request)
    (length,) = struct.unpack(">i", receive(connection, 4))
    return Reader(receive(connection, length)[4:])


def receive(connection: socket.socket, size: int) -> bytes:
    """Exactly that many bytes."""
    data = bytearray()
    while len(data) < size:
        part = connection.recv(size - len(data))
        if not part:
            raise ConnectionError("the broker closed the connection")
        data += part
    return bytes(data)


def metadata(address: str, topics: list[str] | None = None, *, timeout_s: float = 30.0) -> Metadata:
    """The metadata of the cluster and these topics, without automatic creation."""
    names = b"".join(map(text, topics or []))
    body = struct.pack(">i", len(topics or [])) + names + b"\0"
    with connect(address, timeout_s=timeout_s) as connection:
        answer = call(connection, frame(METADATA, 4, body))
    answer.number("i")
    brokers = {}
    for _ in range(answer.number("i")):
        broker_id = answer.number("i")
        brokers[broker_id] = f"{answer.text()}:{answer.number('i')}"
        answer.text()
    answer.text()
    controller = answer.number("i")
    found = {}
    for _ in range(answer.number("i")):
        error_code, name, _ = answer.number("h"), answer.text(), answer.number("b")
        leaders = {}
        for _ in range(answer.number("i")):
            answer.number("h")
            partition = answer.number("i")
            leaders[partition] = answer.number("i")
            answer.numbers(), answer.numbers()
        found[name] = Topic(error_code, tuple(leaders[p] for p in sorted(leaders)))
    return Metadata(brokers, controller, found)


def wait_for_metadata(address: str, *, timeout_s: float) -> None:
    """Return when the broker at `address` first answers Metadata.

    Raises:
        TimeoutError: it did not.
    """
    deadline_s = time.monotonic() + timeout_s
    while (left_s := deadline_s - time.monotonic()) > 0:
        try:
            metadata(address, timeout_s=left_s)
        except OSError:
            time.sleep(0.002)
        else:
            return
    raise TimeoutError(f"{address} did not answer Metadata within {timeout_s:g} s")


def wait_for_brokers(address: str, count: int, *, timeout_s: float) -> None:
    """Return when the broker at `address` has `count` brokers and a controller in its metadata.

    Raises:
        TimeoutError: it does not.
    """
    deadline_s = time.monotonic() + timeout_s
    while time.monotonic() < deadline_s:
        try:
            seen = metadata(address)
        except OSError:
            seen = Metadata({}, -1, {})
        if len(seen.brokers) >= count and seen.controller >= 0:
            return
        time.sleep(0.02)
    raise TimeoutError(f"{address} does not see {count} brokers and a controller")


def create_topic(
    address: str, name: str, partitions: int, *, replication: int = 1, timeout_s: float = 60.0
) -> None:
    """Create a topic and wait until all its partitions have a leader.

    Raises:
        RuntimeError: refused.
        TimeoutError: no leaders in time.
    """
    topic = text(name) + struct.pack(">ihii", partitions, replication, 0, 0)
    body = struct.pack(">i", 1) + topic + struct.pack(">i?", int(timeout_s * 1000), False)
    _admin(address, frame(CREATE_TOPICS, 2, body), throttled=True, timeout_s=timeout_s)
    deadline_s = time.monotonic() + timeout_s
    while time.monotonic() < deadline_s:
        seen = metadata(address, [name], timeout_s=timeout_s).topics[name]
        if len(seen.leaders) == partitions and min(seen.leaders) >= 0:
            return
        time.sleep(0.02)
    raise TimeoutError(f"topic {name} has no leaders for its {partitions} partitions")


def delete_topic(address: str, name: str, *, timeout_s: float = 60.0) -> None:
    """Delete a topic.

    Raises:
        RuntimeError: refused.
    """
    body = struct.pack(">i", 1) + text(name) + struct.pack(">i", int(timeout_s * 1000))
    _admin(address, frame(DELETE_TOPICS, 2, body), throttled=True, timeout_s=timeout_s)


def find_coordinator(address: str, key: str, key_type: int, *, timeout_s: float = 60.0) -> int:
    """The id of the coordinator of a group (0) or transactional id (1), when there is one.

    Raises:
        TimeoutError: no coordinator in time.
    """
    request = frame(FIND_COORDINATOR, 1, text(key) + struct.pack(">b", key_type))
    deadline_s = time.monotonic() + timeout_s
    while time.monotonic() < deadline_s:
        with connect(address, timeout_s=timeout_s) as connection:
            answer = call(connection, request)
        answer.number("i")
        error_code, _ = answer.number("h"), answer.text()
        if not error_code:
            return answer.number("i")
        time.sleep(0.02)
    raise TimeoutError(f"{key} has no coordinator")


def _admin(address: str, request: bytes, *, throttled: bool, timeout_s: float) -> None:
    # Only the controller may answer; a new one may need a moment.
    deadline_s = time.monotonic() + timeout_s
    while True:
        seen = metadata(address, timeout_s=timeout_s)
        controller = seen.brokers.get(seen.controller, address)
        with connect(controller, timeout_s=timeout_s) as connection:
            answer = call(connection, request)
        if throttled:
            answer.number("i")
        errors = {answer.text(): answer.number("h") for _ in range(answer.number("i"))}
        if NOT_CONTROLLER not in errors.values() or time.monotonic() > deadline_s:
            break
        time.sleep(0.02)
    for name, error_code in errors.items():
        if error_code:
            raise RuntimeError(f"topic {name}: the broker answers error {error_code}")
