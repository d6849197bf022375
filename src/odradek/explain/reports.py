"""Reads the reports of all brokers: of a directory here over HTTP, else by Kafka's protocol.

report          a broker's answer to one name of `odradek.broker.reports`
journal         of all brokers together, the oldest entry first; on this machine also the entries
                from before their last start, read from their logs
"""

import asyncio
import json
import pathlib
import urllib.error
import urllib.request
from collections.abc import Callable, Collection, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any, Final
from urllib.parse import urlencode

from odradek.broker.http_token import headers
from odradek.client.admin.state import describe_state
from odradek.client.cluster import Cluster
from odradek.client.connection import Connection
from odradek.explain import log as state_change_log
from odradek.local.client_files import admin_file
from odradek.local.directory import ClusterDirectory, unless_default
from odradek.local.ends import last_lines
from odradek.local.supervisor import Supervisor
from odradek.model.clock import WallMs
from odradek.model.errors import OdradekError
from odradek.net.clock import real_wall_ms
from odradek.plan.commands import Caller
from odradek.plan.facts import Gap, Reason, gap_of

TIMEOUT_S: Final = 5.0
LOG_BYTES_MAX: Final = 8 << 20  # of a log's end; older lines are ignored
NEVER_MS: Final = 1 << 62
NOT_OURS: Final = Gap(
    "it does not offer reports: it is not a broker of Odradek, or an older one", Reason.NOT_OFFERED
)

NO_HTTP: Final = Gap("odradek.http.port is -1: ask with --bootstrap-server instead of --dir")

Query = Mapping[str, str]
Entry = Mapping[str, Any]


@dataclass(slots=True)
class Asked:
    """The reports of the brokers that answered, and why the others did not."""

    caller: Caller
    reports: dict[int, dict[str, Any]] = field(default_factory=dict)  # by broker and name
    silent: dict[int, Gap] = field(default_factory=dict)  # by broker: why it did not answer
    journal: list[Entry] = field(default_factory=list)
    # When the first report of each broker was received (wall clock of this host).
    received_ms: dict[int, WallMs] = field(default_factory=dict)

    @property
    def foreign(self) -> list[int]:
        """The brokers that never offer reports."""
        return sorted(b for b, gap in self.silent.items() if gap.reason is Reason.NOT_OFFERED)

    @property
    def state(self) -> Mapping[str, Any] | None:
        """The report of the active controller; None if no controller answers."""
        views = [reports.get("controller") for reports in self.reports.values()]
        return next((view for view in views if view is not None and view["is_controller"]), None)

    def by_broker(self, name: str) -> dict[int, Any]:
        return {id_: found[name] for id_, found in self.reports.items() if name in found}


def ask_directory(
    path: pathlib.Path, wanted: Mapping[str, Query], *, say: Callable[[str], None]
) -> Asked:
    """The reports of the brokers of a directory; `say` is given what the user should read.

    Raises:
        LocalError: there is no cluster in the directory, or it is a copy beside its original.
    """
    directory = ClusterDirectory(path)
    state = directory.expect()
    directory.refuse_copy(state)
    records = state.brokers
    report = Supervisor(directory, say=say).status()
    states = {each["id"]: each["state"] for each in report["brokers"]}
    asked = Asked(
        Caller(
            bootstrap=report["bootstrap"] or "",
            options=unless_default(path),
            config=admin_file(path) or "",
            local=states,
            ends={b["id"]: b["reason"] for b in report["brokers"] if b.get("reason")},
        )
    )
    tokens = {each["id"]: each.get("http_token_file") for each in report["brokers"]}
    begins_ms = dict.fromkeys(records, NEVER_MS)
    for id_, record in records.items():
        if states.get(id_) != "running":
            asked.silent[id_] = Gap(f"it is {states.get(id_, 'not here')}")
            continue
        if record.http is None:
            asked.silent[id_] = NO_HTTP
            continue
        token = tokens.get(id_)
        found = {n: get_report(record.http, n, query, token) for n, query in wanted.items()}
        _enter(asked, id_, {name: answer for name, answer in found.items() if answer is not None})
        if None in found.values():
            asked.silent[id_] = Gap("it does not answer over HTTP")
            say(f"broker {id_} does not answer")
        if found.get("journal") is not None:
            begins_ms[id_] = found["journal"]["begins_ms"]
    if "journal" in wanted:
        for id_ in records:
            lines = last_lines(directory.log(id_), LOG_BYTES_MAX)
            logged = state_change_log.entries(lines, before_ms=begins_ms[id_])
            found_in_log = (e for e in logged if _is_asked_for(e, wanted["journal"]))
            asked.journal += ({**entry, "by": id_} for entry in found_in_log)
    _sort(asked)
    return asked


async def ask_cluster(
    cluster: Cluster, caller: Caller, wanted: Mapping[str, Query], *, timeout_s: float = TIMEOUT_S
) -> Asked:
    """The reports of the brokers of a cluster; of each within this time.

    Raises:
        BootstrapError: no broker can be reached.
    """
    asked = Asked(caller)

    async def ask(broker: int) -> None:
        try:
            async with asyncio.timeout(timeout_s):
                connection = await cluster.broker(broker)
                for name, query in wanted.items():
                    answer = await describe_state(connection, name, query)
                    if answer is None:
                        asked.silent[broker] = NOT_OURS
                        return
                    _enter(asked, broker, {name: answer})
        except TimeoutError:
            asked.silent[broker] = Gap(f"no answer within {timeout_s:.0f} s")
        except (OdradekError, ConnectionError) as error:  # also an expired certificate
            asked.silent[broker] = gap_of(error)

    async def ask_at(host: str, port: int) -> None:
        with suppress(TimeoutError, OdradekError, ConnectionError):
            async with asyncio.timeout(timeout_s):
                connection = await cluster.open(host, port)
                try:
                    await _ask_unregistered(asked, connection, wanted, nodes)
                finally:
                    await connection.close()

    nodes = await cluster.nodes()
    await asyncio.gather(*map(ask, nodes))
    await asyncio.gather(*(ask_at(*address) for address in cluster.unnamed()))
    _sort(asked)
    return asked


async def _ask_unregistered(
    asked: Asked, connection: Connection, wanted: Mapping[str, Query], nodes: Collection[int]
) -> None:
    """The reports of a broker that runs and is not registered: it is cut off from the store.

    Without its view as a controller, which it may have been before.
    """
    about = await describe_state(connection, "broker")
    if about is None or about["broker_id"] in nodes:
        return  # at another address than it advertises
    for name, query in wanted.items():
        if name != "controller":
            report = await describe_state(connection, name, query)
            _enter(asked, about["broker_id"], {name: report})


def _enter(asked: Asked, broker: int, answers: Mapping[str, Any]) -> None:
    asked.reports.setdefault(broker, {}).update(answers)
    asked.received_ms.setdefault(broker, real_wall_ms())
    if "journal" in answers:
        asked.journal += ({**entry, "by": broker} for entry in answers["journal"]["entries"])


def _sort(asked: Asked) -> None:
    asked.journal.sort(key=lambda entry: (entry["at_ms"], entry["number"]))


def _is_asked_for(entry: Entry, query: Query) -> bool:
    """The same rule by which a broker filters its journal."""
    if not query:
        return True
    if entry["broker"] is not None:
        return query.get("broker") in (None, str(entry["broker"]))
    if query.get("topic") != entry["topic"]:
        return False
    return entry["partition"] is None or query.get("partition") in (None, str(entry["partition"]))


def get_report(url: str, name: str, query: Query, token_file: str | None = None) -> Any:
    """A broker's report over HTTP; None if it does not answer."""
    request = urllib.request.Request(
        f"{url}/{name}?{urlencode(query)}", headers=headers(token_file)
    )
    try:
        with urllib.request.urlopen(request, timeout=TIMEOUT_S) as answer:
            return json.load(answer)
    except (OSError, ValueError, urllib.error.HTTPError):
        return None
