"""Who asks for a report, and so what it may contain: a report shows what Kafka's APIs would.

Describe on the cluster shows brokers, and which brokers lead; names and offsets of topics and
groups need Describe on these, as in Metadata, ListOffsets and DescribeGroups. Refused clients, the
errors of clients and throttled clients are named with their hosts and with what they requested:
that needs Alter on the cluster, by which ACLs are changed. So do the journal's notes on znodes that
cannot be read.
"""

from collections.abc import Mapping
from typing import Any, Protocol

from odradek.broker.serving.session import Session
from odradek.model.acl import CLUSTER_NAME, AclOperation, ResourceType


class Viewer(Protocol):
    """What the reader of a report may know."""

    def sees_topic(self, name: str | None) -> bool:
        """Whether what is about a topic is shown; None: it is about no topic."""

    def sees_group(self, name: str) -> bool:
        """Whether a group is shown."""

    def sees_clients(self) -> bool:
        """Whether the refusals and errors of all clients, and what names others, are shown."""

    def sees_refusal(self, refusal: Mapping[str, Any]) -> bool:
        """Whether a refusal (`Incidents.as_json`) is shown."""


class Operator:
    """Sees everything: the broker's operator, or anybody where no authorizer is."""

    def sees_topic(self, name: str | None) -> bool:  # noqa: ARG002 - all of them
        return True

    def sees_group(self, name: str) -> bool:  # noqa: ARG002 - all of them
        return True

    def sees_clients(self) -> bool:
        return True

    def sees_refusal(self, refusal: Mapping[str, Any]) -> bool:  # noqa: ARG002 - all of them
        return True


class ClientOf:
    """A client with the permissions of its session; what is left out is not in the audit log."""

    def __init__(self, session: Session) -> None:
        self._session = session

    def sees_topic(self, name: str | None) -> bool:
        return name is None or self._may(AclOperation.DESCRIBE, ResourceType.TOPIC, name)

    def sees_group(self, name: str) -> bool:
        return self._may(AclOperation.DESCRIBE, ResourceType.GROUP, name)

    def sees_clients(self) -> bool:
        return self._may(AclOperation.ALTER, ResourceType.CLUSTER, CLUSTER_NAME)

    def sees_refusal(self, refusal: Mapping[str, Any]) -> bool:
        """A client sees its own, too: what it lacks."""
        lacks = refusal["lacks"]
        is_own = lacks is not None and lacks["principal"] == self._session.principal
        return is_own or self.sees_clients()

    def _may(self, operation: AclOperation, resource_type: ResourceType, name: str) -> bool:
        return self._session.would_allow(operation, resource_type, name)
