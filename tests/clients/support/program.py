"""What the Python client programs share: arguments in, one JSON line out, bytes as base64."""

import base64
import json
import pathlib
import sys
import time
from collections.abc import Callable
from typing import Any

Scenario = Callable[[str, dict[str, Any]], dict[str, Any]]


def main(client: str, scenarios: dict[str, Scenario]) -> None:
    """Run the scenario that the command line names and print its report."""
    bootstrap, scenario, file = sys.argv[1:]
    plan = json.loads(pathlib.Path(file).read_text())
    report = {"client": client, **scenarios[scenario](bootstrap, plan)}
    sys.stdout.write(json.dumps(report) + "\n")


def to_bytes(text: str | None) -> bytes | None:
    """The bytes of a plan's field."""
    return None if text is None else base64.b64decode(text)


def to_text(data: bytes | None) -> str | None:
    """A report's field for these bytes."""
    return None if data is None else base64.b64encode(data).decode()


def headers_in(record: dict[str, Any]) -> list[tuple[str, bytes | None]]:
    """The headers of a plan's record."""
    return [(name, to_bytes(value)) for name, value in record["headers"]]


def record_out(
    place: tuple[int, int],
    timestamp_ms: int,
    key: bytes | None,
    value: bytes | None,
    headers: Any,
) -> dict[str, Any]:
    """A report's record, read at `place` = (partition, offset)."""
    return {
        "partition": place[0],
        "offset": place[1],
        "timestamp": timestamp_ms,
        "key": to_text(key),
        "value": to_text(value),
        "headers": [[name, to_text(data)] for name, data in headers or ()],
    }


def until(wanted: Any, look: Callable[[], Any], *, within_s: float = 10.0) -> Any:
    """The result of `look`, polled until it is as wanted or the time is over."""
    deadline_s = time.monotonic() + within_s
    while True:
        seen = look()
        if seen == wanted or time.monotonic() > deadline_s:
            return seen
        time.sleep(0.05)
