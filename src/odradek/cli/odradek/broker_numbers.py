"""The figures of each broker for the live screen of `odradek up`, read over HTTP.

Of `/metrics` only the beginning is read, up to the metrics of single partitions, of which there
may be many. A broker that answers slowly is asked less often.
"""

import json
import time
import urllib.request
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Final, NamedTuple

from odradek.broker.http_token import headers

TIMEOUT_S: Final = 0.5
EVERY_S: Final = 1.0
_SHARE: Final = 20  # at most one part in so many of a broker's time
_CAUSES: Final = 5
_END: Final = b"kafka_log_log_size"
_PREFIX: Final = "kafka_server_"
_NAMES: Final = {
    "replicamanager_partitioncount": "replicas",
    "replicamanager_leadercount": "leaders",
    "replicamanager_underreplicatedpartitions": "under_replicated",
    "replicamanager_offlinereplicacount": "offline",
    "brokertopicmetrics_bytesin_total": "bytes_in",
    "brokertopicmetrics_bytesout_total": "bytes_out",
}

Fetch = Callable[[str, str | None], Iterable[bytes]]  # of a URL, with the file of its token


class Numbers(NamedTuple):
    """The figures of one broker; rates in bytes a second, None before the second reading."""

    replicas: int
    leaders: int
    under_replicated: int
    offline: int
    in_rate: float | None = None
    out_rate: float | None = None
    controller: bool = False


class Counted(NamedTuple):
    """One reading of `/metrics`, and when it was made."""

    at_s: float
    values: Mapping[str, float]


def read_metrics(lines: Iterable[bytes]) -> dict[str, float]:
    """The metrics of `_NAMES`, and `controller`, from Prometheus' text format."""
    found: dict[str, float] = {}
    for raw in lines:
        if raw.startswith(_END):
            break
        name, _, value = raw.decode("utf-8", "replace").rstrip().rpartition(" ")
        short = _NAMES.get(name.removeprefix(_PREFIX))
        if short is not None:
            found[short] = float(value)
        elif name == "kafka_controller_kafkacontroller_activecontrollercount":
            found["controller"] = float(value)
    return found


def numbers(now: Counted, before: Counted | None) -> Numbers:
    """The figures to show, from two readings."""

    def rate(name: str) -> float | None:
        if before is None or now.at_s <= before.at_s:
            return None
        grown = now.values.get(name, 0.0) - before.values.get(name, 0.0)
        return max(0.0, grown) / (now.at_s - before.at_s)  # a restart sets its counters to 0

    count = {name: int(now.values.get(name, 0)) for name in Numbers._fields[:4]}
    return Numbers(
        **count,
        in_rate=rate("bytes_in"),
        out_rate=rate("bytes_out"),
        controller=bool(now.values.get("controller")),
    )


class Watcher:
    """Asks brokers for their numbers, each once a second at most."""

    def __init__(
        self, fetch: Fetch | None = None, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._fetch = fetch or _fetch
        self._clock = clock
        self._counted: dict[int, Counted] = {}
        self._shown: dict[int, Numbers] = {}
        self._due_s: dict[int, float] = {}
        self._causes: dict[int, list[tuple[int, str]]] = {}

    def look(self, brokers: Iterable[Mapping[str, Any]]) -> dict[int, Numbers]:
        """The figures of the brokers that run."""
        for broker in brokers:
            id_, url = broker["id"], broker.get("http")
            if broker["state"] != "running" or not url:
                for kept in (self._counted, self._shown, self._due_s):
                    kept.pop(id_, None)
            elif self._clock() >= self._due_s.get(id_, 0.0):
                self._ask(id_, url, broker.get("http_token_file"))
        return dict(self._shown)

    def causes(self) -> list[str]:
        """The latest decisions of the controller with their causes; the newest last."""
        decisions = sorted({entry for entries in self._causes.values() for entry in entries})
        return [
            f"{time.strftime('%H:%M:%S', time.localtime(at_ms / 1000))}  {says}"
            for at_ms, says in decisions[-_CAUSES:]
        ]

    def _ask(self, id_: int, url: str, token: str | None) -> None:
        begun_s = self._clock()
        try:
            now = Counted(begun_s, read_metrics(self._fetch(f"{url}/metrics", token)))
            lines = self._fetch(f"{url}/journal?limit={_CAUSES}", token)
            journal = json.loads(b"".join(lines))
        except (OSError, ValueError):
            pass  # the former figures stay until the next reading
        else:
            self._causes[id_] = [(e["at_ms"], e["says"]) for e in journal["entries"]]
            self._shown[id_] = numbers(now, self._counted.get(id_))
            self._counted[id_] = now
        took_s = self._clock() - begun_s
        self._due_s[id_] = begun_s + max(EVERY_S, took_s * _SHARE)


def _fetch(url: str, token_file: str | None) -> Iterable[bytes]:
    request = urllib.request.Request(url, headers=headers(token_file))
    with urllib.request.urlopen(request, timeout=TIMEOUT_S) as answer:
        yield from answer
