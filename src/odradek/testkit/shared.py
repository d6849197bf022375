"""A cluster that several tests share: each has a prefix for its topics and groups."""

import secrets
from typing import Any, Final

from odradek.testkit.cluster import KafkaCluster
from odradek.testkit.errors import KitError

_PREFIX_CHARS: Final = 80
# They would break the tests that follow.
_REFUSED: Final = frozenset({"advance", "close", "kill", "open", "pause", "stop"})


class SharedKafka:
    """A view of a cluster; all that does not harm other tests is passed on to it."""

    def __init__(self, cluster: KafkaCluster, test: str) -> None:
        # Two parameters may differ only beyond the limit, and a test may be repeated.
        self.prefix = f"{test[:_PREFIX_CHARS]}-{secrets.token_hex(3)}-"
        self._cluster = cluster

    def name(self, name: str) -> str:
        """A name of this test alone, for a topic, a group or a transactional id."""
        return self.prefix + name

    def topic(self, name: str = "topic", partitions: int = 1, **configs: object) -> str:
        """Create a topic with the prefix; its whole name."""
        __tracebackhide__ = True
        return self._cluster.topic(self.name(name), partitions, **configs)  # type: ignore[arg-type]

    def __getattr__(self, name: str) -> Any:
        __tracebackhide__ = True
        if name in _REFUSED:
            raise KitError(
                f"{name}: the broker of the fixture `kafka` is shared with other tests; use "
                "kafka_cluster for one of your own"
            )
        return getattr(self._cluster, name)
