"""The throttle times of clients that exceed a quota: every request passes here.

A throttle time goes into the response and mutes the connection for as long (KIP-219). There are no
quotas by default, as in Kafka: then the throttle time is 0 and nothing is counted.
"""

from typing import Final, NamedTuple, Protocol

from odradek.broker.serving.session import Session

BYTES_MAX: Final = 2**31 - 1


class MutationQuota:
    """Counts the changes to topics of one request. This one has no limit."""

    @property
    def throttle_ms(self) -> int:
        """How long the client has to wait."""
        return 0

    def admit(self, partitions: int) -> None:
        """Count partitions that are about to be created or deleted.

        Raises:
            ApiError: THROTTLING_QUOTA_EXCEEDED, the client has to wait for `throttle_ms`.
        """


NO_QUOTA: Final = MutationQuota()


class ClientLimit(NamedTuple):
    """One limit of a client, and which users and client ids it is set for ("": all)."""

    option: str
    rate: float
    user: str
    client: str


class Quotas(Protocol):
    """Counts what clients use. A throttle time is in milliseconds; 0 is none."""

    def produced(self, session: Session, size_bytes: int) -> int:
        """Count a Produce request and its bytes of records. Returns the throttle time."""

    def fetched(self, session: Session, size_bytes: int) -> int:
        """Count a Fetch request and bytes that a consumer is about to get.

        Returns the throttle time. If there is one the bytes are not counted: the response is empty.
        """

    def fetch_bytes_max(self, session: Session) -> int:
        """The most that one response may have, so that it does not exceed the quota by itself."""

    def requested(self, session: Session, api_key: int) -> int:
        """Count a request of another API. Returns the throttle time."""

    def limits(self, session: Session, api_key: int) -> list[ClientLimit]:
        """The limits of a client that hold for the requests of an API."""

    def exempt(self, session: Session) -> None:
        """Do not count the request that is being handled, of a follower."""

    def mutations(self, session: Session, *, strict: bool) -> MutationQuota:
        """The quota for the changes of one request.

        `strict`: its version has THROTTLING_QUOTA_EXCEEDED; other requests are only throttled.
        """
