"""How a broker notifies its supervisor that it serves: a line of JSON in an inherited pipe.

    {"listeners": ["PLAINTEXT://127.0.0.1:20123"], "http": "http://127.0.0.1:20124"}

`http` is null for a broker without one. The pipe closes without a line when the broker ends, so
the supervisor is notified of either at once and does not poll.
"""

import json
import os
import selectors
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Final

_LINE_BYTES_MAX: Final = 65_536
_PROGRESS_S: Final = 10.0


@dataclass(frozen=True, slots=True)
class Ready:
    """The end points of a broker that serves."""

    listeners: tuple[str, ...]
    http: str | None


def report_ready(fd: int, *, listeners: Sequence[str], http: str | None) -> None:
    """Notify the supervisor, if it still runs, that this broker serves, and close the pipe."""
    line = json.dumps({"listeners": list(listeners), "http": http}) + "\n"
    with suppress(BrokenPipeError):
        os.write(fd, line.encode())
    os.close(fd)


def listen(
    pipes: Mapping[int, int], *, timeout_s: float, progress: Callable[[list[int]], None]
) -> Iterator[tuple[int, Ready | None]]:
    """Yield each broker with its end points, or with None if it ended without a line.

    `pipes` has a reading end for each broker id; they are closed. `progress` is called
    repeatedly with the brokers that are still starting. Brokers that are not ready after the
    timeout are not yielded.
    """
    received = dict.fromkeys(pipes, b"")
    deadline_s = time.monotonic() + timeout_s
    with selectors.DefaultSelector() as selector:
        for broker_id, fd in pipes.items():
            selector.register(fd, selectors.EVENT_READ, broker_id)
        try:
            while received and (left_s := deadline_s - time.monotonic()) > 0:
                events = selector.select(min(left_s, _PROGRESS_S))
                if not events:
                    progress(sorted(received))
                for key, _ in events:
                    data = os.read(key.fd, _LINE_BYTES_MAX)
                    received[key.data] += data
                    if not data or b"\n" in data or len(received[key.data]) > _LINE_BYTES_MAX:
                        selector.unregister(key.fd)
                        yield key.data, _parse(received.pop(key.data))
        finally:
            for fd in pipes.values():
                os.close(fd)


def _parse(line: bytes) -> Ready | None:
    try:
        reported = json.loads(line)
        return Ready(tuple(map(str, reported["listeners"])), reported["http"])
    except (ValueError, KeyError, TypeError):
        return None
