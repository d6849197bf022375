"""How the brokers of a cluster on this machine are, kept up to date on the terminal."""

import pathlib
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

from odradek.cli.broker_numbers import Numbers, Watcher
from odradek.local.supervisor import Supervisor

if TYPE_CHECKING:
    from rich.console import Group
    from rich.table import Table

_COLOURS: Final = {"running": "green", "paused": "yellow", "stopped": "dim"}
_HEADINGS: Final = (
    "broker", "state", "pid", "memory", "leads", "replicas", "lacking", "in", "out", "listeners",
)  # fmt: skip
_UNITS: Final = ((1 << 30, "GiB/s"), (1 << 20, "MiB/s"), (1 << 10, "KiB/s"))


def watch_live(supervisor: Supervisor, watcher: Watcher | None = None) -> None:
    """Stay as `Supervisor.watch` does, and show how every broker is all the while.

    Raises:
        LocalError: the last broker has died, and nobody wanted it.
    """
    from rich.console import Console  # noqa: PLC0415 - only a terminal needs it
    from rich.live import Live  # noqa: PLC0415

    asked = Watcher() if watcher is None else watcher

    def screen() -> "Group":
        report = supervisor.status()
        return shown(report, asked.look(report["brokers"]), asked.causes())

    console = Console(stderr=True)
    with Live(screen(), console=console, auto_refresh=False) as live:
        supervisor.watch(show=lambda: live.update(screen(), refresh=True))


def shown(report: Any, told: Mapping[int, Numbers], causes: Sequence[str]) -> "Group":
    """The screen: a row for each broker, and what was decided last."""
    from rich.console import Group  # noqa: PLC0415
    from rich.text import Text  # noqa: PLC0415

    lines = [Text(line, style="dim", no_wrap=True, overflow="ellipsis") for line in causes]
    return Group(table(report, told), *([Text(""), *lines] if lines else []))


def table(report: Any, told: Mapping[int, Numbers]) -> "Table":
    """The report of `Supervisor.status`, with the brokers' own numbers, as a table."""
    from rich.table import Table  # noqa: PLC0415

    made = Table(box=None, pad_edge=False)
    for heading in _HEADINGS:
        made.add_column(heading, no_wrap=heading != "listeners")
    for broker in report["brokers"]:
        colour = _COLOURS.get(broker["state"], "red")
        made.add_row(
            str(broker["id"]),
            f"[{colour}]{broker['state']}[/]{_role(told.get(broker['id']))}",
            str(broker["pid"] or "-"),
            _memory(broker["pid"]),
            *_cells(told.get(broker["id"])),
            ", ".join(broker["listeners"]) or "-",
        )
    return made


def _role(numbers: Numbers | None) -> str:
    return " (controller)" if numbers is not None and numbers.controller else ""


def _cells(numbers: Numbers | None) -> tuple[str, ...]:
    if numbers is None:
        return ("-",) * 5
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
