"""The live screen of `odradek up`: state and load of each broker on this machine."""

import pathlib
import sys
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

from odradek.cli.odradek.broker_numbers import Numbers, Watcher
from odradek.cli.output import bare
from odradek.local.supervisor import Supervisor
from odradek.model.printable import printable

if TYPE_CHECKING:
    from rich.console import Group
    from rich.table import Table

_COLOURS: Final = {"running": "green", "paused": "yellow", "stopped": "dim"}
_HEADINGS: Final = (
    "broker", "state", "pid", "memory", "leads", "replicas", "lacking", "in", "out", "listeners",
)  # fmt: skip
_TEXTS: Final = ("broker", "state", "listeners")  # left-aligned; all other columns are numbers
# Columns that a narrow terminal drops, in this order: the listeners were printed at the start.
_SPARED: Final = ("listeners", "pid", "memory", "replicas", "out")
_RATE_WIDTH: Final = len("999.9 MiB/s")  # so that the width does not change with the load
_GAP: Final = 2  # between two columns
_UNITS: Final = ((1 << 30, "GiB/s"), (1 << 20, "MiB/s"), (1 << 10, "KiB/s"))


def watch_live(supervisor: Supervisor, watcher: Watcher | None = None) -> None:
    """`Supervisor.watch`, with the screen updated meanwhile.

    Raises:
        LocalError: the last broker has ended, and it was not stopped by a command.
    """
    from rich.console import Console  # noqa: PLC0415 - only a terminal needs it
    from rich.live import Live  # noqa: PLC0415

    asked = Watcher() if watcher is None else watcher
    console = Console(file=bare(sys.stderr))
    width = console.width

    def screen() -> "Group":
        report = supervisor.status()
        return shown(report, asked.look(report["brokers"]), asked.causes(), width)

    live = Live(screen(), console=console, auto_refresh=False)

    def show() -> None:
        nonlocal width, live
        if console.width != width:
            # The terminal was resized and has wrapped the old lines anew, at an unknown place.
            width = console.width
            live.stop()
            console.clear()
            console.print(f"connect to:\n{supervisor.status()['bootstrap']}", highlight=False)
            live = Live(screen(), console=console, auto_refresh=False)
            live.start()
        live.update(screen(), refresh=True)

    live.start()
    try:
        supervisor.watch(show=show)
    finally:
        live.stop()


def shown(
    report: Any, figures: Mapping[int, Numbers], causes: Sequence[str], width: int
) -> "Group":
    """The screen of this width: a row for each broker, and the latest decisions."""
    from rich.console import Group  # noqa: PLC0415
    from rich.text import Text  # noqa: PLC0415

    lines = [
        Text(printable(line), style="dim", no_wrap=True, overflow="ellipsis") for line in causes
    ]
    return Group(table(report, figures, width), *([Text(""), *lines] if lines else []))


def table(report: Any, figures: Mapping[int, Numbers], width: int) -> "Table":
    """The report of `Supervisor.status`, with the brokers' own numbers, as a table that fits."""
    from rich.table import Table  # noqa: PLC0415
    from rich.text import Text  # noqa: PLC0415

    rows = [_row(broker, figures.get(broker["id"])) for broker in report["brokers"]]

    def needed(heading: str) -> int:
        least = _RATE_WIDTH if heading in ("in", "out") else len(heading)
        return max([least, *(Text.from_markup(row[heading]).cell_len for row in rows)])

    headings = list(_HEADINGS)
    for spared in _SPARED:
        if sum(map(needed, headings)) + _GAP * (len(headings) - 1) > width:
            headings.remove(spared)
    made = Table(box=None, pad_edge=False, padding=(0, _GAP, 0, 0))
    for heading in headings:
        made.add_column(
            heading,
            no_wrap=True,
            justify="left" if heading in _TEXTS else "right",
            min_width=_RATE_WIDTH if heading in ("in", "out") else None,
        )
    for row in rows:
        made.add_row(*(row[heading] for heading in headings))
    return made


def _row(broker: Any, numbers: Numbers | None) -> dict[str, str]:
    colour = _COLOURS.get(broker["state"], "red")
    leads, replicas, lacking, received, sent = _cells(numbers)
    return {
        "broker": str(broker["id"]),
        "state": f"[{colour}]{broker['state']}[/]{_role(numbers)}",
        "pid": str(broker["pid"] or "-"),
        "memory": _memory(broker["pid"]),
        "leads": leads,
        "replicas": replicas,
        "lacking": lacking,
        "in": received,
        "out": sent,
        "listeners": ", ".join(broker["listeners"]) or "-",
    }


def _role(numbers: Numbers | None) -> str:
    return " (controller)" if numbers is not None and numbers.controller else ""


def _cells(numbers: Numbers | None) -> tuple[str, str, str, str, str]:
    if numbers is None:
        return ("-", "-", "-", "-", "-")
    lacking = numbers.under_replicated + numbers.offline
    return (
        str(numbers.leaders),
        str(numbers.replicas),
        f"[red]{lacking}[/]" if lacking else "0",
        _rate(numbers.in_rate),
        _rate(numbers.out_rate),
    )


def _rate(bytes_per_s: float | None) -> str:
    if bytes_per_s is None:
        return "-"
    for size, unit in _UNITS:
        if bytes_per_s >= size:
            return f"{bytes_per_s / size:.1f} {unit}"
    return f"{bytes_per_s:.0f} B/s"


def _memory(pid: int | None) -> str:
    """Resident memory in MiB."""
    try:
        status = pathlib.Path(f"/proc/{pid}/status").read_text()
    except OSError:
        return "-"
    for line in status.splitlines():
        if line.startswith("VmRSS:"):
            return f"{int(line.split()[1]) // 1024} MiB"
    return "-"
