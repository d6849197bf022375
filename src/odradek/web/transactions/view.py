"""The values that the page of transactions shows, as JSON has them. Pure."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

from odradek.client.admin.groups import TransactionDescription
from odradek.model.command import flag
from odradek.plan.facts import OpenProducer
from odradek.plan.quantities import span_text
from odradek.web.facts.poller import FactKey, Facts
from odradek.web.messages.content import moment
from odradek.web.transactions.facts import HeldPartition, TransactionsNow

TRANSACTIONS: Final = FactKey("transactions")
# As kafka-transactions find-hanging: five minutes beyond the largest timeout that is usual.
HANGING_MS: Final = 900_000 + 300_000
_STATES: Final = {
    "Ongoing": "open: its producer has neither committed nor aborted it",
    "PrepareCommit": "committed: markers are still being written",
    "PrepareAbort": "aborted: markers are still being written",
    "PrepareEpochFence": "its former producer is being fenced",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class TransactionsView:
    """What the page shows. `transactions` is None before the first observation."""

    problem: str | None = None
    observed: str = ""
    transactions: tuple[dict[str, Any], ...] | None = None
    held: tuple[dict[str, Any], ...] = ()
    idle: int = 0
    problems: dict[str, str] | None = None


def transactions_view(facts: Facts) -> TransactionsView:
    """The page from what was collected last."""
    found = facts.get(TRANSACTIONS)
    if found is None or found.value is None:
        return TransactionsView(problem=found.problem if found else None)
    now: TransactionsNow = found.value
    return shown(now, found.problem)


def shown(now: TransactionsNow, problem: str | None = None) -> TransactionsView:
    """One observation as values."""
    return TransactionsView(
        problem=problem,
        observed=moment(now.at_ms),
        transactions=tuple(_transaction(each, now) for each in now.transactions),
        held=tuple(
            _held(each, now) for each in sorted(now.held, key=lambda h: (-h.held, h.partition))
        ),
        idle=now.idle,
        problems=dict(now.problems),
    )


def _transaction(each: TransactionDescription, now: TransactionsNow) -> dict[str, Any]:
    held = [h for h in now.held if h.partition in each.partitions]
    since_ms = now.at_ms - each.started_ms if each.started_ms >= 0 else None
    return {
        "transactional_id": each.transactional_id,
        "producer_id": each.producer_id,
        "producer_epoch": each.producer_epoch,
        "coordinator": each.coordinator,
        "state": each.state,
        "state_text": _STATES.get(each.state, each.state),
        "started": moment(each.started_ms),
        "open_ms": since_ms,
        "open": "" if since_ms is None else span_text(max(0, since_ms) / 1000),
        "timeout_ms": each.timeout_ms,
        "ends": _ends(each, now.at_ms),
        "partitions": [str(p) for p in sorted(each.partitions)],
        "held": sum(h.held for h in held),
        "command": now.caller.kafka(
            "kafka-transactions", "describe", *flag("--transactional-id", each.transactional_id)
        ),
    }


def _ends(each: TransactionDescription, at_ms: int) -> str:
    """When the coordinator ends it, if its producer does not."""
    if each.state != "Ongoing" or each.started_ms < 0:
        return ""
    ends_ms = each.started_ms + each.timeout_ms
    if ends_ms <= at_ms:
        return f"its timeout passed at {moment(ends_ms)}: the coordinator aborts it next"
    left = span_text((ends_ms - at_ms) / 1000)
    return f"the coordinator aborts it at {moment(ends_ms)}, in {left} (transaction.timeout.ms)"


def _held(each: HeldPartition, now: TransactionsNow) -> dict[str, Any]:
    return {
        "topic": each.partition.topic,
        "partition": each.partition.partition,
        "last_stable_offset": each.stable,
        "high_watermark": each.high_watermark,
        "held": each.held,
        "groups": list(each.groups),
        "text": _held_text(each),
        "producers": [_producer(p, each, now) for p in each.producers],
    }


def _held_text(each: HeldPartition) -> str:
    first = min((p.first_offset for p in each.producers), default=None)
    if first is None:
        return "its transactions have ended since; the last stable offset follows"
    waits = f"{each.held:,} offsets wait behind the transaction that begins at offset {first}"
    return f"{waits}{_groups_text(each.groups)}"


def _groups_text(groups: Sequence[str]) -> str:
    if not groups:
        return ""
    names = ", ".join(groups[:3]) + (f" and {len(groups) - 3} more" if len(groups) > 3 else "")
    return f"; the committed offset of {names} is the last stable offset"


def _producer(producer: OpenProducer, held: HeldPartition, now: TransactionsNow) -> dict[str, Any]:
    is_old = now.at_ms - producer.last_timestamp > HANGING_MS
    hanging = not producer.coordinated and "coordinators" not in now.problems
    return {
        "producer_id": producer.producer_id,
        "producer_epoch": producer.producer_epoch,
        "transactional_id": producer.transactional_id,
        "first_offset": producer.first_offset,
        "last_write": moment(producer.last_timestamp),
        "is_hanging": hanging and is_old,
        "text": _producer_text(producer, hanging=hanging, is_old=is_old),
        "command": now.caller.abort(held.partition, producer.first_offset)
        if hanging and is_old
        else None,
    }


def _producer_text(producer: OpenProducer, *, hanging: bool, is_old: bool) -> str:
    if producer.coordinated:
        return f"its coordinator has it: transactional id {producer.transactional_id}"
    if not hanging:
        return "whether its coordinator has it is not known"
    if is_old:
        return (
            "hanging: no coordinator has this transaction, so it never ends by itself, and "
            "consumers with read_committed wait here"
        )
    return (
        "no coordinator has this transaction yet, or not any more; if that lasts for 20 min, it "
        "is hanging"
    )
