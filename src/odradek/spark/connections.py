"""One connection to a cluster for each Python worker, kept from task to task.

Spark reuses its workers, so a query after the first finds the cluster known and connected. This
is the one place of the package with state of its own, because nothing else of a worker lives
longer than a task. A worker that was forked after somebody connected begins anew.
"""

import gc
import os
from collections import OrderedDict
from collections.abc import Coroutine, Mapping
from typing import Any, Final, TypeVar

from odradek.client.arrow.cluster import ArrowCluster
from odradek.client.arrow.loop import LoopThread
from odradek.client.cluster import BootstrapError
from odradek.client.security.protocol import AuthenticationError
from odradek.spark.options import client_settings

# Clusters that one worker talks to; the least recently used is left.
_CLUSTERS_MAX: Final = 8

T = TypeVar("T")


class Connections:
    """Clusters by the properties that lead to them."""

    def __init__(self) -> None:
        self._pid = -1
        self._thread: LoopThread | None = None
        self._is_settled = False
        self._clusters: OrderedDict[tuple[tuple[str, str], ...], ArrowCluster] = OrderedDict()

    @property
    def thread(self) -> LoopThread:
        """Where the sockets are waited for."""
        if self._thread is None or self._pid != os.getpid():
            self._thread, self._pid = LoopThread(), os.getpid()
            self._clusters.clear()
            self._is_settled = False
        return self._thread

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        """Run to its end."""
        return self.thread.run(work)

    def cluster(self, kafka: Mapping[str, str], what: str) -> ArrowCluster:
        """The cluster that these properties lead to, connected; `what` it is for, in words.

        Raises:
            OptionError: a property that cannot be used.
            BootstrapError: nobody there. AuthenticationError: not for us.
        """
        thread = self.thread
        key = tuple(sorted(kafka.items()))
        cluster = self._clusters.get(key)
        if cluster is None:
            settings = client_settings(kafka, client_id="odradek-spark")
            try:
                cluster = thread.run(ArrowCluster.connect(settings))
            except AuthenticationError as error:
                raise AuthenticationError(f"{what}: {error}") from None
            except BootstrapError as error:
                raise BootstrapError(f"{what}: {error}") from None
            self._clusters[key] = cluster
            if len(self._clusters) > _CLUSTERS_MAX:
                _, left = self._clusters.popitem(last=False)
                thread.run(left.close())
        elif not self._is_settled:
            # Spark collects garbage after every task, before the next one may begin: 40 to 80 ms
            # to look through the modules of Arrow, numpy and ours, which stay anyway.
            gc.freeze()
            self._is_settled = True
        self._clusters.move_to_end(key)
        return cluster


CONNECTIONS: Final = Connections()
