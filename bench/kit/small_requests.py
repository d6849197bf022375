"""Many small produce requests: one record each, several connections, DEPTH requests in flight.

One process, one epoll, frames encoded beforehand: about 4 us of Python for each request, so
that one broker is saturated long before this process. It reports its own processor share all the
same; above 0.8 its figures measure itself rather than the broker.

    python -m kit.small_requests BOOTSTRAP TOPIC REPLICATION CONNECTIONS DEPTH SECONDS [SECURITY]

With more than one replica it uses acks=all. SECURITY is for TLS and SCRAM (`kit.secured`); the
topic then exists, with six partitions on the broker of BOOTSTRAP.
"""

import json
import resource
import select
import socket
import ssl
import struct
import sys
import time
from array import array
from collections import deque
from collections.abc import Callable

import crc32c

from kit import raw

# The version that the Java client of 3.9 uses.
PRODUCE, VERSION, ACKS_LEADER, ACKS_ALL = 0, 11, 1, -1
PARTITIONS = 6
RECORD_BYTES = 100
WARM_UP_S = 1.0
_NOT_YET = (3, 6)  # UNKNOWN_TOPIC_OR_PARTITION, NOT_LEADER_OR_FOLLOWER


def batch(value: bytes) -> bytes:
    """A record batch of one record."""
    record = b"\0\0\0\x01" + _varint(len(value)) + value + b"\0"
    record = _varint(len(record)) + record
    now_ms = int(time.time() * 1000)
    after_crc = struct.pack(">hiqqqhii", 0, 0, now_ms, now_ms, -1, -1, -1, 1) + record
    head = struct.pack(">ibI", -1, 2, crc32c.crc32c(after_crc))
    return struct.pack(">qi", 0, len(head) + len(after_crc)) + head + after_crc


def _varint(value: int) -> bytes:
    value *= 2  # zigzag encoding of a number that is not negative
    out = bytearray()
    while value > 127:
        out.append(value & 127 | 128)
        value >>= 7
    return bytes([*out, value])


def request(
    topic: str, partition: int, acks: int = ACKS_LEADER, *, value_bytes: int = RECORD_BYTES
) -> bytes:
    """A produce request of one record, of less than 16 KiB."""
    records = batch(b"x" * value_bytes)
    body = b"\0" + struct.pack(">hi", acks, 30_000)  # no transactional id
    body += _varlen(1) + _varlen(len(topic)) + topic.encode()
    body += _varlen(1) + struct.pack(">i", partition) + _varlen(len(records)) + records
    no_tags = b"\0"
    return raw.frame(PRODUCE, VERSION, no_tags + body + no_tags * 3)


def _varlen(length: int) -> bytes:
    """The length of a compact array, string or bytes: plus one, because 0 means null."""
    length += 1
    return bytes([length]) if length < 128 else bytes([length & 127 | 128, length >> 7])


def error_of(answer: bytes, topic: str) -> int:
    """The error code in the response frame of such a request."""
    (error_code,) = struct.unpack_from(">h", answer, _error_at(topic))
    return int(error_code)


def _error_at(topic: str) -> int:
    before = 4 + 4 + 1  # length, correlation id, tags
    return before + 1 + 1 + len(topic) + 1 + 4  # topics, name, partitions, index


def receive_frame(connection: socket.socket) -> bytes:
    """One response frame, including its length."""
    length = raw.receive(connection, 4)
    return length + raw.receive(connection, struct.unpack(">i", length)[0])


class Connection:
    """One connection with `depth` requests in flight."""

    def __init__(
        self, connection: socket.socket, topic: str, partition: int, acks: int, depth: int
    ) -> None:
        self.socket = connection
        self.frame = request(topic, partition, acks)
        deadline_s = time.monotonic() + WARM_UP_S
        while True:
            self.socket.sendall(self.frame)  # the first response shows the length of all
            answer = receive_frame(self.socket)
            error_code = error_of(answer, topic)
            # A leader may get its LeaderAndIsr request after other brokers have the metadata.
            if error_code not in _NOT_YET or time.monotonic() > deadline_s:
                break
        if error_code:
            raise RuntimeError(f"the broker answers error {error_code}")
        self.error_at = _error_at(topic)
        self.answer_bytes = len(answer)
        self.rest = b""
        self.sent_ns = deque([time.perf_counter_ns()] * depth)
        self.socket.sendall(self.frame * depth)


def connector(address: str, topic: str, replication: int) -> Callable[[int], socket.socket]:
    """Connects to the leader of a partition of a new topic."""
    raw.create_topic(address, topic, PARTITIONS, replication=replication)
    seen = raw.metadata(address, [topic])
    return lambda index: raw.connect(seen.brokers[seen.topics[topic].leaders[index]])


def secured_connector(address: str, security: dict[str, str]) -> Callable[[int], socket.socket]:
    """Connects to the only broker, with TLS and a user."""
    from kit import secured  # noqa: PLC0415 - other loads start without it

    context = secured.context_of(security)
    return lambda _index: secured.connect(address, security, context)


def run(
    connect: Callable[[int], socket.socket],
    topic: str,
    replication: int,
    connections: int,
    depth: int,
    seconds: float,
) -> dict[str, float]:
    """Keep the connections busy for `seconds`. Returns the figures."""
    acks = ACKS_ALL if replication > 1 else ACKS_LEADER
    poll = select.epoll()
    by_fd = {}
    for n in range(connections):
        partition = n % PARTITIONS
        connection = Connection(connect(partition), topic, partition, acks, depth)
        by_fd[connection.socket.fileno()] = connection
        poll.register(connection.socket.fileno(), select.EPOLLIN)
    first_ns: array[int] = array("q")
    latencies_ns: array[int] = array("q")
    _serve(poll, by_fd, first_ns, WARM_UP_S)
    before = resource.getrusage(resource.RUSAGE_SELF)
    elapsed_s = _serve(poll, by_fd, latencies_ns, seconds)
    after = resource.getrusage(resource.RUSAGE_SELF)
    cpu_s = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    ordered = sorted(latencies_ns)
    return {
        "requests": len(ordered),
        "answered": len(first_ns) + len(ordered),
        "requests_per_s": len(ordered) / elapsed_s,
        "p50_ms": ordered[len(ordered) // 2] / 1e6,
        "p99_ms": ordered[len(ordered) * 99 // 100] / 1e6,
        "max_ms": ordered[-1] / 1e6,
        "client_cpu_s": cpu_s,
        "client_share": cpu_s / elapsed_s,
    }


def _serve(
    poll: select.epoll, by_fd: dict[int, Connection], latencies_ns: "array[int]", seconds: float
) -> float:
    clock = time.perf_counter_ns
    begun_ns = now_ns = clock()
    end_ns = begun_ns + int(seconds * 1e9)
    while now_ns < end_ns:
        for fd, _ in poll.poll(1):
            connection = by_fd[fd]
            data = _received(connection.socket)
            if not data:
                raise ConnectionError("the broker closed a connection")
            now_ns = clock()
            if connection.rest:
                data = connection.rest + data
            size = connection.answer_bytes
            whole = len(data) // size
            connection.rest = data[whole * size :]
            sent_ns = connection.sent_ns
            for n in range(whole):
                at = n * size + connection.error_at
                if data[at] or data[at + 1]:
                    raise RuntimeError("the broker answers an error")
                latencies_ns.append(now_ns - sent_ns.popleft())
                sent_ns.append(now_ns)
            if whole:
                connection.socket.sendall(connection.frame * whole)
    return (now_ns - begun_ns) / 1e9


def _received(connection: socket.socket) -> bytes:
    data = connection.recv(65_536)
    while isinstance(connection, ssl.SSLSocket) and connection.pending():
        data += connection.recv(65_536)  # decrypted already: epoll does not report it
    return data


def main() -> None:
    address, topic, replication, connections, depth, seconds, *security = sys.argv[1:]
    connect = (
        secured_connector(address, json.loads(security[0]))
        if security
        else connector(address, topic, int(replication))
    )
    figures = run(connect, topic, int(replication), int(connections), int(depth), float(seconds))
    print(json.dumps(figures))


if __name__ == "__main__":
    main()
