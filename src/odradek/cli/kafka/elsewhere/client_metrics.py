"""`kafka-client-metrics` (KIP-714): Kafka 3.9 with ZooKeeper refuses it, and so does a broker here.

Clients that ask for a subscription find that the API is not served, and send no metrics.
"""

import sys
from collections.abc import Sequence
from typing import Final

_FAILED: Final = "Error while executing client metrics command : "
_REASONS: Final = {
    "--alter": "AlterConfigs is only supported for topics and brokers, but resource type is "
    "CLIENT_METRICS",
    "--delete": "Config type client-metrics is only supported on KRaft clusters",
}


def main(arguments: Sequence[str]) -> int:
    reason = next(
        (text for flag, text in _REASONS.items() if flag in arguments),
        "The node does not support LIST_CLIENT_METRICS_RESOURCES",
    )
    print(_FAILED + reason)
    print(
        "Brokers collect metrics of clients (KIP-714) in KRaft mode only, and this is Kafka with "
        "ZooKeeper.",
        file=sys.stderr,
    )
    return 1
