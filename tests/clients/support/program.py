"""What the Python client programs share: arguments in, one JSON line out, bytes as base64."""

import base64
import json
import logging
import pathlib
import ssl
import sys
import time
from collections.abc import Callable
from typing import Any

Scenario = Callable[[str, dict[str, Any]], dict[str, Any]]
SECURITY: dict[str, str] = {}  # how round trips connect; empty: by PLAINTEXT. See rounds.py.


def main(client: str, scenarios: dict[str, Scenario]) -> None:
    """Run the scenario that the command line names and print its report."""
    bootstrap, scenario, file, *more = sys.argv[1:]
    plan = json.loads(pathlib.Path(file).read_text())
    for each in more:
        SECURITY.update(json.loads(pathlib.Path(each).read_text()))
        logging.basicConfig(level=logging.WARNING)  # where the libraries say why they retry
    report = {"client": client, **scenarios[scenario](bootstrap, plan)}
    sys.stdout.write(json.dumps(report) + "\n")


def ssl_context() -> ssl.SSLContext | None:
    """What verifies the broker, and presents the client's certificate if it has one."""
    if "ca" not in SECURITY:
        return None
    context = ssl.create_default_context(cafile=SECURITY["ca"])
    if "certificate" in SECURITY:
        context.load_cert_chain(SECURITY["certificate"])
    return context


def token() -> str:
    """The bearer token of this client."""
    return pathlib.Path(SECURITY["token"]).read_text()


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


def until(wanted: Any, look: Callable[[], Any], *, within_s: float = 60.0) -> Any:
    """The result of `look`, polled until it is as wanted or the time is over."""
    deadline_s = time.monotonic() + within_s
    while True:
        seen = look()
        if seen == wanted or time.monotonic() > deadline_s:
            return seen
        time.sleep(0.05)
