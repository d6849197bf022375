"""What the controller decided, and why: the newest of it in memory, all of it in the log.

The ring is what `why` questions are answered from; the state-change log is for those who come
later.
"""

import logging
from collections import deque
from typing import Final

from odradek.controller.causes import Decision

log = logging.getLogger("odradek.state_change")
DECISIONS_MAX: Final = 10_000


class DecisionJournal:
    """A bounded ring of decisions."""

    def __init__(self) -> None:
        self.decisions: deque[Decision] = deque(maxlen=DECISIONS_MAX)

    def record(self, decision: Decision) -> None:
        """A decision, with its cause."""
        self.decisions.append(decision)
        log.info("%s", decision)

    def note(self, text: str) -> None:
        """Something an operator may want to know."""
        log.warning("%s", text)
