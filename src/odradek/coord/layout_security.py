"""Kafka's znodes for security: ACLs, delegation tokens, and the notifications of their changes.

ACLs on one resource are in one node: literal ones in `/kafka-acl/<Type>/<name>`, prefixed ones
in `/kafka-acl-extended/prefixed/<Type>/<name>`. The names are *not* encoded (Kafka's choice).
"""

from collections.abc import Iterable
from typing import Final
from urllib.parse import unquote

from odradek.coord.layout_config import sanitize
from odradek.coord.znode import CorruptNodeError, Fields, dump, parse
from odradek.model.acl import AclEntry, AclOperation, ResourcePattern, ResourceType, words
from odradek.model.clock import WallMs
from odradek.security.delegation_tokens import DelegationToken

ACLS: Final = "/kafka-acl"
ACL_CHANGES: Final = "/kafka-acl-changes"
EXTENDED_ACLS: Final = "/kafka-acl-extended"
EXTENDED_ACL_CHANGES: Final = "/kafka-acl-extended-changes"
ACL_CHANGE_PREFIX: Final = "acl_changes_"
TOKENS: Final = "/delegation_token/tokens"
TOKEN_CHANGES: Final = "/delegation_token/token_changes"
TOKEN_CHANGE_PREFIX: Final = "token_change_"


_OPERATIONS: Final = {words(operation): operation for operation in AclOperation}
_RESOURCE_TYPES: Final = {words(kind): kind for kind in ResourceType}


# ---------------------------------------------------------------------------------- ACLs


def acl_type_path(resource_type: ResourceType, *, prefixed: bool) -> str:
    """The parent of all resources of a type that have ACLs."""
    root = f"{EXTENDED_ACLS}/prefixed" if prefixed else ACLS
    return f"{root}/{words(resource_type)}"


# The parents of ACLs on resources of each type, in the order of Kafka's names.
ACL_PARENTS: Final = tuple(
    acl_type_path(kind, prefixed=prefixed)
    for prefixed in (False, True)
    for kind in ResourceType
    if kind not in {ResourceType.UNKNOWN, ResourceType.ANY}
)


def acl_path(pattern: ResourcePattern) -> str:
    """The node with all ACLs on one pattern."""
    parent = acl_type_path(pattern.resource_type, prefixed=pattern.prefixed)
    return f"{parent}/{pattern.name}"


def encode_acls(entries: Iterable[AclEntry]) -> bytes:
    """All ACLs on one pattern."""
    return dump(
        {
            "acls": [
                {
                    "principal": entry.principal,
                    "permissionType": "Allow" if entry.allowed else "Deny",
                    "host": entry.host,
                    "operation": words(entry.operation),
                }
                for entry in sorted(entries)
            ],
            "version": 1,
        }
    )


def decode_acls(path: str, data: bytes | None) -> frozenset[AclEntry]:
    """All ACLs on one pattern."""
    if not data:
        return frozenset()
    return frozenset(map(_acl_entry, parse(path, data).each("acls")))


def _acl_entry(fields: Fields) -> AclEntry:
    operation = fields.text("operation")
    permission = fields.text("permissionType")
    if operation not in _OPERATIONS:
        raise fields.wrong(f"operation {operation!r}, must be one of {', '.join(_OPERATIONS)}")
    if permission not in ("Allow", "Deny"):
        raise fields.wrong(f"permissionType {permission!r}, must be Allow or Deny")
    return AclEntry(
        principal=fields.text("principal"),
        host=fields.text("host"),
        operation=_OPERATIONS[operation],
        allowed=permission == "Allow",
    )


def acl_change_parent(pattern: ResourcePattern) -> str:
    """The parent of the sequential nodes that announce changes of this pattern's ACLs."""
    return EXTENDED_ACL_CHANGES if pattern.prefixed else ACL_CHANGES


def encode_acl_change(pattern: ResourcePattern) -> bytes:
    """A notification that the ACLs on a pattern have changed."""
    if not pattern.prefixed:
        return f"{pattern.resource_type.name}:{pattern.name}".encode()
    return dump(
        {
            "version": 1,
            "resourceType": pattern.resource_type.name,
            "name": pattern.name,
            "patternType": "PREFIXED",
        }
    )


def decode_acl_change(path: str, data: bytes | None) -> ResourcePattern:
    """The pattern whose ACLs have changed; the path determines which of the two forms it is."""
    if path.startswith(EXTENDED_ACL_CHANGES):
        fields = parse(path, data)
        kind, name, pattern = (fields.text(k) for k in ("resourceType", "name", "patternType"))
    else:
        # Only the first colon separates: names may contain more.
        kind, _, name = (data or b"").decode("utf-8", "replace").partition(":")
        pattern = "LITERAL"
    is_known = kind in ResourceType.__members__ and pattern in ("LITERAL", "PREFIXED")
    if not is_known or name in {"", ".", ".."} or "/" in name or "\0" in name:
        raise CorruptNodeError(path, f"{data!r}, must name a resource type and a name")
    return ResourcePattern(ResourceType[kind], name, prefixed=pattern == "PREFIXED")


# ---------------------------------------------------------------------------- delegation tokens


def token_path(token_id: str) -> str:
    """The node of one token."""
    return f"{TOKENS}/{token_id}"


def encode_token(token: DelegationToken) -> bytes:
    """`/delegation_token/tokens/ID`, version 3. Principals are URL-encoded here."""
    return dump(
        {
            "issueTimestamp": token.issued_ms,
            "renewers": [sanitize(renewer) for renewer in token.renewers],
            "tokenRequester": sanitize(token.requester),
            "tokenId": token.token_id,
            "owner": sanitize(token.owner),
            "expiryTimestamp": token.expires_ms,
            "maxTimestamp": token.expires_ms_max,
            "version": 3,
        }
    )


def decode_token(path: str, data: bytes | None) -> DelegationToken:
    """`/delegation_token/tokens/ID`, versions 1 to 3."""
    fields = parse(path, data)
    owner = fields.text("owner")
    token_id = fields.text("tokenId")
    if path != token_path(token_id):
        raise fields.wrong(f"tokenId {token_id!r}, must be the name of the node")
    return DelegationToken(
        token_id=token_id,
        owner=unquote(owner),
        # Before version 3 a token was always requested by its owner.
        requester=unquote(fields.text("tokenRequester", owner)),
        renewers=tuple(map(unquote, fields.texts("renewers"))),
        issued_ms=WallMs(fields.long("issueTimestamp")),
        expires_ms=WallMs(fields.long("expiryTimestamp")),
        expires_ms_max=WallMs(fields.long("maxTimestamp")),
    )
