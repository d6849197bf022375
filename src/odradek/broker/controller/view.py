"""The controller's state and its decisions as JSON: two reports (`odradek.broker.reports`).

Every broker has a journal: of what it decided while it was controller. Only the present controller
has the state of the cluster; other brokers name the controller. Long answers are made in pieces,
one in each turn of the loop.
"""

import json
from collections.abc import Iterable, Iterator, Mapping
from functools import partial
from itertools import islice
from typing import Any, Final

from odradek.broker.controller.journal import ENTRIES_MAX, DecisionJournal, as_json, newest
from odradek.broker.controller.shell import ControllerShell
from odradek.broker.http import Response, Route, json_response
from odradek.broker.viewer import Viewer
from odradek.controller.context import ControllerContext, Partition
from odradek.controller.controller import Controller
from odradek.placement.balance import LeaderImbalance, leader_imbalance

LIMIT: Final = 1_000
SLICE: Final = 100  # entries or partitions made into text in one turn


class _WrongQueryError(Exception):
    """A query parameter is wrong; the message names it."""


def control_routes(
    shell: ControllerShell, journal: DecisionJournal, viewer: Viewer, *, broker_id: int
) -> Mapping[str, Route]:
    """The two reports of this file, as far as the viewer may see them."""
    return {
        "journal": partial(_guarded, partial(_journal, journal, viewer, broker_id)),
        "controller": partial(_guarded, partial(_controller, shell, viewer, broker_id)),
    }


def _guarded(route: Route, query: Mapping[str, str]) -> Response:
    try:
        return route(query)
    except _WrongQueryError as error:
        return json_response({"error": str(error)}, 400)


def _journal(
    journal: DecisionJournal, viewer: Viewer, broker_id: int, query: Mapping[str, str]
) -> Response:
    limit = _number(query, "limit")
    found = journal.find(
        topic=query.get("topic"),
        partition=_number(query, "partition"),
        broker=_number(query, "broker"),
    )
    entries = newest(found, min(LIMIT if limit is None else limit, ENTRIES_MAX))
    head = {"broker_id": broker_id, "begins_ms": journal.begins_ms}
    noted = (e for e in entries if not e.names_others or viewer.sees_clients())
    shown = (e for e in map(as_json, noted) if viewer.sees_topic(e.get("topic")))
    return in_pieces(head, "entries", shown)


def _controller(
    shell: ControllerShell, viewer: Viewer, broker_id: int, query: Mapping[str, str]
) -> Response:
    machine, term = shell.machine, shell.term
    head: dict[str, Any] = {"broker_id": broker_id, "controller_id": shell.controller_id}
    if machine is None or term is None or shell.topics is None:
        return json_response({**head, "is_controller": False})
    unreadable = {t: why for t, why in shell.unreadable_topics.items() if viewer.sees_topic(t)}
    head |= {"is_controller": True, "unreadable_topics": unreadable}
    if query.get("only") == "unreadable_topics":
        return json_response(head)
    context = machine.context
    head |= {
        "controller_epoch": term.controller_epoch,
        "brokers": {
            str(id_): {"rack": broker.rack, "broker_epoch": broker.broker_epoch}
            for id_, broker in context.brokers.items()
        },
        "shutting_down": sorted(context.shutting_down),
        "rebalance": {
            "in_seconds": shell.rebalance_in_seconds,
            "percentage_max": shell.rebalance_percentage,
        },
        "imbalance": {str(id_): _imbalance(due) for id_, due in _balance(context).items()},
    }
    partitions = (p for p in _partitions(context, query) if viewer.sees_topic(p["topic"]))
    return in_pieces({**head, **_topic(machine, query)}, "partitions", partitions)


def _topic(machine: Controller, query: Mapping[str, str]) -> Mapping[str, Any]:
    name = query.get("topic")
    if name is None:
        return {}
    context, deletion = machine.context, machine.machines.deletion
    return {
        "topic": {
            "name": name,
            "exists": name in context.topics,
            "being_deleted": name in context.being_deleted or name in deletion.waiting,
            "deletion_waits": deletion.halted.get(name) or deletion.waiting.get(name),
        }
    }


def _partitions(
    context: ControllerContext, query: Mapping[str, str]
) -> Iterator[Mapping[str, Any]]:
    topic, number = query.get("topic"), _number(query, "partition")
    broker = _number(query, "broker")
    if topic is not None:
        known = context.topics.get(topic)
        found: Iterable[Partition] = known.partitions.values() if known else ()
        found = (p for p in found if number is None or p.name.partition == number)
    elif broker is not None:
        found = (p for p in context.partitions() if broker in p.assignment.replicas)
    else:
        found = ()
    # A partition that changes or is deleted while the answer is made is shown as it is in its turn.
    return (_partition(context, partition) for partition in list(found))


def _partition(context: ControllerContext, partition: Partition) -> Mapping[str, Any]:
    name, assignment, led = partition.name, partition.assignment, partition.leader_and_isr
    return {
        "topic": name.topic,
        "partition": name.partition,
        "state": partition.state.value,
        "leader": led.leader if led else None,
        "leader_epoch": led.leader_epoch if led else None,
        "isr": led.isr if led else [],
        "recovering": bool(led and led.leader_recovery_state),
        "replicas": assignment.replicas,
        "adding": assignment.adding,
        "removing": assignment.removing,
        "dead": [r for r in assignment.replicas if r not in context.brokers],
        "on_failed_dirs": [
            r for r in assignment.replicas if name in context.offline_dirs.get(r, ())
        ],
    }


def _balance(context: ControllerContext) -> Mapping[int, LeaderImbalance]:
    return leader_imbalance(
        (p.name, p.assignment.replicas[0], p.leader)
        for p in context.partitions()
        if p.leader_and_isr is not None and not context.is_being_deleted(p.name)
    )


def _imbalance(due: LeaderImbalance) -> Mapping[str, Any]:
    return {"should_lead": due.preferred_count, "led_by_others": len(due.led_by_others)}


def in_pieces(
    head: Mapping[str, Any], name: str, items: Iterator[Mapping[str, Any]], *, at_once: int = SLICE
) -> Response:
    """An object of these fields and, as `name`, the list of the items, so many made in one turn."""
    return Response(200, "application/json", _pieces(head, name, items, at_once))


def _pieces(
    head: Mapping[str, Any], name: str, items: Iterator[Mapping[str, Any]], at_once: int
) -> Iterator[bytes]:
    comma = ""
    opened = json.dumps(head)[:-1] + (", " if head else "")
    yield (opened + f"{json.dumps(name)}: [").encode()
    while chunk := list(islice(items, at_once)):
        yield (comma + ", ".join(map(json.dumps, chunk))).encode()
        comma = ", "
    yield b"]}\n"


def _number(query: Mapping[str, str], key: str) -> int | None:
    text = query.get(key)
    if text is None:
        return None
    if not (text.isascii() and text.isdigit() and len(text) < 10):
        raise _WrongQueryError(f"{key}={text!r}, must be a number")
    return int(text)
