"""Who is asking: every handler gets a `Session`, and asks it before it touches anything."""

from dataclasses import dataclass
from typing import Final, Protocol

from odradek.model.acl import AclOperation, ResourceType

ANONYMOUS: Final = "User:ANONYMOUS"


class Authorizer(Protocol):
    """Who may do what."""

    def authorize(
        self, session: "Session", operation: AclOperation, resource_type: ResourceType, name: str
    ) -> bool:
        """Whether this principal, from this host, may do this to that resource."""


class AllowAll:
    """The authorizer of a broker without `authorizer.class.name`, as in Kafka."""

    def authorize(
        self, session: "Session", operation: AclOperation, resource_type: ResourceType, name: str
    ) -> bool:
        """Yes."""
        del session, operation, resource_type, name
        return True


@dataclass(slots=True, kw_only=True)
class Session:
    """One authenticated peer on one connection."""

    authorizer: Authorizer
    principal: str = ANONYMOUS
    client_host: str
    listener: str
    security_protocol: str = "PLAINTEXT"
    # The client id of the request being handled; software name and version by ApiVersions.
    client_id: str | None = None
    software_name: str = "unknown"
    software_version: str = "unknown"

    def authorize(self, operation: AclOperation, resource_type: ResourceType, name: str) -> bool:
        """Whether this peer may do that."""
        return self.authorizer.authorize(self, operation, resource_type, name)
