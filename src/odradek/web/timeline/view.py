"""The journals of all brokers merged, and the cluster as it was at a moment. Pure."""

from dataclasses import dataclass
from typing import Final

from odradek.web.facts.journal import ClusterHistory, Happening
from odradek.web.facts.poller import FactKey, Facts
from odradek.web.now.view import CLUSTER, NowView, now_view

JOURNAL: Final = FactKey("journal")
SHOWN: Final = 200


@dataclass(frozen=True, slots=True, kw_only=True)
class TimelineView:
    """What happened, the newest first, up to a moment if one is given."""

    at_ms: int | None  # the moment that was asked for
    from_ms: int | None  # where the slider begins
    to_ms: int | None
    is_reported: bool
    complete_ms: int | None  # since when nothing is missing
    problem: str | None
    happenings: tuple[Happening, ...]
    more: int
    now: NowView | None  # the cluster as of then; None: it was not observed then


def timeline_view(facts: Facts, past: Facts, at_ms: int | None) -> TimelineView:
    """The timeline of these facts; `past` is what is known of the moment."""
    seen = facts.get(JOURNAL)
    journal: ClusterHistory | None = seen.value if seen else None
    found = journal.happenings if journal else ()
    shown = [each for each in found if at_ms is None or each.at_ms <= at_ms]
    newest = tuple(shown[: -SHOWN - 1 : -1])
    return TimelineView(
        at_ms=at_ms,
        from_ms=found[0].at_ms if found else journal.begins_ms if journal else None,
        to_ms=seen.at_ms if seen else None,
        is_reported=journal is not None and journal.is_reported,
        complete_ms=journal.begins_ms if journal else None,
        problem=seen.problem if seen else None,
        happenings=newest,
        more=len(shown) - len(newest),
        now=now_view(past) if at_ms is not None and CLUSTER in past else None,
    )
