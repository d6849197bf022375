"""How far a streaming query is behind its topics, from the query's own progress.

PySpark gives Python sources no way to report metrics of their own, but each progress has where
the query has got to and where the topics end.
"""

import json
from collections.abc import Callable
from typing import Any

from pyspark.sql.streaming import StreamingQueryListener

from odradek.model.partition import TopicPartition
from odradek.spark.offsets import from_json

Report = Callable[[str, dict[TopicPartition, int]], None]


def lag_of(progress: Any) -> dict[TopicPartition, int]:
    """For each partition of the query's topics, how many offsets were not read yet."""
    lag: dict[TopicPartition, int] = {}
    for source in progress.sources:
        ends, latest = _offsets(source.endOffset), _offsets(source.latestOffset)
        for partition, end in latest.items():
            lag[partition] = max(0, end - ends.get(partition, 0))
    return lag


def _offsets(text: str | None) -> dict[TopicPartition, int]:
    """Offsets as JSON; nothing for a source of another kind."""
    try:
        return from_json(json.loads(text or "{}"))
    except (ValueError, AttributeError, TypeError):
        return {}


class LagListener(StreamingQueryListener):  # type: ignore[misc]  # pyspark is not typed for us
    """Tells the lag of every query after each of its triggers: its name or id, and the lag."""

    def __init__(self, report: Report) -> None:
        self._report = report

    def onQueryStarted(self, event: Any) -> None:  # noqa: N802  pyspark's
        """Nothing is known yet."""

    def onQueryProgress(self, event: Any) -> None:  # noqa: N802  pyspark's
        """A trigger is done."""
        progress = event.progress
        self._report(progress.name or str(progress.id), lag_of(progress))

    def onQueryIdle(self, event: Any) -> None:  # noqa: N802  pyspark's
        ...

    def onQueryTerminated(self, event: Any) -> None:  # noqa: N802  pyspark's
        """The query has ended."""
