"""`odradek doctor --watch`: examines a cluster again and again, and reports what changes.

What is new and what is solved is printed and, with `--webhook`, sent as JSON by POST. With
`--listen` the present findings are metrics for Prometheus. One examination follows the other, so a
slow cluster is not asked by several at once.

A finding is solved if an examination that covers it does not find it. If the examination could not
look, the finding stays, "not examined since" the last one that covered it.
"""

import json
import signal
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Mapping
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Final, NamedTuple

import click

from odradek.cli.failures import ToolError
from odradek.model.errors import OdradekError
from odradek.model.printable import printable
from odradek.net.https import NoRedirect
from odradek.obs.exposition import TEXT_TYPE, Family, labelled, written
from odradek.plan.examination import Denied, Examination, any_critical, failed, summary
from odradek.plan.facts import Finding, Severity

ATTEMPTS: Final = 3
_FIRST_PAUSE_S: Final = 1.0
_POST_TIMEOUT_S: Final = 10.0
_REQUEST_TIMEOUT_S: Final = 10.0


class Present(NamedTuple):
    """A finding that is there, or was when it was examined last."""

    finding: Finding
    examined_s: float | None = None  # None: now; otherwise the last examination that covered it

    def as_plain(self) -> dict[str, Any]:
        at = None if self.examined_s is None else moment(self.examined_s)
        return {**self.finding.as_plain(), "not_examined_since": at}


class FindingsChange(NamedTuple):
    """The differences from the examination before."""

    new: tuple[Finding, ...] = ()
    solved: tuple[Finding, ...] = ()
    not_examined: tuple[Finding, ...] = ()  # found before, and not examined now
    examined_again: tuple[Finding, ...] = ()  # not examined before, and found again
    areas_differ: bool = False  # what was not examined

    def __bool__(self) -> bool:
        return any(self)


class Findings(NamedTuple):
    """All findings, and the areas that the last examination did not examine, with the reasons."""

    present: tuple[Present, ...] = ()
    unexamined: Mapping[str, str] = {}
    last_s: float = 0.0  # when the last examination ended
    denied: Mapping[str, Denied] = {}  # likewise, for want of a permission

    @property
    def exit_code(self) -> int:
        """1 if something does not work, or may not: it could not be examined."""
        return int(bool(self.unexamined) or any_critical(each.finding for each in self.present))

    def after(self, seen: Examination, now_s: float) -> "tuple[Findings, FindingsChange]":
        """The findings after another examination, and what it changes.

        A finding is the same while severity, kind and subject are.
        """
        known = {each.finding[:3]: each for each in self.present}
        found = {finding[:3] for finding in seen.findings}
        absent = [each for key, each in known.items() if key not in found]
        kept = [each for each in absent if not seen.covers(each.finding)]
        changed = FindingsChange(
            tuple(finding for finding in seen.findings if finding[:3] not in known),
            tuple(each.finding for each in absent if seen.covers(each.finding)),
            tuple(each.finding for each in kept if each.examined_s is None),
            tuple(
                finding
                for finding in seen.findings
                if (before := known.get(finding[:3])) and before.examined_s is not None
            ),
            (seen.not_examined.keys(), seen.denied.keys())
            != (self.unexamined.keys(), self.denied.keys()),
        )
        present = [
            *map(Present, seen.findings),
            *(each._replace(examined_s=each.examined_s or self.last_s) for each in kept),
        ]
        present.sort(key=lambda each: each.finding[:3])
        return Findings(tuple(present), seen.not_examined, now_s, seen.denied), changed


def watch(
    examine: Callable[[], Examination],
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

    def examined(found: Findings) -> None:
        if exporter is not None:
            exporter.text = metrics_text(found)

    def report(changed: FindingsChange, found: Findings) -> None:
        body = message(changed, found)
        print(json.dumps(body) if as_json else lines(body), flush=True)
        if webhook and changed:
            why = post(webhook, body, pause=stopping.wait)
            if why is not None:
                click.echo(f"the webhook did not take a change: {why}", err=True)

    try:
        watching = ClusterWatch(
            examine,
            now_s=time.time,
            examined=examined,
            report=report,
            wait=lambda: not stopping.wait(every),
        )
        return watching.run()
    finally:
        if exporter is not None:
            exporter.close()


class ClusterWatch:
    """Examines, compares, and reports to its listeners."""

    def __init__(
        self,
        examine: Callable[[], Examination],
        *,
        now_s: Callable[[], float],
        examined: Callable[[Findings], None],
        report: Callable[[FindingsChange, Findings], None],
        wait: Callable[[], bool],
    ) -> None:
        """`wait` returns after the interval: whether to go on.

        `examined` is called after each examination, and then `report` with the first one and with
        each one that differs.
        """
        self._examine = examine
        self._now_s = now_s
        self._examined = examined
        self._report = report
        self._wait = wait

    def run(self) -> int:
        """Examine until `wait` ends it. The exit code is that of the last examination.

        Raises:
            OdradekError, OSError: the first examination fails.
        """
        findings = Findings()
        seen = self._examine()
        is_first = True
        while True:
            findings, changed = findings.after(seen, self._now_s())
            self._examined(findings)
            if changed or is_first:
                self._report(changed, findings)
            is_first = False
            if not self._wait():
                return findings.exit_code
            try:
                seen = self._examine()
            except (OdradekError, OSError) as error:
                seen = failed(str(error) or type(error).__name__)


def moment(at_s: float) -> str:
    """A moment in UTC, as in RFC 3339."""
    return time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(at_s))


def message(changed: FindingsChange, findings: Findings) -> Mapping[str, Any]:
    """What a webhook gets, and what `--json` prints as one line."""
    return {
        "at": moment(findings.last_s),
        "new": [finding.as_plain() for finding in changed.new],
        "solved": [finding.as_plain() for finding in changed.solved],
        "no_longer_examined": [finding.as_plain() for finding in changed.not_examined],
        "examined_again": [finding.as_plain() for finding in changed.examined_again],
        "findings": [each.as_plain() for each in findings.present],
        "not_examined": dict(findings.unexamined),
        "denied": {area: denied.as_plain() for area, denied in findings.denied.items()},
    }


def lines(body: Mapping[str, Any]) -> str:
    """A change as it is printed."""
    at, findings = body["at"], body["findings"]
    text = [f"{at} solved: {each['kind']}: {each['subject']}" for each in body["solved"]]
    for each in body["new"]:
        text += [
            f"{at} {each['severity']}: {each['kind']}: {each['subject']}",
            f"    why: {each['why']}",
            f"    fix: {each['fix']}",
        ]
    text += [f"{at} not examined: {area}: {why}" for area, why in body["not_examined"].items()]
    for area, denied in body["denied"].items():
        text += [f"{at} may not be examined: {area}: {denied['why']}", f"    fix: {denied['fix']}"]
    since = {(f["kind"], f["subject"]): f["not_examined_since"] for f in findings}
    text += [
        f"{at} unknown whether it is solved: {each['kind']}: {each['subject']}: not examined since "
        f"{since[each['kind'], each['subject']]}"
        for each in body["no_longer_examined"]
    ]
    text += [
        f"{at} examined again, and not solved: {each['kind']}: {each['subject']}"
        for each in body["examined_again"]
    ]
    old = sum(each["not_examined_since"] is not None for each in findings)
    more = f", {old} of them not examined now" if old else ""
    unseen = {**body["not_examined"], **body["denied"]}
    text.append(f"{at} {summary(len(findings), unseen)}{more}.")
    return "\n".join(map(printable, text))


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


def metrics_text(found: Findings) -> bytes:
    """The present findings as metrics."""
    findings = [each.finding for each in found.present]
    counts = dict.fromkeys(Severity, 0)
    for finding in findings:
        counts[finding.severity] += 1
    families = (
        Family(
            "odradek_doctor_finding",
            "gauge",
            "1 for each finding of the last examination, or of an earlier one that covered it.",
            [
                ("", labelled(("severity", "kind", "subject"), _labels(finding)), 1)
                for finding in findings
            ],
        ),
        Family(
            "odradek_doctor_findings",
            "gauge",
            "The number of these findings.",
            [
                ("", labelled(("severity",), (severity.name.lower(),)), count)
                for severity, count in counts.items()
            ],
        ),
        Family(
            "odradek_doctor_not_examined",
            "gauge",
            "1 for each area that the last examination could not examine.",
            [("", labelled(("area",), (area,)), 1) for area in sorted(found.unexamined)],
        ),
        Family(
            "odradek_doctor_examined_timestamp_seconds",
            "gauge",
            "When the last examination ended.",
            [("", "", found.last_s)],
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
