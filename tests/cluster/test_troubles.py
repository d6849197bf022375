"""Problems of real brokers, each explained by `odradek doctor` and `odradek why`.

docs/troubleshooting.md shows their output (`tests/troubleshooting.py`). The problems with ZooKeeper
are in `tests/clients/clusters/test_zookeeper_troubles.py`, because it needs Java.
"""

import contextlib
import pathlib
import resource
import shutil
import signal
import socket
import sqlite3
import struct
import subprocess
import sys
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta
from typing import Any, NamedTuple

import pytest
from brokers import BrokerProcess
from client_troubles import (
    exceed_quota,
    fence_member,
    fence_producers,
    join_inconsistently,
    look_for,
    lose_records,
    speak_tls,
)
from peers import Peer, framed
from tests.hanging import begin, leave_hanging
from tests.troubleshooting import ON_ZOOKEEPER, check, shown
from troubles import Asked, Finding, Home, joining, odradek, wait_for

import odradek.client.admin.partitions as admin_partitions
from odradek.local.directory import ClusterDirectory
from odradek.local.faults import ClusterFaults
from odradek.local.startable import free_ports
from odradek.model.partition import TopicPartition
from odradek.wire.header import encode_request_header
from odradek.wire.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
    OffsetCommitResponse,
)

pytest.importorskip("scipy", reason="the extra `plan`")
certificates = pytest.importorskip("odradek.local.certificates", reason="the extra `secure`")

BIG = TopicPartition("big", 0)
CONNECTIONS = "kafka_server_socket_server_metrics_connection_count"


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> pathlib.Path:
    return tmp_path_factory.mktemp("troubles")


@pytest.fixture(scope="module")
def home(folder: pathlib.Path) -> Iterator[Home]:
    made = Home(
        folder / "D",
        "auto.leader.rebalance.enable=false",
        "group.initial.rebalance.delay.ms=0",
        "log.cleaner.enable=false",
        "offsets.topic.num.partitions=1",
        "transaction.partition.verification.enable=false",
        "transaction.state.log.num.partitions=1",
    )
    try:
        while made.controller != 0:
            made.next_controller()
        yield made
    finally:
        for peer in made.held:
            peer.socket.close()
        odradek("down", *made.where)


class Apart(NamedTuple):
    """Brokers on hosts of their own: each alone in its cluster."""

    wrong_port: BrokerProcess
    wrong_host: BrokerProcess
    two_directories: BrokerProcess
    open_to_all: BrokerProcess
    with_tls: BrokerProcess
    few_files: BrokerProcess


@pytest.fixture(scope="module")
def apart(folder: pathlib.Path) -> Iterator[Apart]:
    dirs = f"{folder}/a,{folder}/b"
    brokers = Apart(
        BrokerProcess(folder / "port", {"advertised.listeners": "PLAINTEXT://127.0.0.1:1"}),
        BrokerProcess(folder / "host", {"advertised.listeners": "PLAINTEXT://kafka.invalid:9092"}),
        BrokerProcess(folder / "dirs", {"log.dirs": dirs}),
        BrokerProcess(
            folder / "open",
            {
                "listeners": "PLAINTEXT://0.0.0.0:0",
                "advertised.listeners": "PLAINTEXT://127.0.0.1:0",
                "odradek.http.host": "0.0.0.0",
            },
        ),
        BrokerProcess(
            folder / "tls",
            {
                "listeners": "SSL://127.0.0.1:0",
                "security.inter.broker.protocol": "SSL",
                "ssl.keystore.type": "PEM",
                "ssl.keystore.location": folder / "tls" / "broker.pem",
                "ssl.truststore.type": "PEM",
                "ssl.truststore.location": folder / "tls" / "broker.pem",
            },
        ),
        BrokerProcess(folder / "few"),
    )
    brokers.few_files.files_max = (200, 200)
    write_certificate(folder / "tls" / "broker.pem", days=20)
    try:
        for broker, port in zip(brokers[:2], free_ports("127.0.0.1", 2), strict=True):
            broker.options["listeners"] = f"PLAINTEXT://127.0.0.1:{port}"
        with ThreadPoolExecutor() as pool:
            list(pool.map(BrokerProcess.start, brokers))
        yield brokers
    finally:
        for broker in brokers:
            broker.kill()


def write_certificate(file: pathlib.Path, *, days: int) -> None:
    """A key, its certificate, which expires in so many days, and that of the CA."""
    issued = datetime.now(UTC) - certificates.VALID + timedelta(days=days)
    authority = certificates.make_authority("a CA", issued)
    made = certificates.issue(authority, "a broker", ["127.0.0.1"], issued)
    file.write_text(made.key + made.certificate + authority.certificate)


def reached(broker: BrokerProcess) -> Asked:
    listeners = broker.options["listeners"].rpartition("/")[2]
    address = listeners if not listeners.endswith(":0") else f"127.0.0.1:{broker.port}"
    return Asked("--bootstrap-server", address)


# ----------------------------------------------------------------------------------- the troubles

Said = list[str]  # findings, and lines of `why`
Story = Callable[[Home, Apart], list[Any]]


def found(asked: Asked, kind: str, *options: object, about: str = "", printed: str = "") -> Finding:
    """The finding of a kind, as soon as there is one: metadata updates take a moment."""

    def look() -> Finding | None:
        for finding in asked.findings(kind, *options):
            if finding.subject.startswith(about) and printed in finding.why:
                return finding
        return None

    finding: Finding = wait_for(look)
    return finding


def unknown_option(home: Home, _: Apart) -> list[Any]:
    # `odradek up` would refuse it.
    with (home.path / "broker-2" / "server.properties").open("a") as file:
        file.write("num.partitons=6\n")
    home.do("restart", 2)
    return [found(home, "unknown-option")]


def disk_nearly_full(home: Home, _: Apart) -> list[Any]:
    return [found(home, "disk", "--disk-percent", 0, about="broker 0", printed="% since")]


def too_few_replicas(home: Home, _: Apart) -> list[Any]:
    home.create("single", "0", min_insync_replicas=2)
    return [found(home, "replication-factor"), *home.why("topic", "single")]


def cut_off_from_one_other(home: Home, _: Apart) -> list[Any]:
    home.create("far", "1:2")
    faults = ClusterFaults(ClusterDirectory(home.path))
    faults.partition([1], [2])
    home.write("far", 1)  # a follower that lacks nothing stays in sync
    try:
        reported = found(home, "under-replicated", about="far-0", printed="cannot fetch")
        return [reported, *home.why("topic", "far")]
    finally:
        faults.heal()
        home.kafka("topics", "--delete", "--topic", "far")


def leader_killed(home: Home, _: Apart) -> list[Any]:
    home.create("orders", "1:2:0,2:0:1,1:0:2")
    home.create("payments", "1:2", min_insync_replicas=2)
    home.create("lonely", "1")
    home.do("kill", 1)
    wait_for(lambda: "broker 1 is offline since" in home.why("broker", 1)[0])
    return [
        found(home, "under-replicated", about="orders-0, orders-1 and orders-2"),
        *home.why("topic", "orders"),
    ]


def under_min_isr(home: Home, _: Apart) -> list[Any]:
    return [found(home, "under-min-isr"), *home.why("topic", "payments")]


def offline_partition(home: Home, _: Apart) -> list[Any]:
    return [found(home, "offline"), *home.why("topic", "lonely")]


def skewed_leaders(home: Home, _: Apart) -> list[Any]:
    home.do("start", 1)

    def settled() -> list[str] | None:
        why = home.why("topic", "orders")
        return None if "in sync yet" in str(why) or "out of sync" in str(why) else why

    why = wait_for(settled)
    printed = [found(home, "leader-skew", printed="3 of 4 of broker 1"), *why]
    home.kafka("leader-election", "--election-type", "preferred", "--all-topic-partitions")
    return printed


def follower_paused(home: Home, _: Apart) -> list[Any]:
    home.do("pause", 2)
    try:
        return [found(home, "unreachable"), *home.why("broker", 2)]
    finally:
        home.do("resume", 2)


def refused_clients(home: Home, _: Apart) -> list[Any]:
    home.create("small", "0:1", max_message_bytes=1000)
    with home.peer(0) as peer:
        header = bytearray(encode_request_header(3, 12, 1, "of-tomorrow"))
        header[2:4] = struct.pack(">h", 99)
        peer.send(struct.pack(">i", len(header)) + header)
        assert peer.is_hung_up()
    home.write("small", 0, size=5_000)
    home.write("small", 2, count=10)
    findings = home.findings("refused")
    return sorted(findings, key=lambda f: f.why.rpartition(": ")[2])


def stuck_group(home: Home, _: Apart) -> list[Any]:
    peer, member, generation = home.join("slow")
    home.sync(peer, "slow", member, generation)
    home.coordinator("slow").send(framed(joining("slow"), 3))
    return [found(home, "group-stuck", "--patience", 0), *home.why("group", "slow")]


def group_without_commits(home: Home, _: Apart) -> list[Any]:
    peer, member, generation = home.join("lazy")
    home.sync(peer, "lazy", member, generation)
    home.write("orders", 1, count=5)
    place = OffsetCommitRequestPartition(partition_index=0, committed_offset=0)
    request = OffsetCommitRequest(
        group_id="lazy",
        generation_id_or_member_epoch=generation,
        member_id=member,
        topics=[OffsetCommitRequestTopic(name="orders", partitions=[place])],
    )
    reported = peer.request(request, OffsetCommitResponse, 5)
    assert not reported.topics[0].partitions[0].error_code
    return [found(home, "group-no-commit", "--patience", 0)]


def hanging_transaction(home: Home, _: Apart) -> list[Any]:
    home.create("hung", "0:1")
    leave_hanging(home.bootstrap, "hung")
    return [found(home, "hanging")]


def long_transaction(home: Home, _: Apart) -> list[Any]:
    home.create("open", "0:1")
    begin(home.bootstrap, "open")
    return [found(home, "open-transaction", "--patience", 0)]


def cleaner_stopped(home: Home, _: Apart) -> list[Any]:
    return [found(home, "cleaner", about="broker 0")]


def interrupted_plan(home: Home, _: Apart) -> list[Any]:
    home.create("big", "0:1")
    home.write("big", 0, size=500_000, count=6)
    plan = ["plan", "replication-factor", "--topic", "big", "--replication-factor", "3",
            "--throttle", "1", "--execute", "--bootstrap-server", home.bootstrap]  # fmt: skip
    running = subprocess.Popen(
        [sys.executable, "-m", "odradek", *plan],
        stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
    )  # fmt: skip
    try:
        wait_for(lambda: home.asked(admin_partitions.list_reassignments))
    finally:
        running.send_signal(signal.SIGKILL)
        running.wait()
    return [found(home, "moving")]


def move_without_progress(home: Home, _: Apart) -> list[Any]:
    return [found(home, "stuck", "--patience", 1)]


def throttle_left(home: Home, _: Apart) -> list[Any]:
    home.asked(lambda cluster: admin_partitions.alter_reassignments(cluster, {BIG: None}))
    return [found(home, "throttle")]


def controller_flapping(home: Home, _: Apart) -> list[Any]:
    for _ in range(4):
        home.next_controller()
    return [found(home, "controller")]


def disk_full(home: Home, _: Apart) -> list[Any]:
    home.create("filling", "2")
    limit = 4 << 20
    resource.prlimit(home.status(2)["pid"], resource.RLIMIT_FSIZE, (limit, limit))
    with contextlib.suppress(OSError):
        home.write("filling", 2, size=900_000, count=10)
    wait_for(lambda: home.status(2)["state"] == "crashed")
    status = odradek("status", *home.where).splitlines()
    printed = [found(home, "crashed"), *(line for line in status if "ended by itself" in line)]
    home.do("start", 2)
    return printed


def directory_came_back_empty(home: Home, _: Apart) -> list[Any]:
    home.do("stop", 2)
    (directory,) = home.status(2)["log_dirs"]
    shutil.rmtree(directory)
    home.do("start", 2)
    return [
        found(home, "emptied", printed="all of them are copied"),
        *(line for line in home.why("broker", 2) if "empty" in line),
    ]


def store_put_back(home: Home, _: Apart) -> list[Any]:
    store, copy = home.path / "coordination.db", home.path.parent / "store.db"
    with (
        contextlib.closing(sqlite3.connect(store)) as source,
        contextlib.closing(sqlite3.connect(copy)) as backup,
    ):
        source.backup(backup)
    home.do("restart", 0)
    odradek("down", *home.where)
    for file in (
        store,
        store.with_name("coordination.db-wal"),
        store.with_name("coordination.db-shm"),
    ):
        file.unlink(missing_ok=True)
    shutil.copy(copy, store)
    odradek("up", "--detach", *home.where)
    for topic in ("orders", "payments"):
        wait_for(lambda: not home.write(topic, 1))  # noqa: B023
    return [found(home, "store-restored")]


def records_left_a_log(home: Home, _: Apart) -> list[Any]:
    home.create("torn", "2")
    home.write("torn", 2, count=3)
    home.do("kill", 2)
    (directory,) = home.status(2)["log_dirs"]
    file = pathlib.Path(directory) / "torn-0" / f"{0:020}.log"
    damaged = bytearray(file.read_bytes())
    damaged[len(damaged) // 2] ^= 1  # in the second of three batches
    file.write_bytes(damaged)
    home.do("start", 2)
    return [found(home, "cut", about="broker 2, torn-0")]


def two_producers(home: Home, _: Apart) -> list[Any]:
    fence_producers(home, "pay", "billing-1", "billing-2")
    return [
        found(home, "transactional-id", about="transactional.id pay"),
        *home.why("transaction", "pay"),
    ]


def two_consumers(home: Home, _: Apart) -> list[Any]:
    fence_member(home, "invoices", "i-1", "invoices-1", "invoices-2")
    return [found(home, "instance-id"), *home.why("client", "invoices-1")]


def two_applications(home: Home, _: Apart) -> list[Any]:
    join_inconsistently(home, "shared", "orders-app", "billing-app")
    return [
        found(home, "group-protocol"),
        *(line for line in home.why("group", "shared") if "INCONSISTENT" in line),
    ]


def misspelt_topic(home: Home, _: Apart) -> list[Any]:
    look_for(home, "ordres", "shop")
    return [found(home, "no-topic"), *home.why("client", "shop")]


def throttled_client(home: Home, _: Apart) -> list[Any]:
    home.create("uploads", "0:1")
    home.kafka("configs", "--alter", "--entity-type", "clients", "--entity-name", "uploader",
               "--add-config", "producer_byte_rate=1000")  # fmt: skip
    exceed_quota(home, "uploads", "uploader")
    return [found(home, "quota", about="client uploader")]


def records_deleted(home: Home, _: Apart) -> list[Any]:
    home.create("clicks", "0")
    lose_records(home, "clicks", "late")
    return [found(home, "deleted-unread", about="group late")]


def tls_on_plain_listener(home: Home, _: Apart) -> list[Any]:
    with home.peer(0) as peer:
        speak_tls(peer.socket.getpeername()[1])
    return [found(home, "refused", printed="uses TLS")]


def out_of_descriptors(_: Home, apart: Apart) -> list[Any]:
    broker, idle = apart.few_files, []
    try:
        while not broker.metric("odradek_connections_refused"):
            idle += [socket.create_connection(("127.0.0.1", broker.port)) for _ in range(8)]
    finally:
        for connection in idle:
            connection.close()
    wait_for(lambda: not broker.metric(CONNECTIONS, listener="PLAINTEXT"))
    return [found(reached(broker), "open-files"), *reached(broker).why("broker", 0)[1:2]]


def wrong_port(_: Home, apart: Apart) -> list[Any]:
    return [found(reached(apart.wrong_port), "advertised")]


def wrong_host(_: Home, apart: Apart) -> list[Any]:
    return [found(reached(apart.wrong_host), "unresolvable")]


def directory_removed(_: Home, apart: Apart) -> list[Any]:
    broker = apart.two_directories
    with Peer(broker.port) as peer:
        for topic in ("one", "two", "three", "four"):
            peer.create_topic(topic)
    removed = broker.options["log.dirs"].partition(",")[0]
    shutil.rmtree(removed)
    return [found(reached(broker), "log-dir")]


def listener_in_the_clear(_: Home, apart: Apart) -> list[Any]:
    asked = reached(apart.open_to_all)
    return [
        found(asked, "in-the-clear", about=f"broker 0, {what}") for what in ("PLAINTEXT", "HTTP")
    ]


def certificate_expires(_: Home, apart: Apart) -> list[Any]:
    config = apart.with_tls.home / "client.properties"
    config.write_text(
        "security.protocol=SSL\nssl.truststore.type=PEM\n"
        f"ssl.truststore.location={apart.with_tls.home / 'broker.pem'}\n"
    )
    asked = reached(apart.with_tls)
    return [found(Asked(*asked.where, "--command-config", str(config)), "certificate")]


TROUBLES: dict[str, Story] = {
    "An unknown option": unknown_option,
    "A disk that is nearly full": disk_nearly_full,
    "Fewer replicas than min.insync.replicas": too_few_replicas,
    "A broker is cut off from one other": cut_off_from_one_other,
    "A leader is killed": leader_killed,
    "Under min.insync.replicas": under_min_isr,
    "A partition is offline": offline_partition,
    "Leaders are skewed": skewed_leaders,
    "A follower is paused": follower_paused,
    "A client is refused": refused_clients,
    "A group is stuck": stuck_group,
    "A group does not commit": group_without_commits,
    "A transaction hangs": hanging_transaction,
    "A transaction stays open for long": long_transaction,
    "The cleaner is stopped": cleaner_stopped,
    "A plan was interrupted": interrupted_plan,
    "A reassignment makes no progress": move_without_progress,
    "A throttle was not removed": throttle_left,
    "The controller keeps changing": controller_flapping,
    "A disk is full": disk_full,
    "A log directory is empty after a restart": directory_came_back_empty,
    "The coordination store is put back from a backup": store_put_back,
    "Records left a log": records_left_a_log,
    "Two producers with one transactional id": two_producers,
    "Two consumers with one instance id": two_consumers,
    "Two applications in one group": two_applications,
    "A misspelt topic": misspelt_topic,
    "A client is throttled": throttled_client,
    "Records were deleted before they were read": records_deleted,
    "A client with TLS on a plain listener": tls_on_plain_listener,
    "A broker runs out of file descriptors": out_of_descriptors,
    "A wrong advertised port": wrong_port,
    "A wrong advertised host": wrong_host,
    "A log directory was removed": directory_removed,
    "A listener in the clear": listener_in_the_clear,
    "A certificate expires soon": certificate_expires,
}  # in this order: some continue from the one before


@pytest.mark.parametrize("title", TROUBLES)
def test_a_problem_is_explained_as_on_the_page(title, home, apart, folder):
    check(title, TROUBLES[title](home, apart), folder)


def test_the_page_has_each_problem_and_no_other():
    assert shown().keys() == TROUBLES.keys() | ON_ZOOKEEPER
