"""The rate of a load, and the bounded end of a client that may not end by itself."""

import threading
import time
from collections import Counter
from collections.abc import Callable
from typing import Final

CLOSE_S: Final = 60.0


class Pace:
    """A rate a second, whatever each one takes."""

    def __init__(self, by_second: float, clock_s: Callable[[], float] = time.monotonic) -> None:
        self._each_s = 1 / by_second
        self._clock_s = clock_s
        self._next_s = clock_s()

    def pause_s(self, count: int = 1) -> float:
        """The time to wait after `count` more; a delay is not followed by a burst."""
        now_s = self._clock_s()
        self._next_s = max(now_s, self._next_s + count * self._each_s)
        return self._next_s - now_s

    def serve(self, poll: Callable[[float], object]) -> None:
        """Wait until the next one is due, in calls of `poll`, each with the seconds that are left.

        librdkafka's `poll` returns before its timeout as soon as it has delivered something.
        """
        left_s = self.pause_s()
        poll(left_s)
        while (left_s := self._next_s - self._clock_s()) > 0:
            poll(left_s)


class Clients:
    """Where librdkafka's clients connect; and their end, which `abandoned` counts if it hangs.

    `rd_kafka_destroy` joins the client's threads, and one of them may never end. What such a client
    had to do is done by then, and is compared at the end of the run like everything else.
    """

    def __init__(self, bootstrap: str, *, close_s: float = CLOSE_S) -> None:
        self.bootstrap = bootstrap
        self.abandoned: Counter[str] = Counter()
        self._close_s = close_s

    def close(self, what: str, close: Callable[[], object]) -> None:
        """Call `close` in a thread of its own, and wait for its end for a limited time.

        Raises:
            Exception: what `close` has raised.
        """
        failed: list[Exception] = []

        def closing() -> None:
            try:
                close()
            except Exception as error:
                failed.append(error)

        thread = threading.Thread(target=closing, name=f"close {what}", daemon=True)
        thread.start()
        thread.join(self._close_s)
        if thread.is_alive():
            self.abandoned[what] += 1
        if failed:
            raise failed[0]
