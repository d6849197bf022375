"""`kafka-preferred-replica-election`, which Kafka 3.0 removed: its successor."""

import sys
from collections.abc import Sequence


def main(arguments: Sequence[str]) -> int:
    del arguments
    print(
        "Kafka 3.0 removed this tool. Its successor connects to a broker:\n"
        "  kafka-leader-election --bootstrap-server HOST:PORT --election-type preferred "
        "--all-topic-partitions\n"
        "or, in place of the last option, --path-to-json-file FILE with the same file.",
        file=sys.stderr,
    )
    return 1
