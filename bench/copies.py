"""What three brokers cost at least: only the system calls that replicate a record's bytes.

    ./run bench copies [--runs 5] [--gigabytes 1]

A leader and two followers are a process each. It blocks on its sockets, decodes nothing, checks
nothing, and has nothing but a log. For each batch, one after the other, the leader receives it and
writes it to its log, sends it to both followers, and acknowledges it when both have it. A follower
receives it, writes it to its log and asks for the next. Brokers need these calls, and what they do
besides, for each batch that they receive: so this is what the processor time for a GB of
`versus_kafka --brokers 3` is compared with. The leader sends from memory, or by `sendfile` from its
log, as Kafka does.

One JSON line for all cases is appended to bench/results/copies.jsonl.
"""

import multiprocessing
import os
import pathlib
import socket
import statistics
import tempfile
import time
from collections.abc import Callable, Sequence
from functools import partial
from multiprocessing.connection import Connection
from typing import Final, NamedTuple

import click
from kit import machine
from kit.results import keep_result

FOLLOWERS: Final = 2
BATCHES: Final = {"64 KiB": 64 << 10, "1 MB": 1_000_000}  # Java's large ones; librdkafka's
SENT_FROM: Final = ("memory", "sendfile")
ASK_BYTES: Final = 100  # the bytes of a follower's fetch, and of an acknowledgement


class Load(NamedTuple):
    """What the producer sends, and how it gets to the followers."""

    size_bytes: int
    batches: int
    by_sendfile: bool


def connected() -> tuple[socket.socket, socket.socket]:
    """Both ends of a TCP connection on loopback, as brokers configure theirs."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        one = socket.create_connection(server.getsockname())
        other, _ = server.accept()
    for end in (one, other):
        end.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return one, other


def receive(peer: socket.socket, into: memoryview) -> None:
    """Fill `into`, in one call if the kernel can."""
    at = 0
    while at < len(into):
        read = peer.recv_into(into[at:], 0, socket.MSG_WAITALL)
        if not read:
            raise ConnectionError("the other end is gone")
        at += read


def send_file(peer: socket.socket, log: int, at: int, size_bytes: int) -> None:
    end = at + size_bytes
    while at < end:
        at += os.sendfile(peer.fileno(), log, at, end - at)


def append(log: int, batch: memoryview) -> None:
    at = 0
    while at < len(batch):
        at += os.write(log, batch[at:])


def lead(log: int, producer: socket.socket, followers: Sequence[socket.socket], load: Load) -> None:
    batch, asked = memoryview(bytearray(load.size_bytes)), memoryview(bytearray(ASK_BYTES))
    for follower in followers:
        receive(follower, asked)
    for number in range(load.batches):
        receive(producer, batch)
        append(log, batch)
        for follower in followers:
            if load.by_sendfile:
                send_file(follower, log, number * load.size_bytes, load.size_bytes)
            else:
                follower.sendall(batch)
        for follower in followers:
            receive(follower, asked)
        producer.sendall(asked)


def follow(log: int, leader: socket.socket, load: Load) -> None:
    batch, ask = memoryview(bytearray(load.size_bytes)), bytes(ASK_BYTES)
    leader.sendall(ask)
    for _ in range(load.batches):
        receive(leader, batch)
        append(log, batch)
        leader.sendall(ask)


def produce(leader: socket.socket, load: Load) -> None:
    batch, acknowledged = os.urandom(load.size_bytes), memoryview(bytearray(ASK_BYTES))
    for _ in range(load.batches):
        leader.sendall(batch)
        receive(leader, acknowledged)


def broker(tell: Connection, path: pathlib.Path, work: Callable[[int], None]) -> None:
    """One process: it works with its log, and tells the processor time that it took."""
    log = os.open(path, os.O_RDWR | os.O_CREAT)
    begun_s = time.process_time()
    work(log)
    tell.send(time.process_time() - begun_s)


def measured(load: Load, folder: pathlib.Path) -> float:
    """Seconds of processor time of all three for a GB from the producer."""
    os.sync()
    machine.fill_memory()
    producer, produced = connected()
    leads, follows = zip(*(connected() for _ in range(FOLLOWERS)), strict=True)
    works = [
        partial(lead, producer=produced, followers=leads, load=load),
        *(partial(follow, leader=each, load=load) for each in follows),
    ]
    fork = multiprocessing.get_context("fork")
    told, brokers = [], []
    for number, work in enumerate(works):
        hear, tell = fork.Pipe(duplex=False)
        told.append(hear)
        arguments = (tell, folder / f"log-{number}", work)
        brokers.append(fork.Process(target=broker, args=arguments, daemon=True))
        brokers[-1].start()
    produce(producer, load)
    spent_s = sum(float(each.recv()) for each in told)
    for each in brokers:
        each.join()
    for end in (producer, produced, *leads, *follows):
        end.close()
    return spent_s / (load.batches * load.size_bytes / 1e9)


@click.command(help=(__doc__ or "").partition("\n")[0])
@click.option("--runs", default=5, show_default=True, help="Runs of each case, in turn.")
@click.option("--gigabytes", default=1.0, show_default=True, help="What the producer sends.")
def main(*, runs: int, gigabytes: float) -> None:
    """Run each case in turn, print the medians, and keep them."""
    described = machine.describe()
    cases = [(label, sent_from) for label in BATCHES for sent_from in SENT_FROM]
    seconds: dict[str, list[float]] = {}
    for _ in range(runs):
        for label, sent_from in cases:
            with tempfile.TemporaryDirectory(prefix="odradek-bench-") as folder:
                count = int(gigabytes * 1e9 / BATCHES[label])
                load = Load(BATCHES[label], count, by_sendfile=sent_from == "sendfile")
                spent_s = measured(load, pathlib.Path(folder))
            seconds.setdefault(f"{label}, from {sent_from}", []).append(round(spent_s, 3))
    for name, values in seconds.items():
        shown = f"{min(values):.2f} - {max(values):.2f}"
        print(f"{name:24} {statistics.median(values):5.2f} s/GB ({shown})")
    kept = {**described, "gigabytes": gigabytes, "cpu_s_per_gb": seconds}
    keep_result("copies", kept)


if __name__ == "__main__":
    main()
