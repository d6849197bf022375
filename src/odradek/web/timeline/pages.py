"""The route of the timeline: it needs the facts of now and those of a moment."""

from starlette.requests import Request

from odradek.web.facts.poller import FactKey, Facts
from odradek.web.live.view import LiveView, number
from odradek.web.now.view import KEYS
from odradek.web.timeline.view import JOURNAL, TimelineView, timeline_view
from odradek.web.workspace import workspace


def _keys(_request: Request) -> tuple[FactKey, ...]:
    return JOURNAL, *KEYS


def _value(facts: Facts, request: Request) -> TimelineView:
    at_ms = number(request, "at")
    past = workspace(request).poller.at(KEYS, at_ms) if at_ms is not None else {}
    return timeline_view(facts, past, at_ms)


TIMELINE = LiveView("/timeline", "timeline.html", _keys, _value, has_both=True)
