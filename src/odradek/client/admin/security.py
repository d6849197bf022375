"""Admin requests about ACLs, client quotas, SCRAM credentials and features.

General functions are in `odradek.client.admin.topics`.
"""

from collections.abc import Mapping, Sequence
from typing import Any, Final, NamedTuple

from odradek.client.admin.topics import Outcome, any_broker, ask_controller
from odradek.client.cluster import Cluster
from odradek.client.kafka_errors import check, failure
from odradek.model.errors import ApiError

# --------------------------------------------------------------------------------------- quotas

# The entity of a quota: (entity type, name) pairs; the name None is the default entity.
QuotaEntity = tuple[tuple[str, str | None], ...]

EXACT: Final = 0
DEFAULT: Final = 1
SPECIFIED: Final = 2


class QuotaFilter(NamedTuple):
    """Selects quota entities by one of their types.

    `match`: EXACT (this name), DEFAULT (the default entity), SPECIFIED (any name).
    """

    entity_type: str
    match: int
    name: str | None = None


async def describe_client_quotas(
    cluster: Cluster, filters: Sequence[QuotaFilter], *, strict: bool
) -> list[tuple[QuotaEntity, list[tuple[str, float]]]]:
    """The quotas of matching entities. `strict`: without entities that have other types.

    Raises:
        ApiError: the broker refuses.
    """
    from odradek.wire.messages import describe_client_quotas as wire  # noqa: PLC0415

    request = wire.DescribeClientQuotasRequest(
        components=[
            wire.ComponentData(entity_type=kind, match_type=match, match=name)
            for kind, match, name in filters
        ],
        strict=strict,
    )
    response = await (await any_broker(cluster)).request(request, wire.DescribeClientQuotasResponse)
    check(response.error_code, response.error_message)
    return [
        (
            tuple((part.entity_type, part.entity_name) for part in entry.entity),
            [(value.key, value.value) for value in entry.values],
        )
        for entry in response.entries or ()
    ]


async def alter_client_quotas(
    cluster: Cluster, entity: QuotaEntity, changes: Mapping[str, float | None]
) -> None:
    """Set quotas of an entity, or (None) remove them.

    Raises:
        ApiError: the broker refuses.
    """
    from odradek.wire.messages import alter_client_quotas as wire  # noqa: PLC0415

    entry = wire.EntryData(
        entity=[wire.EntityData(entity_type=kind, entity_name=name) for kind, name in entity],
        ops=[
            wire.OpData(key=key, value=0.0 if value is None else value, remove=value is None)
            for key, value in changes.items()
        ],
    )
    request = wire.AlterClientQuotasRequest(entries=[entry])
    response = await ask_controller(
        cluster,
        request,
        wire.AlterClientQuotasResponse,
        lambda r: (e.error_code for e in r.entries),
    )
    for outcome in response.entries:
        check(outcome.error_code, outcome.error_message)


# ---------------------------------------------------------------------------------------- SCRAM

SCRAM_MECHANISMS: Final = {"SCRAM-SHA-256": 1, "SCRAM-SHA-512": 2}
SCRAM_ITERATIONS_MIN: Final = 4096


async def describe_scram(
    cluster: Cluster, users: Sequence[str]
) -> dict[str, list[tuple[str, int]] | ApiError]:
    """(mechanism, iterations) of these users, or of all users with credentials.

    Raises:
        ApiError: the broker refuses.
    """
    from odradek.wire.messages import describe_user_scram_credentials as wire  # noqa: PLC0415

    request = wire.DescribeUserScramCredentialsRequest(
        users=[wire.UserName(name=user) for user in users] or None
    )
    connection = await cluster.controller()
    response = await connection.request(request, wire.DescribeUserScramCredentialsResponse)
    check(response.error_code, response.error_message)
    names = {code: name for name, code in SCRAM_MECHANISMS.items()}
    return {
        result.user: failure(result.error_code, result.error_message)
        or [(names.get(i.mechanism, "UNKNOWN"), i.iterations) for i in result.credential_infos]
        for result in response.results
    }


class ScramCredential(NamedTuple):
    """A salted hash to store. The password itself is not sent to the broker."""

    mechanism: str
    iterations: int
    salt: bytes
    salted_password: bytes


def scram_credential(mechanism: str, password: str, iterations: int) -> ScramCredential:
    """The credential of a password, with a random salt (RFC 5802)."""
    import hashlib  # noqa: PLC0415 - few calls need these
    import secrets  # noqa: PLC0415

    from odradek.security.sasl.salt import SEED_BYTES, salt_of  # noqa: PLC0415

    salt = salt_of(secrets.token_bytes(SEED_BYTES))
    algorithm = "sha256" if mechanism == "SCRAM-SHA-256" else "sha512"
    salted = hashlib.pbkdf2_hmac(algorithm, password.encode(), salt, iterations)
    return ScramCredential(mechanism, iterations, salt, salted)


async def alter_scram(
    cluster: Cluster,
    user: str,
    *,
    upsertions: Sequence[ScramCredential] = (),
    deletions: Sequence[str] = (),
) -> None:
    """Store credentials of a user, and delete those of other mechanisms.

    Raises:
        ApiError: the broker refuses.
    """
    from odradek.wire.messages import alter_user_scram_credentials as wire  # noqa: PLC0415

    request = wire.AlterUserScramCredentialsRequest(
        deletions=[
            wire.ScramCredentialDeletion(name=user, mechanism=SCRAM_MECHANISMS[mechanism])
            for mechanism in deletions
        ],
        upsertions=[
            wire.ScramCredentialUpsertion(
                name=user,
                mechanism=SCRAM_MECHANISMS[credential.mechanism],
                iterations=credential.iterations,
                salt=credential.salt,
                salted_password=credential.salted_password,
            )
            for credential in upsertions
        ],
    )
    response = await ask_controller(
        cluster,
        request,
        wire.AlterUserScramCredentialsResponse,
        lambda r: (result.error_code for result in r.results),
    )
    for result in response.results:
        check(result.error_code, result.error_message)


# ----------------------------------------------------------------------------------------- ACLs

ANY: Final = 1
MATCH: Final = 2
LITERAL: Final = 3
PREFIXED: Final = 4
PATTERN_TYPES: Final = {"ANY": ANY, "MATCH": MATCH, "LITERAL": LITERAL, "PREFIXED": PREFIXED}

DENY: Final = 2
ALLOW: Final = 3


class Acl(NamedTuple):
    """An ACL, or a filter for ACLs: None and ANY match everything."""

    resource_type: int
    name: str | None
    pattern_type: int
    principal: str | None
    host: str | None
    operation: int
    permission: int


def _filter(wanted: Acl) -> dict[str, Any]:
    """The fields of a filter, which are the same in DescribeAcls and DeleteAcls."""
    return {
        "resource_type_filter": wanted.resource_type,
        "resource_name_filter": wanted.name,
        "pattern_type_filter": wanted.pattern_type,
        "principal_filter": wanted.principal,
        "host_filter": wanted.host,
        "operation": wanted.operation,
        "permission_type": wanted.permission,
    }


def _acl(resource: Any, entry: Any) -> Acl:
    return Acl(
        resource.resource_type,
        resource.resource_name,
        resource.pattern_type,
        entry.principal,
        entry.host,
        entry.operation,
        entry.permission_type,
    )


async def describe_acls(cluster: Cluster, wanted: Acl) -> list[Acl]:
    """The ACLs that match a filter.

    Raises:
        ApiError: the broker refuses.
    """
    from odradek.wire.messages import describe_acls as wire  # noqa: PLC0415

    request = wire.DescribeAclsRequest(**_filter(wanted))
    response = await (await any_broker(cluster)).request(request, wire.DescribeAclsResponse)
    check(response.error_code, response.error_message)
    return [_acl(resource, acl) for resource in response.resources for acl in resource.acls]


async def create_acls(cluster: Cluster, acls: Sequence[Acl]) -> list[Outcome]:
    """Create ACLs; the outcome of each."""
    from odradek.wire.messages import create_acls as wire  # noqa: PLC0415

    request = wire.CreateAclsRequest(
        creations=[
            wire.AclCreation(
                resource_type=acl.resource_type,
                resource_name=acl.name or "",
                resource_pattern_type=acl.pattern_type,
                principal=acl.principal or "",
                host=acl.host or "",
                operation=acl.operation,
                permission_type=acl.permission,
            )
            for acl in acls
        ]
    )
    response = await ask_controller(
        cluster, request, wire.CreateAclsResponse, lambda r: (a.error_code for a in r.results)
    )
    return [failure(result.error_code, result.error_message) for result in response.results]


async def delete_acls(cluster: Cluster, wanted: Sequence[Acl]) -> list[list[Acl]]:
    """Delete the ACLs that match; the deleted ACLs of each filter.

    Raises:
        ApiError: the broker refuses one of the filters.
    """
    from odradek.wire.messages import delete_acls as wire  # noqa: PLC0415

    request = wire.DeleteAclsRequest(
        filters=[wire.DeleteAclsFilter(**_filter(acl)) for acl in wanted]
    )
    response = await ask_controller(
        cluster,
        request,
        wire.DeleteAclsResponse,
        lambda r: (f.error_code for f in r.filter_results),
    )
    deleted = []
    for result in response.filter_results:
        check(result.error_code, result.error_message)
        for acl in result.matching_acls:
            check(acl.error_code, acl.error_message)
        deleted.append([_acl(acl, acl) for acl in result.matching_acls])
    return deleted


# ------------------------------------------------------------------------------------- features


class FeatureUpdate(NamedTuple):
    """The new level of a feature. `upgrade_type`: 1 upgrade, 2 safe, 3 unsafe downgrade."""

    name: str
    level: int
    upgrade_type: int


async def update_features(
    cluster: Cluster, updates: Sequence[FeatureUpdate], *, validate_only: bool = False
) -> dict[str, Outcome]:
    """Change the levels of finalized features.

    Raises:
        ApiError: the controller refuses the whole request.
    """
    from odradek.wire.messages import update_features as wire  # noqa: PLC0415

    request = wire.UpdateFeaturesRequest(
        feature_updates=[
            wire.FeatureUpdateKey(
                feature=update.name,
                max_version_level=update.level,
                upgrade_type=update.upgrade_type,
            )
            for update in updates
        ],
        validate_only=validate_only,
    )
    response = await ask_controller(
        cluster, request, wire.UpdateFeaturesResponse, lambda r: (r.error_code,)
    )
    check(response.error_code, response.error_message)
    outcomes = {r.feature: failure(r.error_code, r.error_message) for r in response.results}
    return {update.name: outcomes.get(update.name) for update in updates}
