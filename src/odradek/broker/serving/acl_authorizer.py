"""The authorizer that enforces ACLs, and its audit log.

The rules are in `odradek.security.acls`; `odradek.broker.admin.acl_changes` keeps the ACLs equal to
those in the store. The audit log has the logger name and the form of Apache Kafka: what a client
requested and is denied at INFO, what it is allowed at DEBUG.
"""

import logging
from collections.abc import Iterable, Mapping
from typing import Final

from odradek.broker.incidents import Incidents, Lacks
from odradek.broker.serving.session import Session
from odradek.model.acl import AclEntry, AclOperation, ResourcePattern, ResourceType, words
from odradek.model.printable import printable
from odradek.obs.log_limit import of
from odradek.security.acls import AclDecision, AclRule, Acls, AclSettings, Requester
from odradek.wire.api_keys import APIS

AUDIT_LOGGER: Final = "kafka.authorizer.logger"
DECISIONS_MAX: Final = 4096  # kept for each connection, and of `authorize_any`

audit = logging.getLogger(AUDIT_LOGGER)


class AclAuthorizer:
    """Kafka's `kafka.security.authorizer.AclAuthorizer`; it denies until it is configured."""

    def __init__(self, incidents: Incidents | None = None) -> None:
        """`incidents` get which client lacks which permission, for `odradek why client`."""
        self.version = 0
        self._incidents = incidents
        self._settings = AclSettings()
        self._acls = Acls({})
        # Decisions of `authorize_any`, which read every ACL on the resource type.
        self._any: dict[tuple[Requester, AclOperation, ResourceType], bool] = {}

    def configure(self, settings: AclSettings) -> None:
        """Take over the options of the authorizer."""
        self._settings = settings
        self._changed()

    def replace_all(self, patterns: Mapping[ResourcePattern, Iterable[AclEntry]]) -> None:
        """Enforce these ACLs, and no others."""
        self._acls = Acls(patterns)
        self._changed()

    def put(self, pattern: ResourcePattern, entries: Iterable[AclEntry]) -> None:
        """Enforce these ACLs on one pattern."""
        self._acls.put(pattern, entries)
        self._changed()

    def _changed(self) -> None:
        self.version += 1
        self._any.clear()

    def entries(self, pattern: ResourcePattern) -> frozenset[AclEntry]:
        """The ACLs that are enforced on one pattern."""
        return self._acls.entries(pattern)

    def decide(
        self, client: Requester, operation: AclOperation, resource_type: ResourceType, name: str
    ) -> AclDecision:
        """Whether a client may do that, and why."""
        return self._acls.decide(self._settings, client, operation, resource_type, name)

    def authorize(
        self,
        session: Session,
        operation: AclOperation,
        resource_type: ResourceType,
        name: str,
        *,
        is_logged: bool = True,
    ) -> bool:
        """Whether this principal, from this host, may do this to that resource."""
        known = session.decisions
        if known.version != self.version or known.principal is not session.principal:
            known.allowed.clear()
            known.version, known.principal = self.version, session.principal
        what = (operation, resource_type, name)
        allowed = known.allowed.get(what)
        if allowed is None:
            client = Requester(session.principal, session.client_host)
            allowed = self.decide(client, operation, resource_type, name).allowed
            if len(known.allowed) >= DECISIONS_MAX:
                known.allowed.clear()
            known.allowed[what] = allowed
        if is_logged:
            if not allowed:
                self._note(session, operation, resource_type, name)
            level = logging.DEBUG if allowed else logging.INFO
            if audit.isEnabledFor(level):
                resource = f"{words(resource_type)}:LITERAL:{printable(name)}"
                _log(level, session, operation, resource, 1, allowed=allowed)
        return allowed

    def _note(
        self, session: Session, operation: AclOperation, resource_type: ResourceType, name: str
    ) -> None:
        if self._incidents is None:
            return
        client = Requester(session.principal, session.client_host)
        rule = self.decide(client, operation, resource_type, name).rule
        api = APIS.get(session.api_key)
        self._incidents.refused(
            "a request" if api is None else api.name,
            host=session.client_host,
            client_id=session.client_id,
            software=f"{session.software_name} {session.software_version}",
            lacks=Lacks(
                printable(session.principal),
                words(operation),
                words(resource_type),
                printable(name),
                is_denied=rule is AclRule.DENY,
            ),
        )

    def authorize_any(
        self, session: Session, operation: AclOperation, resource_type: ResourceType
    ) -> bool:
        """Whether this principal may do this to some resource of a type, existing or not."""
        client = Requester(session.principal, session.client_host)
        what = (client, operation, resource_type)
        allowed = self._any.get(what)
        if allowed is None:
            if len(self._any) >= DECISIONS_MAX:
                self._any.clear()
            allowed = self._acls.allows_any(self._settings, *what)
            self._any[what] = allowed
        level = logging.DEBUG if allowed else logging.INFO
        if audit.isEnabledFor(level):
            resource = f"{words(resource_type)}:UNKNOWN:NONE"  # as Kafka
            _log(level, session, operation, resource, 0, allowed=allowed)
        return allowed


def _log(
    level: int,
    session: Session,
    operation: AclOperation,
    resource: str,
    count: int,
    *,
    allowed: bool,
) -> None:
    api = APIS.get(session.api_key)
    principal = printable(session.principal)
    request = session.api_key if api is None else api.name
    audit.log(
        level,
        "Principal = %s is %s Operation = %s from host = %s on resource = %s "
        "for request = %s with resourceRefCount = %d",
        principal,
        "Allowed" if allowed else "Denied",
        words(operation),
        session.client_host,
        resource,
        request,
        count,
        extra=of(principal, operation, session.client_host, resource, request),
    )
