"""`zookeeper-server-start` and `zookeeper-server-stop`: this is no ZooKeeper, and needs none."""

import sys
from collections.abc import Sequence


def main(arguments: Sequence[str]) -> int:
    del arguments
    print(
        "No ZooKeeper is needed, and none is part of Odradek: brokers of one machine share a "
        "SQLite file. `odradek up` starts them, and `odradek down` stops them.\n"
        "Brokers of several machines need a ZooKeeper of your own: start it with its own "
        "zkServer.sh or the script of this name in a distribution of Apache Kafka, "
        "and set zookeeper.connect.",
        file=sys.stderr,
    )
    return 1
