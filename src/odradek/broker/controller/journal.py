"""The controller's decisions with their causes: the newest in memory, all of them in the log.

`odradek why` and `/journal` read the ring in memory; the state-change log keeps the older ones.
Every broker keeps what it decided while it was controller, so the whole history is that of all
brokers together.
"""

import logging
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from itertools import islice
from typing import Any, Final, NamedTuple

from odradek.controller.causes import Decision, Verdict
from odradek.model.clock import WallMs
from odradek.model.partition import LeaderAndIsr, TopicPartition

STATE_CHANGES: Final = "odradek.state_change"  # the logger; Kafka's is `state.change.logger`
log = logging.getLogger(STATE_CHANGES)
ENTRIES_MAX: Final = 10_000


class Entry(NamedTuple):
    """A decision, or an event in the controller's own life cycle."""

    at_ms: int  # wall clock
    number: int  # of all entries of this broker: their order, where the clock is too coarse
    what: Decision | str
    names_others: bool = False  # a note that may name topics or users


class DecisionJournal:
    """A bounded ring of entries."""

    def __init__(self, wall_ms: Callable[[], WallMs], *, entries_max: int = ENTRIES_MAX) -> None:
        self.entries: deque[Entry] = deque(maxlen=entries_max)
        self._wall_ms = wall_ms
        self._made_ms = wall_ms()
        self._numbered = 0
        self.unclean_elections = 0

    def record(self, decision: Decision) -> None:
        """A decision, with its cause."""
        self._enter(decision)
        unclean = decision.verdict is Verdict.LEADER_ELECTED_UNCLEAN
        self.unclean_elections += unclean
        log.log(logging.WARNING if unclean else logging.INFO, "%s", decision)

    def note(self, text: str) -> None:
        """Enter and log something that is not a decision, such as the end of a term."""
        self._enter(text)
        log.warning("%s", text)

    def note_names(self, text: str) -> None:
        """Enter and log what may name topics or users: not every client may read it."""
        self._enter(text, names_others=True)
        log.warning("%s", text)

    @property
    def begins_ms(self) -> int:
        """Since when nothing is missing here."""
        full = len(self.entries) == self.entries.maxlen
        return self.entries[0].at_ms if full else self._made_ms

    def find(
        self, *, topic: str | None = None, partition: int | None = None, broker: int | None = None
    ) -> Iterator[Entry]:
        """The entries about a topic, one partition of it, or a broker; all if nothing is asked for.

        The newest first. Notes, and brokers that come and go, are about every topic.
        """
        for entry in reversed(self.entries):
            if isinstance(entry.what, str) or _is_about(entry.what, topic, partition, broker):
                yield entry

    def _enter(self, what: Decision | str, *, names_others: bool = False) -> None:
        self._numbered += 1
        self.entries.append(Entry(self._wall_ms(), self._numbered, what, names_others))


def _is_about(
    decision: Decision, topic: str | None, partition: int | None, broker: int | None
) -> bool:
    subject = decision.subject
    if isinstance(subject, int):
        # Brokers that come and go are behind much of what happens to a topic.
        return broker is None or subject == broker
    if topic is None or broker is not None:
        return broker is None
    if isinstance(subject, str):
        return subject == topic
    return subject.topic == topic and partition in (None, subject.partition)


def as_json(entry: Entry) -> Mapping[str, Any]:
    at = {"at_ms": entry.at_ms, "number": entry.number}
    decision = entry.what
    if isinstance(decision, str):
        return {**at, "verdict": None, "says": decision}
    subject = decision.subject
    about: dict[str, Any] = {"topic": None, "partition": None, "broker": None}
    if isinstance(subject, TopicPartition):
        about |= {"topic": subject.topic, "partition": subject.partition}
    else:
        about["topic" if isinstance(subject, str) else "broker"] = subject
    return {
        **at,
        **about,
        "verdict": decision.verdict.name,
        "says": str(decision),
        "cause": {
            "kind": decision.cause.kind.name,
            "brokers": decision.cause.brokers,
            "says": str(decision.cause),
        },
        "before": _led(decision.before),
        "after": _led(decision.after),
        "detail": decision.detail,
    }


def _led(state: LeaderAndIsr | None) -> Mapping[str, Any] | None:
    if state is None:
        return None
    return {
        "leader": state.leader,
        "leader_epoch": state.leader_epoch,
        "isr": state.isr,
        "recovering": bool(state.leader_recovery_state),
    }


def newest(entries: Iterator[Entry], count: int) -> list[Entry]:
    """The first so many, which are the newest, in the order in which they were entered."""
    return list(islice(entries, count))[::-1]
