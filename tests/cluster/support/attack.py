"""An attack on one broker, and a correct client beside it.

    report = attack(broker, seed="1", frames=30_000)

Frames come from `frames.py`, a sequence for each connection, so that a sequence does not depend on
the others. A connection sends a frame and waits until the broker has answered or closed it, or for
`PATIENCE_S`: some requests get no response. A closed connection is made again.

Beside it runs the witness, a process of its own (`python attack.py PORT TOPIC`): it writes a
record, reads it back, and records the latency of each, until its input ends.
"""

import json
import pathlib
import select
import socket
import struct
import subprocess
import sys
import time
from collections import Counter, deque
from collections.abc import Callable, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, field
from typing import Any, TypeVar

from brokers import BrokerProcess
from frames import PARTITIONS, TOPICS, Frame, Frames
from peers import Peer, all_stored, as_stored

from odradek.record.compression import Codec
from odradek.record.records import Record, build_batch
from odradek.wire.messages.api_versions import ApiVersionsRequest, ApiVersionsResponse
from odradek.wire.messages.metadata import (
    MetadataRequest,
    MetadataRequestTopic,
    MetadataResponse,
)

CONNECTIONS = 24
PATIENCE_S = 0.02
UNANSWERED_MAX = 16  # of one connection, before it gives up
WITNESS_PAUSE_S = 0.005
REPAIR_FRAMES = 5_000  # after this many frames deleted topics are created again
RECENT = 12  # frames of each connection that are kept, to report what led to a failure
KEPT, WITNESSED = "kept", "witnessed"
T = TypeVar("T")


@dataclass(slots=True)
class Report:
    """The figures of an attack."""

    frames: Counter[str] = field(default_factory=Counter)  # by kind
    answered: int = 0
    hung_up: int = 0
    silent: int = 0
    seconds: float = 0.0
    rss_before_bytes: int = 0
    rss_max_bytes: int = 0
    witness: dict[str, Any] = field(default_factory=dict)
    refused: int = 0  # connections closed for what they sent, as the broker counts them
    recent: list[list[Frame]] = field(default_factory=list)

    @property
    def sent(self) -> int:
        return self.frames.total()

    @property
    def rss_growth_mib(self) -> float:
        return (self.rss_max_bytes - self.rss_before_bytes) / 2**20


RSS_GROWTH_MIB_MAX = 256.0


def target_options(home: pathlib.Path) -> dict[str, str]:
    """A broker to be attacked: two log directories, and clients apart from brokers.

    A client that may use the inter-broker listener, which without ACLs is every client, may
    change a broker's view of the cluster.
    """
    return {
        "log.dirs": f"{home}/a,{home}/b",
        "listeners": "CLIENTS://127.0.0.1:0,BROKERS://127.0.0.1:0",
        "listener.security.protocol.map": "CLIENTS:PLAINTEXT,BROKERS:PLAINTEXT",
        "inter.broker.listener.name": "BROKERS",
        "offsets.topic.num.partitions": "5",
        "transaction.state.log.num.partitions": "5",
    }


def failures(
    broker: BrokerProcess, report: Report, kept: dict[int, list[bytes]] | None
) -> list[str]:
    """The faults of a broker that was attacked. Empty: there are none."""
    if not broker.is_up:
        return [f"the broker has ended: {broker.output()[-3000:]}"]
    found = [f"a stack trace: {trace}" for trace in broker.traces()]
    if failed := broker.metric("odradek_requests_failed_total"):
        found.append(f"{failed:.0f} requests failed in an unexpected way")
    if report.rss_growth_mib > RSS_GROWTH_MIB_MAX:
        found.append(f"resident memory grew by {report.rss_growth_mib:.0f} MiB")
    if "error" in report.witness:
        found.append(f"the other client was not served: {report.witness['error']}")
    if offline := broker.metric("kafka_log_logmanager_offlinelogdirectorycount"):
        found.append(f"{offline:.0f} log directories are offline")
    if kept is not None:
        try:
            if read_kept(broker.port) != kept:
                found.append("a topic that was not attacked has changed")
        except (AssertionError, OSError) as error:
            found.append(f"a topic that was not attacked cannot be read: {error}")
    return found


class Attacker:
    """One connection that sends malformed frames."""

    def __init__(self, port: int, frames: Frames) -> None:
        self.recent: deque[Frame] = deque(maxlen=RECENT)
        self._port = port
        self._frames = frames
        self._connect()

    def _connect(self) -> None:
        self.socket = socket.create_connection(("127.0.0.1", self._port), 30)
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.sent_s = 0.0
        self.unanswered = 0
        self._buffer = bytearray()

    def reconnect(self) -> None:
        self.socket.close()
        self._connect()

    def send(self, report: Report) -> bool:
        """Send the next frame. False: the broker closed the connection meanwhile."""
        frame = next(self._frames)
        self.recent.append(frame)
        report.frames[frame.kind] += 1
        self.sent_s = time.monotonic()
        self.unanswered += 1
        try:
            for piece in frame.pieces:
                self.socket.sendall(piece)
        except (BrokenPipeError, ConnectionResetError):
            return False
        return not frame.hang_up

    def receive(self) -> int:
        """The number of complete responses, -1 if the broker closed the connection."""
        try:
            data = self.socket.recv(1 << 20)
        except ConnectionResetError:
            return -1
        if not data:
            return -1
        self._buffer += data
        count = 0
        while len(self._buffer) >= 4:
            (length,) = struct.unpack_from(">i", self._buffer)
            if len(self._buffer) < 4 + length:
                break
            del self._buffer[: 4 + length]
            count += 1
        self.unanswered = max(0, self.unanswered - count)
        return count


def attack(
    broker: BrokerProcess,
    *,
    seed: str,
    frames: int,
    connections: int = CONNECTIONS,
    port: int = 0,
    apis: Sequence[int] = (),
    watched: bool = True,
) -> Report:
    """Send `frames` frames to a running broker, with the names of topics created for them.

    `port` is that of the listener attacked, if not the broker's first; `apis` what is asked for
    mostly, if not all that the first listener serves. `watched`: with a witness, and topics that
    were deleted made again, for which a broker must still have its cluster.
    """
    prepare(broker.port)
    log_dirs = broker.options["log.dirs"].split(",")
    served = apis or served_apis(broker.port)
    ids = topic_ids(broker.port, tuple(TOPICS))
    attackers = [
        Attacker(
            port or broker.port,
            Frames(f"{seed}/{number}", topic_ids=ids, log_dirs=log_dirs, apis=served),
        )
        for number in range(connections)
    ]
    report = Report(rss_before_bytes=broker.rss_bytes)
    with Witness(broker.port) if watched else nullcontext() as witness:
        begun_s = time.monotonic()
        try:
            run = _Run(attackers, report)
            repair_at = REPAIR_FRAMES
            while report.sent < frames and broker.is_up:
                run.turn()
                if watched and report.sent >= repair_at:
                    repair_at += REPAIR_FRAMES
                    prepare(broker.port)
        except ConnectionError:
            if broker.is_up:
                raise
        finally:
            report.recent = [list(attacker.recent) for attacker in attackers]
            for attacker in attackers:
                attacker.socket.close()
        report.seconds = time.monotonic() - begun_s
        if witness is not None:
            report.witness = witness.end()
    if not broker.is_up:
        return report
    report.rss_max_bytes = broker.rss_max_bytes
    report.refused = int(broker.metric("odradek_requests_malformed_total"))
    return report


class _Run:
    """All attackers, and which of them have been answered."""

    def __init__(self, attackers: Sequence[Attacker], report: Report) -> None:
        self._report = report
        self._poll = select.epoll()
        self._by_fd: dict[int, Attacker] = {}
        self._attackers = attackers
        for attacker in attackers:
            self._register(attacker)
            self._send(attacker)

    def turn(self) -> None:
        """Send on the connections that were answered, or have waited long enough."""
        report = self._report
        for fd, _ in self._poll.poll(PATIENCE_S):
            attacker = self._by_fd[fd]
            count = attacker.receive()
            if count < 0:
                report.hung_up += 1
                self._reconnect(attacker)
            report.answered += count > 0
            if count:
                self._send(attacker)
        late_s = time.monotonic() - PATIENCE_S
        for attacker in self._attackers:
            if attacker.sent_s < late_s:
                report.silent += 1
                self._send(attacker)

    def _send(self, attacker: Attacker) -> None:
        """The next frame; over a new connection if this one is used up."""
        if attacker.unanswered >= UNANSWERED_MAX:
            self._reconnect(attacker)
        while not attacker.send(self._report):
            self._reconnect(attacker)

    def _reconnect(self, attacker: Attacker) -> None:
        self._poll.unregister(attacker.socket)
        del self._by_fd[attacker.socket.fileno()]
        attacker.reconnect()
        self._register(attacker)

    def _register(self, attacker: Attacker) -> None:
        self._by_fd[attacker.socket.fileno()] = attacker
        self._poll.register(attacker.socket, select.EPOLLIN)


# ------------------------------------------------------------------- what is attacked, and what not


def prepare(port: int) -> None:
    """Create the topics named in frames, if they are missing."""
    with Peer(port) as peer:
        there = existing_topics(peer)
        for name, configs in TOPICS.items():
            if name not in there:
                options = {key.replace(".", "_"): value for key, value in configs.items()}
                peer.create_topic(name, PARTITIONS, exists_ok=True, **options)


def existing_topics(peer: Peer) -> set[str]:
    answer = peer.request(MetadataRequest(topics=None), MetadataResponse)
    return {topic.name for topic in answer.topics if topic.name is not None}


def served_apis(port: int) -> list[int]:
    with Peer(port) as peer:
        request = ApiVersionsRequest(client_software_name="a", client_software_version="1")
        answer = peer.request(request, ApiVersionsResponse)
    return [api.api_key for api in answer.api_keys]


def topic_ids(port: int, names: Sequence[str]) -> list[bytes]:
    with Peer(port) as peer:
        topics = [MetadataRequestTopic(name=name) for name in names]
        answer = peer.request(MetadataRequest(topics=topics), MetadataResponse)
    return [topic.topic_id for topic in answer.topics]


def write_kept(port: int) -> dict[int, list[bytes]]:
    """Write a topic that is not attacked: a few batches of each codec to each partition."""
    written: dict[int, list[bytes]] = {}
    with Peer(port) as peer:
        peer.create_topic(KEPT, PARTITIONS, segment_bytes=16384, retention_ms=-1)
        for partition in range(PARTITIONS):
            written[partition] = []
            for number in range(20):
                records = [
                    Record(b"%d" % n, b"%d of batch %d " % (n, number) * 20, timestamp=1000 + n)
                    for n in range(number + 1)
                ]
                batch = build_batch(records, codec=Codec(number % len(Codec)))
                answer = peer.produce(KEPT, partition, batch)
                assert answer.error_code == 0, answer
                written[partition].append(as_stored(batch))
    return written


def read_kept(port: int) -> dict[int, list[bytes]]:
    """The batches of that topic."""
    with Peer(port) as peer:
        peer.wait_until_led(KEPT, PARTITIONS)
        return {
            partition: all_stored(peer.read(KEPT, partition, 0, peer.offset(KEPT, partition)))
            for partition in range(PARTITIONS)
        }


# ------------------------------------------------------------------------------------- the witness


class Witness:
    """The client that must be served all the time, as a process of its own."""

    def __init__(self, port: int) -> None:
        command = [sys.executable, str(pathlib.Path(__file__).resolve()), str(port), WITNESSED]
        self._process = subprocess.Popen(
            command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        assert self._process.stdout is not None
        assert self._process.stdout.readline() == "ready\n"

    def __enter__(self) -> "Witness":
        return self

    def __exit__(self, *_: object) -> None:
        self._process.kill()
        self._process.communicate()

    def end(self) -> dict[str, Any]:
        """Have it read back all it wrote. Returns its report."""
        output, complaint = self._process.communicate("end\n", timeout=120)
        if self._process.returncode:
            return {"error": complaint[-2000:]}
        seen: dict[str, Any] = json.loads(output)
        return seen


def bear_witness(port: int, topic: str) -> dict[str, Any]:
    """Write and read until the input ends. Returns counts and latencies."""
    took: list[
        tuple[float, float]
    ] = []  # ms, and the time of its start, to compare with the broker's log
    written: list[tuple[int, bytes]] = []

    def timed(request: Callable[[], T]) -> T:
        wall_s, begun_s = time.time(), time.perf_counter()
        answer = request()
        took.append(((time.perf_counter() - begun_s) * 1000, wall_s))
        return answer

    with Peer(port) as peer:
        peer.create_topic(topic, exists_ok=True, retention_ms=-1)
        sys.stdout.write("ready\n")
        sys.stdout.flush()
        while not select.select([sys.stdin], [], [], WITNESS_PAUSE_S)[0]:
            batch = build_batch([Record(b"key", b"record %d " % len(took) * 10)])
            answer = timed(lambda batch=batch: peer.produce(topic, 0, batch))
            assert answer.error_code == 0, answer
            part = timed(lambda offset=answer.base_offset: peer.fetch(topic, 0, offset))
            assert as_stored(bytes(part.records)) == as_stored(batch), (answer, part)
            written.append((answer.base_offset, as_stored(batch)))
        first = written[0][0]
        there = peer.read(topic, 0, first, peer.offset(topic, 0))
        assert [(offset, as_stored(batch)) for offset, batch in there] == written
    took.sort()
    return {
        "requests": len(took),
        "p50_ms": took[len(took) // 2][0],
        "p99_ms": took[len(took) * 99 // 100][0],
        "max_ms": took[-1][0],
        "worst": [
            f"{time.strftime('%H:%M:%S', time.localtime(wall_s))} {ms:.0f} ms"
            for ms, wall_s in took[:-6:-1]
        ],
    }


if __name__ == "__main__":
    sys.stdout.write(json.dumps(bear_witness(int(sys.argv[1]), sys.argv[2])))
