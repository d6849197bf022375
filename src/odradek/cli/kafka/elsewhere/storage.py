"""`kafka-storage`: log directories of a cluster with ZooKeeper are not formatted."""

import base64
import sys
import uuid
from collections.abc import Sequence


def main(arguments: Sequence[str]) -> int:
    """`random-uuid` prints an id, as it does anywhere; all else is refused."""
    if arguments and arguments[0] == "random-uuid":
        print(_random_id())
        return 0
    print(
        "The kafka configuration file appears to be for a legacy cluster. Formatting is only "
        "supported for clusters in KRaft mode.\n"
        "A broker here prepares its log directories itself when it starts; the cluster's id is in "
        "ZooKeeper.",
        file=sys.stderr,
    )
    return 1


def _random_id() -> str:
    """A random UUID as Kafka writes it; none begins with a dash, which a shell takes for a flag."""
    while True:
        text = base64.urlsafe_b64encode(uuid.uuid4().bytes).decode().rstrip("=")
        if not text.startswith("-"):
            return text
