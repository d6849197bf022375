"""How long a peer has to wait for having asked too much: one place that every request passes.

A throttle time goes into the response and mutes the channel for as long (KIP-219). There are no
quotas by default, as in Kafka, so the answer is 0; whoever enforces some answers more.
"""

from typing import Protocol

from odradek.broker.serving.session import Session


class Quotas(Protocol):
    """Throttle times in milliseconds, 0 for none."""

    def produced(self, session: Session, size_bytes: int) -> int:
        """Count what a peer has written."""

    def fetched(self, session: Session, size_bytes: int) -> int:
        """Count what a peer is about to get."""

    def requested(self, session: Session, api_key: int) -> int:
        """Count a request of another kind."""


class NoQuotas:
    """Everybody may, as much as they like."""

    def produced(self, session: Session, size_bytes: int) -> int:  # noqa: ARG002
        """0."""
        return 0

    def fetched(self, session: Session, size_bytes: int) -> int:  # noqa: ARG002
        """0."""
        return 0

    def requested(self, session: Session, api_key: int) -> int:  # noqa: ARG002
        """0."""
        return 0
