"""What the controller's shell is given by the rest of the broker."""

from typing import Protocol

from odradek.controller.causes import Decision


class ControllerOptions(Protocol):
    """The options a controller goes by, as they are at the moment."""

    @property
    def deletion_enabled(self) -> bool:
        """`delete.topic.enable`."""

    @property
    def isr_min(self) -> int:
        """`min.insync.replicas` of topics that do not set it."""

    @property
    def unclean_allowed(self) -> bool:
        """`unclean.leader.election.enable` of topics that do not set it."""

    @property
    def rebalance_enabled(self) -> bool:
        """`auto.leader.rebalance.enable`."""

    @property
    def rebalance_interval_seconds(self) -> int:
        """`leader.imbalance.check.interval.seconds`."""

    @property
    def rebalance_percentage(self) -> int:
        """`leader.imbalance.per.broker.percentage`."""


class Journal(Protocol):
    """Where it is written down what was decided, and what happened to the decider."""

    def record(self, decision: Decision) -> None:
        """A decision, with its cause."""

    def note(self, text: str) -> None:
        """Something an operator may want to know."""
