"""`odradek doctor --watch`: examines a cluster again and again, and reports what changes.

What is new and what is solved is printed and, with `--webhook`, sent as JSON by POST. With
`--listen` the present findings are metrics for Prometheus. One examination follows the other, so a
slow cluster is not asked by several at once.
"""

import json
import signal
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Mapping, Sequence
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Final, NamedTuple

import click

from odradek.cli.failures import ToolError
from odradek.net.https import NoRedirect
from odradek.obs.exposition import TEXT_TYPE, Family, labelled, written
from odradek.plan.facts import Finding, Severity

ATTEMPTS: Final = 3
_FIRST_PAUSE_S: Final = 1.0
_POST_TIMEOUT_S: Final = 10.0
_REQUEST_TIMEOUT_S: Final = 10.0


class FindingsChange(NamedTuple):
    """What differs from the examination before."""

    new: tuple[Finding, ...]
    solved: tuple[Finding, ...]

    def __bool__(self) -> bool:
        return bool(self.new or self.solved)


def change(before: Sequence[Finding], after: Sequence[Finding]) -> FindingsChange:
    """Compare two examinations. A finding is the same while severity, kind and subject are."""
    known, present = {f[:3] for f in before}, {f[:3] for f in after}
    return FindingsChange(
        tuple(finding for finding in after if finding[:3] not in known),
        tuple(finding for finding in before if finding[:3] not in present),
    )


def watch(
    findings: Callable[[], list[Finding]],
    *,
    every: float,
    webhook: str | None,
    listen: str | None,
    as_json: bool,
) -> int:
    """Examine until SIGINT or SIGTERM. Returns the exit code.

    Raises:
        ToolError: an invalid URL or address.
    """
    if webhook:
        check_url(webhook)
    exporter = Exporter(*address(listen)) if listen else None
    if exporter is not None:
        click.echo(f"metrics at port {exporter.port}, path /metrics", err=True)
    stopping = threading.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda *_: stopping.set())

    def examine() -> list[Finding]:
        found = findings()
        if exporter is not None:
            exporter.text = metrics_text(found, time.time())
        return found

    def report(changed: FindingsChange, found: list[Finding]) -> None:
        body = message(time.time(), changed, found)
        print(json.dumps(body) if as_json else lines(body), flush=True)
        if webhook and changed:
            why = post(webhook, body, pause=stopping.wait)
            if why is not None:
                click.echo(f"the webhook did not take a change: {why}", err=True)

    try:
        watching = ClusterWatch(examine, report=report, wait=lambda: not stopping.wait(every))
        return watching.run()
    finally:
        if exporter is not None:
            exporter.close()


class ClusterWatch:
    """Examines, compares, and reports to its listeners."""

    def __init__(
        self,
        examine: Callable[[], list[Finding]],
        *,
        report: Callable[[FindingsChange, list[Finding]], None],
        wait: Callable[[], bool],
    ) -> None:
        """`wait` returns after the interval: whether to go on.

        `report` is called with the first examination, and with each one that differs.
        """
        self._examine = examine
        self._report = report
        self._wait = wait

    def run(self) -> int:
        """ClusterWatch until `wait` ends it. The exit code is 1 if something does not work then."""
        findings: list[Finding] = []
        is_first = True
        while True:
            before, findings = findings, self._examine()
            changed = change(before, findings)
            if changed or is_first:
                self._report(changed, findings)
            is_first = False
            if not self._wait():
                return int(any(f.severity is Severity.CRITICAL for f in findings))


def message(at_s: float, changed: FindingsChange, findings: Sequence[Finding]) -> Mapping[str, Any]:
    """What a webhook gets, and what `--json` prints as one line."""
    return {
        "at": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(at_s)),
        "new": [finding.as_plain() for finding in changed.new],
        "solved": [finding.as_plain() for finding in changed.solved],
        "findings": [finding.as_plain() for finding in findings],
    }


def lines(body: Mapping[str, Any]) -> str:
    """A change as it is printed."""
    at, count = body["at"], len(body["findings"])
    text = [f"{at} solved: {each['kind']}: {each['subject']}" for each in body["solved"]]
    for each in body["new"]:
        text += [
            f"{at} {each['severity']}: {each['kind']}: {each['subject']}",
            f"    why: {each['why']}",
            f"    fix: {each['fix']}",
        ]
    what = f"{count} finding{'s' * (count > 1)}" if count else "Nothing is wrong"
    return "\n".join([*text, f"{at} {what}."])


# ------------------------------------------------------------------------------------- webhook


def check_url(url: str) -> None:
    """Refuse a webhook's address that is not one of http or https.

    Raises:
        ToolError: with the address.
    """
    if not url.startswith(("http://", "https://")):
        raise ToolError(f"--webhook {url}: an http or https URL is needed")


def post(
    url: str,
    body: Mapping[str, Any],
    *,
    pause: Callable[[float], object],
    opener: Callable[..., Any] | None = None,
) -> str | None:
    """Send JSON, at most `ATTEMPTS` times. Returns why it failed; None if it was taken.

    A redirect is a failure: it would send the message as a GET, or to another host. An answer of
    400 to 499 is not tried again: the same message would be refused again.
    """
    send = opener or urllib.request.build_opener(NoRedirect).open
    request = urllib.request.Request(
        url,
        data=json.dumps(body).encode(),
        headers={"Content-Type": "application/json", "User-Agent": "odradek-doctor"},
        method="POST",
    )
    why = ""
    for attempt in range(ATTEMPTS):
        if attempt:
            pause(_FIRST_PAUSE_S * 2 ** (attempt - 1))
        try:
            with send(request, timeout=_POST_TIMEOUT_S):
                return None
        except urllib.error.HTTPError as error:
            why = f"HTTP {error.code}"
            error.close()
            if 400 <= error.code < 500:
                break
        except (OSError, ValueError) as error:
            why = str(error)
    return why


# ------------------------------------------------------------------------------------ exporter


def metrics_text(findings: Sequence[Finding], at_s: float) -> bytes:
    """The present findings as metrics."""
    counts = dict.fromkeys(Severity, 0)
    for finding in findings:
        counts[finding.severity] += 1
    families = (
        Family(
            "odradek_doctor_finding",
            "gauge",
            "1 for each finding of the last examination.",
            [
                ("", labelled(("severity", "kind", "subject"), _labels(finding)), 1)
                for finding in findings
            ],
        ),
        Family(
            "odradek_doctor_findings",
            "gauge",
            "The number of findings of the last examination.",
            [
                ("", labelled(("severity",), (severity.name.lower(),)), count)
                for severity, count in counts.items()
            ],
        ),
        Family(
            "odradek_doctor_examined_timestamp_seconds",
            "gauge",
            "When the last examination ended.",
            [("", "", at_s)],
        ),
    )
    return b"".join(piece for family in families for piece in written(family, is_open=False))


def _labels(finding: Finding) -> tuple[str, str, str]:
    return finding.severity.name.lower(), finding.kind, finding.subject


def address(listen: str) -> tuple[str, int]:
    """Host and port of `--listen`.

    Raises:
        ToolError: it is neither a port nor HOST:PORT.
    """
    host, _, port = listen.rpartition(":")
    if not port.isdecimal() or int(port) > 65_535:
        raise ToolError(f"--listen {listen}: a port or HOST:PORT is needed")
    return host.strip("[]") or "127.0.0.1", int(port)


class Exporter:
    """Serves the latest text at `/metrics`, in threads of its own."""

    def __init__(self, host: str, port: int) -> None:
        """Listen there; port 0 is any that is free.

        Raises:
            ToolError: the address cannot be used.
        """
        self.text = b""
        exporter = self

        class Scrape(BaseHTTPRequestHandler):
            timeout = _REQUEST_TIMEOUT_S

            def do_GET(self) -> None:
                is_there = self.path.partition("?")[0] == "/metrics"
                body = exporter.text if is_there else b"there is only /metrics\n"
                self.send_response(200 if is_there else 404)
                self.send_header("Content-Type", TEXT_TYPE if is_there else "text/plain")
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, *_: Any) -> None:
                """Log nothing: a scrape every few seconds is no event."""

        try:
            self._server = ThreadingHTTPServer((host, port), Scrape)
        except OSError as error:
            raise ToolError(f"--listen {host}:{port}: {error.strerror or error}") from None
        self._server.daemon_threads = True
        self.port = int(self._server.server_address[1])
        threading.Thread(target=self._server.serve_forever, daemon=True).start()

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()
