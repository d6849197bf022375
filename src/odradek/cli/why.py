"""`odradek why topic T | broker N`: why it is as it is, in plain sentences.

The controller says how things stand, and every broker what it decided while it was controller
(`/controller`, `/journal`); so the story is whole although the controller has moved. What was
decided before a broker's last start, or by one that is gone, is read in its log.
"""

import json
import pathlib
import urllib.error
import urllib.request
from collections.abc import Iterable, Mapping
from datetime import UTC, datetime
from typing import Any, Final
from urllib.parse import urlencode

import click

from odradek.cli import why_log
from odradek.cli.local import DEFAULT_DIR, dir_option, say
from odradek.cli.why_sentences import Picture, explain_broker, explain_topic
from odradek.local.directory import ClusterDirectory
from odradek.local.supervisor import Supervisor

TIMEOUT_S: Final = 5.0
LOG_BYTES_MAX: Final = 8 << 20  # of a log's end: what is older is history
NEVER_MS: Final = 1 << 62


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
        journal = view = None
        if record.http is not None and states.get(id_) == "running":
            journal = _get(record.http, "/journal", query)
            view = _get(record.http, "/controller", query)
            if journal is None or view is None:
                say(f"broker {id_} does not answer")
        begins_ms = NEVER_MS
        if journal is not None:
            entries += ({**entry, "by": id_} for entry in journal["entries"])
            begins_ms = journal["begins_ms"]
        logged = why_log.entries(_last_lines(directory.log(id_)), before_ms=begins_ms)
        entries += ({**entry, "by": id_} for entry in logged if _is_asked_for(entry, query))
        if view is not None and view["reigns"]:
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


def _last_lines(log: pathlib.Path) -> Iterable[str]:
    try:
        with log.open("rb") as file:
            file.seek(max(0, log.stat().st_size - LOG_BYTES_MAX))
            return file.read(LOG_BYTES_MAX).decode(errors="replace").splitlines()
    except OSError:
        return []


def _is_asked_for(entry: Mapping[str, Any], query: Mapping[str, str]) -> bool:
    """As a broker's journal is searched."""
    if entry["broker"] is not None:
        return query.get("broker") in (None, str(entry["broker"]))
    if query.get("topic") != entry["topic"]:
        return False
    return entry["partition"] is None or query.get("partition") in (None, str(entry["partition"]))


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
