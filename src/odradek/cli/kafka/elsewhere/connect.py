"""`connect-distributed`, `connect-standalone`, `connect-mirror-maker`: clients of Apache Kafka."""

import sys
from collections.abc import Sequence


def main(arguments: Sequence[str]) -> int:
    del arguments
    print(
        "Kafka Connect is a client, and that of Apache Kafka works with this cluster unchanged: "
        "run the script of this name in a distribution of Apache Kafka, with "
        "bootstrap.servers in its properties file.",
        file=sys.stderr,
    )
    return 1
