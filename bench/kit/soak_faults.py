"""Faults of three brokers, and of their ZooKeeper, under load.

At most one broker is down at a time, and sometimes two. One broker at a time is only paused and
never ended, for at least an hour (`soak_plan`).
"""

import random
import threading
import time
from collections.abc import Callable, Mapping

from kit import mixed, raw
from kit.soak_plan import spared

READY_S = 120.0


class Faults:
    """A sequence of faults drawn from a seed; `story` has each fault and its time."""

    def __init__(
        self,
        brokers: Mapping[int, mixed.OurBroker],
        restart_store: Callable[[float], None] | None,
        *,
        seed: int,
        duration_s: float,
        pause_s: float,
    ) -> None:
        """`restart_store` kills the coordination store and restarts it after a number of seconds;
        `pause_s` is the mean time between the end of a fault and the next."""
        self.story: list[str] = []
        self.counts: dict[str, int] = {}
        self._brokers = brokers
        self._restart_store = restart_store
        self._random = random.Random(seed)
        self._duration_s = duration_s
        self._pause_s = pause_s
        self._begun_s = time.monotonic()
        self._ended = threading.Event()

    def run(self, loads_must_live: Callable[[], None]) -> None:
        """Inject one fault after the other until the end of the run, or until a load has failed.

        Raises:
            Exception: what `loads_must_live` raises; it is called before each fault.
        """
        deeds = [self._kill, self._kill, self._pause, self._pause, self._stop, self._kill_two]
        deeds += [self._roll, self._kill_controller]
        if self._restart_store is not None:
            deeds += [self._store]
        while self._age_s() < self._duration_s:
            loads_must_live()
            self._random.choice(deeds)()
            self._ended.wait(self._random.expovariate(1 / self._pause_s))

    def _age_s(self) -> float:
        return time.monotonic() - self._begun_s

    def _spared(self) -> int:
        return spared(sorted(self._brokers), self._age_s(), self._duration_s)

    def _victims(self, count: int) -> list[mixed.OurBroker]:
        allowed = [number for number in sorted(self._brokers) if number != self._spared()]
        return [self._brokers[number] for number in self._random.sample(allowed, count)]

    def _note(self, kind: str, *brokers: mixed.OurBroker) -> None:
        self.counts[kind] = self.counts.get(kind, 0) + 1
        names = " ".join(str(broker.broker_id) for broker in brokers)
        self.story.append(f"{self._age_s():8.1f} s  {kind} {names}".rstrip())

    def _kill(self, broker: mixed.OurBroker | None = None) -> None:
        broker = broker or self._victims(1)[0]
        self._note("kill -9", broker)
        broker.kill()
        time.sleep(self._random.uniform(0, 8))
        broker.start()

    def _kill_controller(self) -> None:
        for broker in self._brokers.values():
            controller = raw.metadata(broker.address).controller
            if controller in self._brokers and controller != self._spared():
                self._kill(self._brokers[controller])
                return

    def _kill_two(self) -> None:
        first, second = self._victims(2)
        self._note("kill -9", first, second)
        first.kill()
        second.kill()
        time.sleep(self._random.uniform(0, 4))
        second.start()
        first.start()

    def _pause(self) -> None:
        broker = self._brokers[self._random.choice(sorted(self._brokers))]
        self._note("pause", broker)
        broker.pause()
        time.sleep(self._random.uniform(0, 10))  # a session ends after 4 s
        broker.resume()

    def _stop(self) -> None:
        (broker,) = self._victims(1)
        self._note("stop", broker)
        broker.stop()
        broker.start()

    def _roll(self) -> None:
        """Restart the brokers in turn, as in an upgrade."""
        for broker in self._victims(2):
            self._note("rolling restart", broker)
            broker.stop()
            broker.start()
            mixed.until(
                f"all brokers are known to {broker.broker_id}",
                lambda address=broker.address: len(raw.metadata(address).brokers) == 3,
                timeout_s=READY_S,
            )

    def _store(self) -> None:
        assert self._restart_store is not None
        self._note("kill -9 ZooKeeper")
        self._restart_store(self._random.uniform(0, 6))
