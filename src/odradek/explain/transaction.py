"""Explains a transactional id: its coordinator's state, and which producers got errors with it.

transactional.id pay: Ongoing since 10:00:00, producer id 1000, epoch 7; coordinator broker 1
it is open in orders-0 and payments-2; the coordinator aborts it at 10:01:00
broker 1 answered EndTxn of client a of 10.0.0.7 (transactional.id pay) with PRODUCER_FENCED ...
"""

from collections.abc import Iterator

from odradek.client.admin.groups import TransactionDescription
from odradek.explain.client import explain_errors, not_reported
from odradek.explain.reports import Asked
from odradek.model.clock import WallMs
from odradek.model.sentence import Sentence, sentence
from odradek.plan.commands import clock, some


def explain_transaction(
    asked: Asked, name: str, described: TransactionDescription | str, wall_ms: WallMs
) -> list[Sentence]:
    """The lines of `odradek why transaction`. `described` is the state, or why it is not known."""
    errors = explain_errors(asked, lambda e: e.transactional_id == name, wall_ms)
    if isinstance(described, str):
        state = [f"transactional.id {name}: {described}"]
    else:
        state = list(_state(described, wall_ms))
    return [*map(sentence, state), *errors, *not_reported(asked)]


def _state(described: TransactionDescription, wall_ms: WallMs) -> Iterator[str]:
    open_since = (
        f" since {clock(described.started_ms, wall_ms)}" if described.started_ms > 0 else ""
    )
    yield (
        f"transactional.id {described.transactional_id}: {described.state}{open_since}, producer "
        f"id {described.producer_id}, epoch {described.producer_epoch}; coordinator broker "
        f"{described.coordinator}"
    )
    if described.started_ms > 0:
        places = some([str(partition) for partition in sorted(described.partitions)])
        ends_ms = described.started_ms + described.timeout_ms
        yield (
            f"it is open in {places or 'no partition yet'}; the coordinator aborts it at "
            f"{clock(ends_ms, wall_ms)} (transaction.timeout.ms)"
        )
