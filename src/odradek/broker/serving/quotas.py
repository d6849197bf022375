"""The throttle times of clients that exceed a quota: every request passes here.

A throttle time goes into the response and mutes the connection for as long (KIP-219). There are no
quotas by default, as in Kafka: then the throttle time is 0.
"""

from typing import Protocol

from odradek.broker.serving.session import Session


class Quotas(Protocol):
    """Counts what clients use. Each method returns a throttle time in milliseconds; 0 is none."""

    def produced(self, session: Session, size_bytes: int) -> int:
        """Count bytes that a client has produced."""

    def fetched(self, session: Session, size_bytes: int) -> int:
        """Count bytes that a client is about to get."""

    def requested(self, session: Session, api_key: int) -> int:
        """Count a request of another API."""


class NoQuotas:
    """The quotas of a broker that has none: no client is throttled."""

    def produced(self, session: Session, size_bytes: int) -> int:  # noqa: ARG002
        return 0

    def fetched(self, session: Session, size_bytes: int) -> int:  # noqa: ARG002
        return 0

    def requested(self, session: Session, api_key: int) -> int:  # noqa: ARG002
        return 0
