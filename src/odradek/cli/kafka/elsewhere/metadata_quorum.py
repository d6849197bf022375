"""`kafka-metadata-quorum`: there is no quorum of controllers, but ZooKeeper."""

import sys
from collections.abc import Sequence


def main(arguments: Sequence[str]) -> int:
    del arguments
    print(
        "org.apache.kafka.common.errors.UnsupportedVersionException: The node does not support "
        "DESCRIBE_QUORUM\n"
        "A cluster with ZooKeeper has no quorum of controllers: kafka-cluster, odradek status and "
        "zookeeper-shell get /controller show which broker is the controller.",
        file=sys.stderr,
    )
    return 1
