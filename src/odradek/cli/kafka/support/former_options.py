"""Options of earlier versions of Kafka's tools, which books still use, and their successors.

Kafka 3.9 refuses them as unknown, and so do we; a second line, which is ours, says what to write.
"""

from collections.abc import Container
from typing import Final

_SERVERS: Final = ("bootstrap-server", "broker-list")
_ZOOKEEPER: Final = "zookeeper"
# Options that became the only way.
_ONLY_WAY: Final = {"new-consumer": "consumer", "new-producer": "producer"}


def successor(name: str, options: Container[str]) -> str:
    """A sentence about an unknown option; "" if no version had it. `options` are the tool's."""
    server = next((each for each in _SERVERS if each in options), None)
    if server is None:
        return ""
    if name == _ZOOKEEPER:
        return (
            f"--zookeeper was removed: tools connect to brokers. Instead: --{server} HOST:PORT, "
            "with the address of a broker"
        )
    if name in _ONLY_WAY:
        return (
            f"--{name} was removed: there is no other {_ONLY_WAY[name]} any more. Leave it out, "
            f"and name the brokers with --{server} HOST:PORT"
        )
    return ""
