"""The connections of a Python worker to clusters, kept from task to task.

Spark reuses its workers, so a query after the first has connections and metadata already. This
is the only module of the package with state, because nothing else of a worker outlives a task. A
worker that was forked after its parent had connected makes connections of its own.
"""

import gc
import os
from collections import OrderedDict
from collections.abc import Coroutine, Mapping
from typing import Any, Final, TypeVar

from odradek.client.cluster import BootstrapError, Cluster
from odradek.client.loop_thread import LoopThread
from odradek.client.security.protocol import AuthenticationError
from odradek.spark.options import client_settings

# Clusters that one worker is connected to; the least recently used is closed.
_CLUSTERS_MAX: Final = 8

T = TypeVar("T")


class Connections:
    """The connected clusters, by the client properties."""

    def __init__(self) -> None:
        self._pid = -1
        self._thread: LoopThread | None = None
        self._is_settled = False
        self._clusters: OrderedDict[tuple[tuple[str, str], ...], Cluster] = OrderedDict()

    @property
    def thread(self) -> LoopThread:
        if self._thread is None or self._pid != os.getpid():
            self._thread, self._pid = LoopThread("odradek-arrow"), os.getpid()
            self._clusters.clear()
            self._is_settled = False
        return self._thread

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        """Run a coroutine on the loop and return its result."""
        return self.thread.run(work)

    def cluster(self, kafka: Mapping[str, str], what: str) -> Cluster:
        """The cluster of these client properties, connected; `what` it is for is in error texts.

        Raises:
            OptionError: a property has an invalid value.
            BootstrapError: no broker answers. AuthenticationError: it refuses the credentials.
        """
        thread = self.thread
        key = tuple(sorted(kafka.items()))
        cluster = self._clusters.get(key)
        if cluster is None:
            settings = client_settings(kafka, client_id="odradek-spark")
            try:
                cluster = thread.run(Cluster.connect(settings))
            except AuthenticationError as error:
                raise AuthenticationError(f"{what}: {error}") from None
            except BootstrapError as error:
                raise BootstrapError(f"{what}: {error}") from None
            self._clusters[key] = cluster
            if len(self._clusters) > _CLUSTERS_MAX:
                _, left = self._clusters.popitem(last=False)
                thread.run(left.close())
        elif not self._is_settled:
            # Spark collects garbage after every task, before the next one can begin: 40 to 80 ms
            # for the modules of Arrow, numpy and Odradek, which stay anyway.
            gc.freeze()
            self._is_settled = True
        self._clusters.move_to_end(key)
        return cluster


CONNECTIONS: Final = Connections()
