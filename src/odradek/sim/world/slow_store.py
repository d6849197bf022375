"""Slow answers of the coordination store: to one broker or to all, for one operation or all.

Answers and events of one session arrive in their order, as over one TCP connection; a late one
delays those behind it. Requests overtake each other, and so do the answers of different sessions.
"""

import random
from dataclasses import dataclass, replace
from typing import Final

from odradek.coord.memory import RequestFate

# What `MemoryStore` asks a fate for.
OPERATIONS: Final = (
    "open",
    "get",
    "get_many",
    "exists",
    "children",
    "create",
    "set_data",
    "delete",
    "multi",
    "multi_many",
    "watch",
    "expiry",
)
# A busy store, one that flushes, and one that is about to fail. A client of ZooKeeper gives a
# connection up that is silent for two thirds of the session time-out (here 4 s of 6 s).
DELAYS_MS: Final = ((20, 100), (100, 1_000), (1_000, 3_900))
SHARES: Final = (0.1, 0.3, 1.0)


@dataclass(frozen=True, slots=True, kw_only=True)
class SlowStore:
    """Delays that are added to some of the requests of some brokers."""

    broker: int | None = None  # None: of all brokers and clients
    operations: tuple[str, ...] = tuple(sorted(OPERATIONS))
    share: float = 1.0  # of the requests
    delay_ms: tuple[int, int] = DELAYS_MS[0]  # from and to
    delays_requests: bool = False
    delays_answers: bool = True

    def delay(
        self, fate: RequestFate, chance: random.Random, operation: str, broker: int
    ) -> RequestFate:
        """The fate of a request of a broker (-1: a client), or of an event for it."""
        if self.broker not in {None, broker} or operation not in self.operations:
            return fate
        if chance.random() >= self.share:
            return fate
        late_ms = chance.randint(*self.delay_ms)
        if self.delays_requests:
            fate = replace(fate, request_delay_ms=fate.request_delay_ms + late_ms)
        if self.delays_answers:
            fate = replace(fate, answer_delay_ms=fate.answer_delay_ms + late_ms)
        return fate


def draw_slow_store(chance: random.Random, broker: int) -> SlowStore:
    """For all brokers or `broker` only, how often, how slow, and on which way."""
    operations = chance.choice(
        (OPERATIONS, chance.sample(OPERATIONS, 3), chance.sample(OPERATIONS, 1))
    )
    requests, answers = chance.choice(((False, True), (False, True), (True, False), (True, True)))
    low, high = chance.choice(DELAYS_MS)
    if requests and answers:  # the delays of both ways add up
        low, high = low // 2, high // 2
    return SlowStore(
        broker=chance.choice((broker, broker, None)),
        operations=tuple(sorted(operations)),
        share=chance.choice(SHARES),
        delay_ms=(low, high),
        delays_requests=requests,
        delays_answers=answers,
    )
