"""The client of a request: handlers check its permissions before they do anything."""

from dataclasses import dataclass, field
from typing import Final, NamedTuple, Protocol

from odradek.broker.serving.produce_refusals import ProduceRefusals
from odradek.model.acl import CLUSTER_NAME, AclOperation, ResourceType
from odradek.model.errors import ApiError, ErrorCode

ANONYMOUS: Final = "User:ANONYMOUS"


class Authorizer(Protocol):
    """Decides who may do what. `version` changes when earlier answers may no longer hold."""

    version: int

    def authorize(
        self, session: "Session", operation: AclOperation, resource_type: ResourceType, name: str
    ) -> bool:
        """Whether this principal, from this host, may do this to that resource."""


class AllowAll:
    """The authorizer of a broker without `authorizer.class.name`, as in Kafka."""

    version = 0

    def authorize(
        self,
        session: "Session",  # noqa: ARG002 - nothing of it matters here
        operation: AclOperation,  # noqa: ARG002
        resource_type: ResourceType,  # noqa: ARG002
        name: str,  # noqa: ARG002
    ) -> bool:
        """True for every principal, operation and resource."""
        return True


@dataclass(slots=True, kw_only=True)
class Session:
    """One authenticated client on one connection."""

    authorizer: Authorizer
    principal: str = ANONYMOUS
    client_host: str
    listener: str
    security_protocol: str = "PLAINTEXT"
    # The client id of the request being handled; software name and version by ApiVersions.
    client_id: str | None = None
    software_name: str = "unknown"
    software_version: str = "unknown"
    muted_until_ms: int = 0  # monotonic; because of a quota
    refusals: ProduceRefusals = field(default_factory=ProduceRefusals)

    def authorize(self, operation: AclOperation, resource_type: ResourceType, name: str) -> bool:
        """Whether this client may do that."""
        return self.authorizer.authorize(self, operation, resource_type, name)

    def check_cluster(self, operation: AclOperation) -> None:
        """Refuse a client that has no permission for an operation on the cluster.

        Raises:
            ApiError: CLUSTER_AUTHORIZATION_FAILED.
        """
        if not self.authorize(operation, ResourceType.CLUSTER, CLUSTER_NAME):
            raise ApiError(ErrorCode.CLUSTER_AUTHORIZATION_FAILED)


class Origin(NamedTuple):
    """The session of a request, and the version in which it was encoded."""

    session: Session
    api_version: int
