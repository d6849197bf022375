"""The client of a request: handlers check its permissions before they do anything."""

from dataclasses import dataclass, field
from typing import Final, NamedTuple, Protocol

from odradek.broker.error_counts import Subject
from odradek.broker.incidents import Incidents
from odradek.broker.serving.pipelining import Pipelining
from odradek.broker.serving.produce_refusals import ProduceRefusals
from odradek.model.acl import CLUSTER_NAME, AclOperation, ResourceType
from odradek.model.errors import ApiError, ErrorCode

ANONYMOUS: Final = "User:ANONYMOUS"


class Authorizer(Protocol):
    """Decides who may do what. `version` changes when earlier answers may no longer hold."""

    version: int

    def authorize(
        self,
        session: "Session",
        operation: AclOperation,
        resource_type: ResourceType,
        name: str,
        *,
        is_logged: bool = True,
    ) -> bool:
        """Whether this principal, from this host, may do this to that resource.

        `is_logged`: the decision is about what the client requests, and an audit log has it.
        """

    def authorize_any(
        self, session: "Session", operation: AclOperation, resource_type: ResourceType
    ) -> bool:
        """Whether this principal may do this to some resource of a type, existing or not."""


class AllowAll:
    """The authorizer of a broker without `authorizer.class.name`, as in Kafka."""

    version = 0

    def authorize(
        self,
        session: "Session",  # noqa: ARG002 - nothing of it matters here
        operation: AclOperation,  # noqa: ARG002
        resource_type: ResourceType,  # noqa: ARG002
        name: str,  # noqa: ARG002
        *,
        is_logged: bool = True,  # noqa: ARG002
    ) -> bool:
        """True for every principal, operation and resource."""
        return True

    def authorize_any(
        self,
        session: "Session",  # noqa: ARG002
        operation: AclOperation,  # noqa: ARG002
        resource_type: ResourceType,  # noqa: ARG002
    ) -> bool:
        """True for every principal, operation and resource type."""
        return True


@dataclass(slots=True)
class Decisions:
    """Decisions that an authorizer has made for one client, while they hold."""

    version: int = -1  # of the authorizer
    principal: str = ""
    allowed: dict[tuple[AclOperation, ResourceType, str], bool] = field(default_factory=dict)


@dataclass(slots=True, kw_only=True)
class Session:
    """One authenticated client on one connection."""

    authorizer: Authorizer
    principal: str = ANONYMOUS
    is_delegation_token: bool = False  # authenticated with one: it may not make others
    authenticates: bool = False  # it has not logged in yet, and has to
    client_host: str
    listener: str
    security_protocol: str = "PLAINTEXT"
    # API key and client id of the request being handled; software name and version by ApiVersions.
    api_key: int = -1
    client_id: str | None = None
    software_name: str = "unknown"
    software_version: str = "unknown"
    muted_until_ms: int = 0  # monotonic; because of a quota
    refusals: ProduceRefusals = field(default_factory=ProduceRefusals)
    pipelining: Pipelining = field(default_factory=Pipelining)
    decisions: Decisions = field(default_factory=Decisions)
    incidents: Incidents | None = None  # where the client's refusals and errors are recorded

    def begin(self, api_key: int, client_id: str | None) -> None:
        """A request is handled from here on."""
        self.api_key = api_key
        self.client_id = client_id

    def note_refusal(self, what: str) -> None:
        """Record, for `odradek why` and `odradek doctor`, that a request was refused."""
        if self.incidents is not None:
            self.incidents.refused(
                what,
                host=self.client_host,
                client_id=self.client_id,
                software=f"{self.software_name} {self.software_version}",
            )

    def count_error(self, api_key: int, error: int, subject: Subject) -> None:
        """Count an error that this client gets, and what its request names."""
        if self.incidents is not None:
            self.incidents.counts.count(self, api_key, error, subject)

    def authorize(self, operation: AclOperation, resource_type: ResourceType, name: str) -> bool:
        """Whether this client may do that."""
        return self.authorizer.authorize(self, operation, resource_type, name)

    def would_allow(self, operation: AclOperation, resource_type: ResourceType, name: str) -> bool:
        """As `authorize`, where a denial only makes the answer shorter: it is not logged."""
        return self.authorizer.authorize(self, operation, resource_type, name, is_logged=False)

    def authorize_any(self, operation: AclOperation, resource_type: ResourceType) -> bool:
        """Whether this client may do that to some resource of a type."""
        return self.authorizer.authorize_any(self, operation, resource_type)

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
