"""`odradek start|stop|restart|kill|pause|resume|down|status`: commands for an existing cluster.

Each calls one method of the supervisor; they share the option for its directory.
"""

import json
import pathlib
import sys
from collections.abc import Callable
from typing import Any, TypeVar

import click

from odradek.local.client_files import admin_file
from odradek.local.directory import DEFAULT_DIR, ClusterDirectory
from odradek.local.supervisor import Supervisor

_Command = TypeVar("_Command", bound=Callable[..., Any])


def say(message: str) -> None:
    print(message, file=sys.stderr, flush=True)


def _dir_option(text: str) -> Callable[[_Command], _Command]:
    return click.option(
        "--dir",
        "path",
        type=click.Path(path_type=pathlib.Path),
        default=DEFAULT_DIR,
        show_default=True,
        help=text,
    )


dir_option = _dir_option("The cluster's directory.")
# For commands that reach other clusters with --bootstrap-server.
unless_server_dir_option = _dir_option(
    "The directory of the cluster on this machine, if no server is named."
)


def _verb(name: str, act: Callable[[Supervisor, int], None], text: str) -> click.Command:
    @click.command(name, help=text)
    @click.argument("broker_id", metavar="ID", type=int)
    @dir_option
    def command(broker_id: int, path: pathlib.Path) -> None:
        act(Supervisor(ClusterDirectory(path), say=say), broker_id)

    return command


start = _verb("start", Supervisor.start, "Start broker ID and wait until it serves.")
stop = _verb(
    "stop", Supervisor.stop, "Stop broker ID cleanly (SIGTERM) and wait until it has ended."
)
restart = _verb("restart", Supervisor.restart, "Stop broker ID cleanly, if it runs, and start it.")
kill = _verb("kill", Supervisor.kill, "Kill broker ID (kill -9).")
pause = _verb("pause", Supervisor.pause, "Freeze broker ID (SIGSTOP): it answers no request.")
resume = _verb("resume", Supervisor.resume, "Continue the frozen broker ID (SIGCONT).")


@click.command
@dir_option
def down(path: pathlib.Path) -> None:
    """Stop all brokers of the cluster cleanly. Its data stays."""
    Supervisor(ClusterDirectory(path), say=say).down()


@click.command
@dir_option
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
def status(path: pathlib.Path, *, as_json: bool) -> None:
    """Show which brokers run, and their addresses."""
    directory = ClusterDirectory(path)
    report = Supervisor(directory, say=say).status()
    if as_json:
        print(json.dumps(report))
        return
    for broker in report["brokers"]:
        where = ", ".join(broker["listeners"]) or "-"
        pid = f"pid {broker['pid']}" if broker["pid"] else ""
        print(f"broker {broker['id']:<4} {broker['state']:<9} {pid:<12} {where}")
        if broker["reason"]:
            print(f"    it ended by itself: {broker['reason']}")
    if report["http"]:
        print(f"metrics     {report['http']}/metrics")
    original = directory.expect().original
    if original is not None:
        own = directory.command("clone")
        print(f"copy of     {original}; {own} makes it a cluster of its own")
    print(f"connect to  {report['bootstrap'] or '- (never started)'}")
    if (administrator := admin_file(path)) is not None:
        print(f"as          {administrator}, or another user of that folder")
