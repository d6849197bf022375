"""`odradek copy-store SOURCE TARGET`: copies a cluster's znodes to another coordination store.

    odradek copy-store ./odradek-data zk1:2181,zk2:2181/kafka

The brokers must be stopped. Afterwards brokers with `zookeeper.connect` (ours, or Apache Kafka's)
continue the cluster on the same log directories.
"""

import asyncio
import pathlib
import sys

import click

from odradek.cli.store import EMBEDDED, opened_store
from odradek.coord.copying import copy_nodes


@click.command("copy-store")
@click.argument("source")
@click.argument("target")
def copy_store(source: str, target: str) -> None:
    """Copy a cluster's znodes from one coordination store to another. Stop its brokers first.

    SOURCE and TARGET are host:port,host:port/chroot of a ZooKeeper, or a directory of `odradek up`.
    """
    folder = pathlib.Path(target)
    if folder.is_dir():
        target = str(folder / EMBEDDED)
        pathlib.Path(target).touch()  # an empty file is a new store
    count = asyncio.run(_copy(source, target))
    print(f"{count} znodes of {source} copied to {target}", file=sys.stderr)


async def _copy(source: str, target: str) -> int:
    async with opened_store(source) as read, opened_store(target) as written:
        return await copy_nodes(read, written)
