"""Counts which events the three state machines have received in which of their states.

A search proves nothing about states that it never reached. So each run counts the pairs of event
and state of the controller, the group coordinator and the transaction coordinator, and a search
reports the pairs that no seed had. Some pairs are impossible.

Every broker of a simulation runs in this Python process: the machines' public `handle` is wrapped
for the time of a run. Nothing of this exists in a shipped broker.
"""

from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from itertools import product
from types import UnionType
from typing import Any, Final, get_args

from odradek.controller import events as controller_events
from odradek.controller.controller import Controller
from odradek.controller.steps import Step
from odradek.group import events as group_events
from odradek.group.group import GroupState
from odradek.group.machine import GroupMachine
from odradek.record.coordinator import Loaded
from odradek.txn import events as txn_events
from odradek.txn.machine import TransactionMachine
from odradek.txn.transaction import State as TransactionState

# The invariants of a machine's whole state are checked with every so many-th event of its kind: a
# state that contradicts itself stays so for longer. The property tests check after each event.
VALIDATED_EVERY: Final = 10
NOTHING: Final = "UNKNOWN"  # the group or transactional id does not exist
_CLUSTER: Final = ("ALL_WELL", "BROKER_LEAVES", "DIR_OFFLINE", "DELETING", "DIR_OFFLINE_DELETING")


def _controller_state(machine: Controller, event: object) -> str:
    del event
    context = machine.context
    if context.shutting_down:
        return "BROKER_LEAVES"
    parts = [
        *(["DIR_OFFLINE"] if context.offline_dirs else []),
        *(["DELETING"] if context.being_deleted else []),
    ]
    return "_".join(parts) or "ALL_WELL"


def _group_state(machine: GroupMachine, event: object) -> str:
    group = machine.groups.get(getattr(event, "group_id", ""))
    return NOTHING if group is None else group.state.name


def _transaction_state(machine: TransactionMachine, event: object) -> str:
    transaction = machine.find(getattr(event, "transactional_id", ""))
    return NOTHING if transaction is None else transaction.state.name


_MACHINES: Final[dict[str, tuple[Any, Callable[[Any, object], str], Callable[[Any], None]]]] = {
    "controller": (Controller, _controller_state, lambda _machine: None),
    "group": (GroupMachine, _group_state, GroupMachine.validate),
    "transaction": (TransactionMachine, _transaction_state, TransactionMachine.validate),
}


def all_pairs() -> frozenset[str]:
    """Each event of each machine with each state."""
    return frozenset(
        f"{machine} {event}/{state}"
        for machine, event_type, states in (
            ("controller", controller_events.External | controller_events.Reported, _CLUSTER),
            ("group", group_events.Event, (NOTHING, *(state.name for state in GroupState))),
            ("transaction", txn_events.Event, (NOTHING, *(s.name for s in TransactionState))),
        )
        for event, state in product(_names(event_type), states)
    )


def _names(union: object) -> Iterator[str]:
    for member in get_args(union):
        if isinstance(member, UnionType):
            yield from _names(member)
        else:
            yield member.__name__


def _what_happened(machine: str, event: object, effects: list[Any]) -> tuple[str, ...]:
    """What a run has to have, and shows only in what a state machine receives and returns."""
    match event:
        case Loaded() if machine == "transaction" and effects:
            return f"{machine} coordinators loaded", "failovers between decision and end"
        case Loaded():
            return (f"{machine} coordinators loaded",)
        case txn_events.TimedOut() if effects:
            return ("transactions timed out",)
    return ()


@contextmanager
def watched(pairs: Counter[str], happened: Counter[str]) -> Iterator[None]:
    """Count the pairs that occur within the block, and what happened in it."""
    before = {machine: machine.handle for machine, *_ in _MACHINES.values()}
    for name, (machine, state, validate) in _MACHINES.items():
        machine.handle = _counting(name, before[machine], state, validate, pairs, happened)
    try:
        yield
    finally:
        for machine, handle in before.items():
            machine.handle = handle


def _counting(
    name: str,
    handle: Callable[..., Any],
    state: Callable[[Any, object], str],
    validate: Callable[[Any], None],
    pairs: Counter[str],
    happened: Counter[str],
) -> Callable[..., Any]:
    handled = 0
    labels: dict[tuple[type, str], str] = {}

    def label(event: object, state_name: str) -> str:
        made = "" if isinstance(event, Step) else f"{name} {type(event).__name__}/{state_name}"
        return labels.setdefault((type(event), state_name), made)

    def counted(machine: Any, event: object, *rest: Any) -> Any:
        nonlocal handled
        handled += 1
        is_checked = handled % VALIDATED_EVERY == 0
        if is_checked and isinstance(machine, Controller):
            # External events are handled one at a time, after the effects of the one before.
            begins = isinstance(event, controller_events.External)
            machine.validate(
                is_settled=begins and not isinstance(event, controller_events.TopicsRead)
            )
        state_name = state(machine, event)
        pair = labels.get((type(event), state_name))
        if pair is None:
            pair = label(event, state_name)
        if pair:  # else a slice of an event's work
            pairs[pair] += 1
        effects = handle(machine, event, *rest)
        for what in _what_happened(name, event, effects):
            happened[what] += 1
        if is_checked:
            validate(machine)
        return effects

    return counted
