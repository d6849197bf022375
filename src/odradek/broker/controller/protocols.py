"""What the controller's shell is given by the rest of the broker."""

from typing import Protocol

from odradek.controller.causes import Decision


class ControllerOptions(Protocol):
    """The present options of a controller."""

    @property
    def deletion_enabled(self) -> bool:
        """Whether topics may be deleted (`delete.topic.enable`)."""

    @property
    def isr_min(self) -> int:
        """`min.insync.replicas` of topics that do not set it."""

    @property
    def unclean_allowed(self) -> bool:
        """`unclean.leader.election.enable` of topics that do not set it."""

    @property
    def rebalance_enabled(self) -> bool:
        """Whether preferred leaders are elected periodically (`auto.leader.rebalance.enable`)."""

    @property
    def rebalance_interval_seconds(self) -> int:
        """The time between checks (`leader.imbalance.check.interval.seconds`)."""

    @property
    def rebalance_percentage(self) -> int:
        """The share of non-preferred leaders (`leader.imbalance.per.broker.percentage`)."""


class Journal(Protocol):
    """Gets the controller's decisions, and the events of its own terms."""

    def record(self, decision: Decision) -> None:
        """A decision, with its cause."""

    def note(self, text: str) -> None:
        """An event in a controller's own term, for operators."""

    def note_names(self, text: str) -> None:
        """The same, where the text may name topics or users."""
