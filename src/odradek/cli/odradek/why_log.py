"""What a broker's log remembers of decisions that its journal has lost with the process.

The journal is memory. A broker that was the controller and was restarted has told the state-change
log all the same: each line is read back into an entry, as far as it can be.

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
    """The decisions that these lines tell of, in the form of `/journal`, up to a moment."""
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
