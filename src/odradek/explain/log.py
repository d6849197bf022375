"""Reads the controller's decisions from before a restart out of a broker's log.

The journal is lost with the process; the state-change log has a line for each decision. Each line
is parsed into a journal entry, as far as it has the fields.

    [2026-05-04 10:01:00,250] INFO t-0: leader elected (leader 2, epoch 1, ISR 2,0) because
    broker 1 began to shut down (odradek.state_change)                              (in one line)
"""

import re
from collections.abc import Iterable, Iterator, Mapping
from datetime import datetime
from typing import Any, Final

from odradek.controller.causes import Verdict

_LINE: Final = re.compile(
    r"\[(?P<at>\d{4}-\d\d-\d\d \d\d:\d\d:\d\d,\d{3})\] INFO "
    r"(?P<says>(?P<subject>\S+): (?P<verdict>[^(\[]+?)"
    r"(?: \(leader (?P<leader>-?\d+), epoch (?P<epoch>\d+), ISR (?P<isr>[\d,]+)\))?"
    r" because (?P<cause>.+?)(?: \[(?P<detail>.*)\])?)"
    r" \(odradek\.state_change\)"
)
_VERDICTS: Final = {verdict.value: verdict.name for verdict in Verdict}
_PARTITION: Final = re.compile(r"(.+)-(\d+)")


def entries(lines: Iterable[str], *, before_ms: int) -> Iterator[Mapping[str, Any]]:
    """The decisions in these lines before a time, in the form of `/journal`."""
    for number, line in enumerate(lines):
        found = _LINE.fullmatch(line.rstrip("\n"))
        if found is None or found["verdict"] not in _VERDICTS:
            continue
        at = datetime.strptime(found["at"], "%Y-%m-%d %H:%M:%S,%f").astimezone()
        at_ms = int(at.timestamp() * 1000)
        if at_ms < before_ms:
            yield _entry(found, at_ms, number)


def _entry(found: re.Match[str], at_ms: int, number: int) -> Mapping[str, Any]:
    verdict, subject = _VERDICTS[found["verdict"]], found["subject"]
    about: dict[str, Any] = {"topic": None, "partition": None, "broker": None}
    of_partition = _PARTITION.fullmatch(subject)
    if subject.isdigit() and not verdict.startswith(("TOPIC", "DELETION")):
        about["broker"] = int(subject)
    elif of_partition and not verdict.startswith(("TOPIC", "DELETION")):
        about |= {"topic": of_partition[1], "partition": int(of_partition[2])}
    else:
        about["topic"] = subject
    after = None
    if found["leader"] is not None:
        after = {
            "leader": int(found["leader"]),
            "leader_epoch": int(found["epoch"]),
            "isr": [int(id_) for id_ in found["isr"].split(",")],
        }
    return {
        "at_ms": at_ms,
        "number": number,
        **about,
        "verdict": verdict,
        "says": found["says"],
        "cause": {"says": found["cause"]},
        "before": None,
        "after": after,
        "detail": found["detail"] or "",
    }
