"""`odradek add` and `odradek clone`: more brokers for a cluster on this machine, and its copies."""

import asyncio
import pathlib
import time
from typing import Final

import click

from odradek.cli.connect import properties_of, with_cluster
from odradek.cli.odradek.local import dir_option, say
from odradek.client.cluster import Cluster
from odradek.local.client_files import admin_file
from odradek.local.copies import adopt
from odradek.local.copies import clone as copy_directory
from odradek.local.directory import ClusterDirectory, LocalError
from odradek.local.supervisor import Supervisor
from odradek.plan.quantities import bytes_text

_KNOWN_S: Final = 30.0
_LOOK_AGAIN_S: Final = 0.05


@click.command
@click.argument("count", type=click.IntRange(min=1), default=1)
@dir_option
@click.option("--rack", help="The rack of the new brokers.  [default: the smallest, if any]")
@click.option("--rebalance", "shows_plan", is_flag=True,
              help="Show a plan that moves replicas to them.")  # fmt: skip
def add(count: int, path: pathlib.Path, rack: str | None, *, shows_plan: bool) -> int:
    """Add COUNT brokers to a running cluster.

    They have the options of broker 0, and ports of their own.
    """
    supervisor = Supervisor(ClusterDirectory(path), say=say)
    added = supervisor.add(count, rack=rack)
    report = supervisor.status()
    for broker in report["brokers"]:
        if broker["id"] in added:
            where = ", ".join(broker["listeners"])
            say(f"broker {broker['id']} serves {where} (pid {broker['pid']})")
    say("connect to:")
    print(report["bootstrap"], flush=True)
    return _show_plan(path, report["bootstrap"], set(added)) if shows_plan else 0


def _show_plan(path: pathlib.Path, bootstrap: str, added: set[int]) -> int:
    from odradek.cli.odradek.plan import rebalance  # noqa: PLC0415 - it imports much

    directory = ClusterDirectory(path)

    async def known(cluster: Cluster) -> int:
        """Wait until the brokers have the added ones in their metadata."""
        deadline_s = time.monotonic() + _KNOWN_S
        await cluster.refresh()
        while not added <= set(cluster.metadata.nodes):
            if time.monotonic() >= deadline_s:
                raise LocalError(
                    f"brokers {sorted(added)} are not in the cluster's metadata after "
                    f"{_KNOWN_S:.0f} s: {directory.command('doctor')}"
                )
            await asyncio.sleep(_LOOK_AGAIN_S)
            await cluster.refresh()
        return 0

    with_cluster(bootstrap, properties_of(admin_file(path)), known)
    code: int = rebalance.main(args=["--dir", str(path)], standalone_mode=False)
    say(f"to carry it out: {directory.command('plan', 'rebalance', '--execute')}")
    return code


@click.command
@click.argument("target", metavar="[NEW]", required=False, type=click.Path(path_type=pathlib.Path))
@dir_option
def clone(target: pathlib.Path | None, path: pathlib.Path) -> None:
    """Copy a cluster that does not run into the directory NEW.

    The copy has the same topics, records, committed offsets and users, and a cluster id and ports
    of its own: to try something on. Where the file system can share blocks, it takes no space until
    files change. Without NEW: make the directory, which was copied by other means, such as cp -r, a
    cluster of its own.
    """
    copy = ClusterDirectory(target or path)
    if target is None:
        adopt(copy)
    else:
        copied = copy_directory(ClusterDirectory(path), copy)
        shared = f", {bytes_text(copied.shared_bytes)} shared" if copied.shared_bytes else ""
        say(f"{copied.files} files, {bytes_text(copied.total_bytes)}{shared}")
    say(f"{copy.path} is a cluster of its own; to start it: {copy.command('up')}")
