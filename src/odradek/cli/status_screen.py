"""How the brokers of a cluster on this machine are, kept up to date on the terminal."""

import pathlib
from typing import TYPE_CHECKING, Any

from odradek.local.supervisor import Supervisor

if TYPE_CHECKING:
    from rich.table import Table

_COLOURS = {"running": "green", "paused": "yellow", "stopped": "dim"}


def watch_live(supervisor: Supervisor) -> None:
    """Stay as `Supervisor.watch` does, and show the state of every broker all the while.

    Raises:
        LocalError: the last broker has died, and nobody wanted it.
    """
    from rich.console import Console  # noqa: PLC0415 - only a terminal needs it
    from rich.live import Live  # noqa: PLC0415

    console = Console(stderr=True)
    with Live(table(supervisor.status()), console=console, auto_refresh=False) as live:
        supervisor.watch(show=lambda: live.update(table(supervisor.status()), refresh=True))


def table(report: Any) -> "Table":
    """The report of `Supervisor.status` as a table."""
    from rich.table import Table  # noqa: PLC0415

    made = Table(box=None, pad_edge=False)
    for heading in ("broker", "state", "pid", "memory", "listeners"):
        made.add_column(heading)
    for broker in report["brokers"]:
        colour = _COLOURS.get(broker["state"], "red")
        made.add_row(
            str(broker["id"]),
            f"[{colour}]{broker['state']}[/]",
            str(broker["pid"] or "-"),
            _memory(broker["pid"]),
            ", ".join(broker["listeners"]) or "-",
        )
    return made


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
