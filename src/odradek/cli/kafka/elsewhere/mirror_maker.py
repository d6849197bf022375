"""`kafka-mirror-maker`: a program of Apache Kafka that copies topics, also of this cluster."""

import sys
from collections.abc import Sequence


def main(arguments: Sequence[str]) -> int:
    del arguments
    print(
        "MirrorMaker is a client, and that of Apache Kafka copies from and to this cluster: run "
        "its connect-mirror-maker.sh (MirrorMaker 2, which is part of Kafka Connect).",
        file=sys.stderr,
    )
    return 1
