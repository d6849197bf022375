"""Sends a broker a million malformed or unusual frames.

    ./run bench fuzz [--frames 1000000] [--seed 1] [--connections 24]

A broker process gets, over several connections, frames generated from the seed (by
tests/cluster/support/frames.py) while a correct client writes and reads. Then the same on a second
broker's inter-broker listener, where the frames may contain any state of the cluster. The exit
code is 1, with the reason, if a broker ended, logged a stack trace, grew by more than 256 MiB,
failed the other client, or lost records written before; the last frames and the broker's log are
then kept. One JSON line is appended to bench/results/fuzz.jsonl.
"""

import pathlib
import shutil
import sys
import tempfile
import time
from typing import Any

import click
from kit import ROOT, machine
from kit.results import keep_result

sys.path.append(str(ROOT / "tests" / "cluster" / "support"))

from attack import (
    Report,
    Witness,
    attack,
    failures,
    read_kept,
    target_options,
    write_kept,
)
from brokers import BrokerProcess

from odradek.wire.api_keys import APIS

QUIET_S = 5.0
INTER_BROKER_SHARE = 10  # one in this many frames goes to the inter-broker listener


def fuzz_clients(
    home: pathlib.Path, seed: str, frames: int, connections: int
) -> tuple[Report, dict[str, Any], list[str]]:
    """Attack the clients' listener. Returns the report, figures without an attack, and faults."""
    broker = BrokerProcess(home, target_options(home)).start()
    try:
        kept = write_kept(broker.port)
        with Witness(broker.port) as witness:
            time.sleep(QUIET_S)
            quiet = witness.end()
        report = attack(broker, seed=seed, frames=frames, connections=connections)
        wrong = failures(broker, report, kept)
        if broker.is_up and not wrong:
            if (exit_code := broker.stop()) != 0:
                wrong.append(f"it stopped with exit code {exit_code}")
            if read_kept(broker.start().port) != kept:
                wrong.append("after a restart a topic is not what was written")
            wrong += [] if broker.stop() == 0 else ["it did not stop well the second time"]
        return report, quiet, wrong
    finally:
        broker.kill()


def fuzz_brokers(
    home: pathlib.Path, seed: str, frames: int, connections: int
) -> tuple[Report, list[str]]:
    """Attack the inter-broker listener; the broker only has to keep running."""
    broker = BrokerProcess(home, target_options(home)).start()
    try:
        between_brokers = [int(key) for key, api in APIS.items() if api.inter_broker]
        report = attack(
            broker,
            seed=seed,
            frames=frames,
            connections=connections,
            port=broker.ports[1],
            apis=between_brokers,
            watched=False,
        )
        wrong = failures(broker, report, None)
        if broker.is_up and (exit_code := broker.stop()) != 0:
            wrong.append(f"it stopped with exit code {exit_code}")
        return report, wrong
    finally:
        broker.kill()


def keep(home: pathlib.Path, report: Report) -> pathlib.Path:
    """Keep the last frames and the broker's log of a failure."""
    kept = pathlib.Path(tempfile.mkdtemp(prefix="odradek-fuzz-"))
    shutil.copy(home / "broker.log", kept)
    with (kept / "frames.txt").open("w") as file:
        for number, frames in enumerate(report.recent):
            for frame in frames:
                pieces = " | ".join(piece.hex() for piece in frame.pieces)
                file.write(f"{number} {frame.kind} {pieces}\n")
    return kept


@click.command(help=(__doc__ or "").partition("\n")[0])
@click.option("--frames", default=1_000_000, show_default=True)
@click.option("--seed", default="1", show_default=True)
@click.option("--connections", default=24, show_default=True)
def main(*, frames: int, seed: str, connections: int) -> None:
    """Attack, append to the results, print."""
    before = machine.describe()
    with tempfile.TemporaryDirectory(prefix="odradek-bench-") as folder:
        home = pathlib.Path(folder) / "clients"
        report, quiet, wrong = fuzz_clients(home, seed, frames, connections)
        print(f"{report.sent:,} frames in {report.seconds:.0f} s: {dict(report.frames)}")
        print(f"answered {report.answered:,}, hung up on {report.hung_up:,}, "
              f"no answer {report.silent:,}; {report.refused:,} connections refused")  # fmt: skip
        print(f"resident memory {report.rss_before_bytes >> 20} MiB, "
              f"at most {report.rss_growth_mib:.0f} MiB more")  # fmt: skip
        print(f"the other client, undisturbed: {quiet}")
        print(f"the other client, meanwhile:   {report.witness}")
        if wrong:
            print(f"kept in {keep(home, report)}")
        home = pathlib.Path(folder) / "brokers"
        between_brokers, more = fuzz_brokers(
            home, seed, max(1, frames // INTER_BROKER_SHARE), connections
        )
        print(f"{between_brokers.sent:,} frames to the inter-broker listener: answered "
              f"{between_brokers.answered:,}, hung up on {between_brokers.hung_up:,}")  # fmt: skip
        if more:
            print(f"kept in {keep(home, between_brokers)}")
    result = {
        "seed": seed,
        "frames": report.sent,
        "frames_inter_broker": between_brokers.sent,
        "seconds": round(report.seconds, 1),
        "rss_growth_mib": round(report.rss_growth_mib, 1),
        "quiet": quiet,
        "witness": report.witness,
        "wrong": wrong + more,
        "machine": before,
    }
    keep_result("fuzz", result)
    for each in wrong + more:
        print(f"WRONG: {each}")
    sys.exit(bool(wrong + more))


if __name__ == "__main__":
    main()
