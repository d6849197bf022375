"""`odradek why topic T | broker N`: why it is as it is, in plain sentences.

The controller says how things stand, and every broker what it decided while it was controller
(`/controller`, `/journal`); so the story is whole although the controller has moved. What was
decided before a broker's last start is in its log, under `state_change`.
"""

import json
import pathlib
import urllib.error
import urllib.request
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any, Final
from urllib.parse import urlencode

import click

from odradek.cli.local import DEFAULT_DIR, dir_option, say
from odradek.cli.why_sentences import Picture, explain_broker, explain_topic
from odradek.local.directory import ClusterDirectory
from odradek.local.supervisor import Supervisor

TIMEOUT_S: Final = 5.0


@click.group
def why() -> None:
    """Say why a topic or a broker is as it is, and what would mend it."""


@why.command
@click.argument("name")
@click.option("--partition", type=click.IntRange(min=0), help="This one alone.")
@click.option("--json", "as_json", is_flag=True, help="What was found out, for machines.")
@dir_option
def topic(name: str, partition: int | None, path: pathlib.Path, *, as_json: bool) -> None:
    """Why topic NAME is led, copied, moved or deleted as it is."""
    query = {"topic": name} | ({} if partition is None else {"partition": str(partition)})
    picture = look(path, query)
    _tell(picture, explain_topic(picture, name, partition), as_json=as_json)


@why.command
@click.argument("broker_id", metavar="ID", type=click.IntRange(min=0))
@click.option("--json", "as_json", is_flag=True, help="What was found out, for machines.")
@dir_option
def broker(broker_id: int, path: pathlib.Path, *, as_json: bool) -> None:
    """Why broker ID leads what it leads, and what it lacks."""
    picture = look(path, {"broker": str(broker_id)})
    _tell(picture, explain_broker(picture, broker_id), as_json=as_json)


def look(path: pathlib.Path, query: Mapping[str, str]) -> Picture:
    """Ask all brokers of a cluster on this machine."""
    directory = ClusterDirectory(path)
    records = directory.expect().brokers
    report = Supervisor(directory, say=say).status()
    states = {each["id"]: each["state"] for each in report["brokers"]}
    reigning = None
    entries: list[Mapping[str, Any]] = []
    for id_, record in records.items():
        if record.http is None or states.get(id_) != "running":
            continue
        journal = _get(record.http, "/journal", query)
        view = _get(record.http, "/controller", query)
        if journal is None or view is None:
            say(f"broker {id_} does not answer")
            continue
        entries += ({**entry, "by": id_} for entry in journal["entries"])
        if view["reigns"]:
            reigning = view
    entries.sort(key=lambda entry: (entry["at_ms"], entry["number"]))
    now = datetime.now(UTC).astimezone()
    return Picture(
        reigning,
        entries,
        now,
        bootstrap=report["bootstrap"] or "",
        local=states,
        options="" if str(path) == DEFAULT_DIR else f" --dir {path}",
    )


def _get(url: str, path: str, query: Mapping[str, str]) -> Any:
    try:
        with urllib.request.urlopen(f"{url}{path}?{urlencode(query)}", timeout=TIMEOUT_S) as answer:
            return json.load(answer)
    except (OSError, ValueError, urllib.error.HTTPError):
        return None


def _tell(picture: Picture, sentences: list[str], *, as_json: bool) -> None:
    if as_json:
        print(json.dumps({"state": picture.state, "journal": picture.journal}))
        return
    for sentence in sentences:
        print(sentence)
