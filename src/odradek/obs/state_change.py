"""The state-change log: one line for each transition - who, what, from, to, why.

Pure: a `StateChange` is a value; the shell that saw it happen hands it to the logger `LOGGER`
and lets `str` make the line, or keeps its `fields` for whoever wants to search them:

    [Controller id=1 epoch=5] orders-7: leader=1 leader_epoch=4 isr=1,2 partition_epoch=7 ->
        leader=2 leader_epoch=5 isr=2 partition_epoch=8 because broker went away: 1
    [Broker id=2] orders-7: follower -> leader leader_epoch=5 at offset 100
"""

from dataclasses import dataclass
from typing import Final

from odradek.model.partition import NO_LEADER, LeaderAndIsr

LOGGER: Final = "odradek.state.change"


@dataclass(frozen=True, slots=True, kw_only=True)
class StateChange:
    """One transition of one partition, replica, topic or broker."""

    broker_id: int
    subject: str
    before: str
    after: str
    cause: str = ""
    controller_epoch: int | None = None  # of the controller that decided it; None: a broker did

    def __str__(self) -> str:
        if self.controller_epoch is None:
            who = f"[Broker id={self.broker_id}]"
        else:
            who = f"[Controller id={self.broker_id} epoch={self.controller_epoch}]"
        why = f" because {self.cause}" if self.cause else ""
        return f"{who} {self.subject}: {self.before} -> {self.after}{why}"

    def fields(self) -> dict[str, str | int]:
        """The same, for a log that is searched by fields; what is not known is left out."""
        fields: dict[str, str | int] = {
            "broker_id": self.broker_id,
            "subject": self.subject,
            "before": self.before,
            "after": self.after,
        }
        if self.cause:
            fields["cause"] = self.cause
        if self.controller_epoch is not None:
            fields["controller_epoch"] = self.controller_epoch
        return fields


def described(state: LeaderAndIsr | None) -> str:
    """A stored state in the words of a line."""
    if state is None:
        return "not stored"
    leader = "none" if state.leader == NO_LEADER else state.leader
    isr = ",".join(map(str, state.isr))
    return (
        f"leader={leader} leader_epoch={state.leader_epoch} isr={isr} "
        f"partition_epoch={state.store_version}"
    )
