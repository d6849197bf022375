"""DeleteAcls (31), versions 0-3: delete and list the ACLs that match filters.

Behaviour:
    * Cluster Alter; else CLUSTER_AUTHORIZATION_FAILED, for each filter.
    * Without `authorizer.class.name`: SECURITY_DISABLED, for each filter.
    * An ACL that several filters match is listed for each, and deleted once.

Versions:
    v1  prefixed patterns    v2  flexible    v3  user resources
"""

from odradek.broker.admin.acls import (
    PATTERN_LITERAL,
    PATTERN_PREFIXED,
    AclAdmin,
    filter_of,
    permission_of,
)
from odradek.broker.admin.topics import store_errors_answered
from odradek.broker.serving.session import Session
from odradek.model.acl import AclOperation, Binding
from odradek.model.errors import ApiError
from odradek.wire.messages.delete_acls import (
    DeleteAclsFilter,
    DeleteAclsFilterResult,
    DeleteAclsMatchingAcl,
    DeleteAclsRequest,
    DeleteAclsResponse,
)


async def delete_acls(
    admin: AclAdmin, session: Session, request: DeleteAclsRequest
) -> DeleteAclsResponse:
    """Delete what each filter matches."""
    response = DeleteAclsResponse()
    for asked in request.filters:
        try:
            session.check_cluster(AclOperation.ALTER)
            admin.check_configured("No Authorizer is configured.")
            with store_errors_answered():
                deleted = await _delete(admin, asked)
        except ApiError as error:
            result = DeleteAclsFilterResult(error_code=error.code, error_message=error.message)
        else:
            result = DeleteAclsFilterResult(
                error_message=None, matching_acls=[_matching(binding) for binding in deleted]
            )
        response.filter_results.append(result)
    return response


async def _delete(admin: AclAdmin, asked: DeleteAclsFilter) -> list[Binding]:
    wanted = filter_of(asked)
    wanted.check()
    found = await admin.describe(wanted)
    await admin.delete(found)
    return found


def _matching(binding: Binding) -> DeleteAclsMatchingAcl:
    pattern, entry = binding
    return DeleteAclsMatchingAcl(
        error_message=None,
        resource_type=pattern.resource_type,
        resource_name=pattern.name,
        pattern_type=PATTERN_PREFIXED if pattern.prefixed else PATTERN_LITERAL,
        principal=entry.principal,
        host=entry.host,
        operation=entry.operation,
        permission_type=permission_of(entry),
    )
