"""The lag of a streaming query behind its topics, from the query's own progress.

PySpark's Python sources cannot report metrics of their own, but each progress has the offsets of
the query and the end offsets of the topics.
"""

import json
from collections.abc import Callable
from typing import Any

from pyspark.sql.streaming import StreamingQueryListener

from odradek.model.partition import TopicPartition
from odradek.spark.offsets import from_json

Report = Callable[[str, dict[TopicPartition, int]], None]


def lag_of(progress: Any) -> dict[TopicPartition, int]:
    """The number of offsets not read yet, for each partition of the query's topics."""
    lag: dict[TopicPartition, int] = {}
    for source in progress.sources:
        ends, latest = _offsets(source.endOffset), _offsets(source.latestOffset)
        for partition, end in latest.items():
            lag[partition] = max(0, end - ends.get(partition, 0))
    return lag


def _offsets(text: str | None) -> dict[TopicPartition, int]:
    """Offsets from JSON; empty for a source of another kind."""
    try:
        return from_json(json.loads(text or "{}"))
    except (ValueError, AttributeError, TypeError):
        return {}


class LagListener(StreamingQueryListener):  # type: ignore[misc]  # pyspark is not typed for us
    """Calls back with a query's name or id and its lag, after each of its triggers."""

    def __init__(self, report: Report) -> None:
        self._report = report

    def onQueryStarted(self, event: Any) -> None:  # noqa: N802  pyspark's
        """A query without a progress has no lag to report."""

    def onQueryProgress(self, event: Any) -> None:  # noqa: N802  pyspark's
        """Report the lag after a trigger."""
        progress = event.progress
        self._report(progress.name or str(progress.id), lag_of(progress))

    def onQueryIdle(self, event: Any) -> None:  # noqa: N802  pyspark's
        ...

    def onQueryTerminated(self, event: Any) -> None:  # noqa: N802  pyspark's
        """A query that has ended has no lag to report."""
