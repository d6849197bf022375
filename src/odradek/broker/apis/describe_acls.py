"""DescribeAcls (29), versions 0-3: the ACLs that match a filter.

Behaviour:
    * Cluster Describe; else CLUSTER_AUTHORIZATION_FAILED.
    * Without `authorizer.class.name`: SECURITY_DISABLED.
    * Any broker answers, from the store.

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
from odradek.model.acl import AclOperation, ResourcePattern
from odradek.model.errors import ApiError
from odradek.wire.messages.describe_acls import (
    AclDescription,
    DescribeAclsRequest,
    DescribeAclsResource,
    DescribeAclsResponse,
)


async def describe_acls(
    admin: AclAdmin, session: Session, request: DescribeAclsRequest
) -> DescribeAclsResponse:
    """List the matching ACLs by resource."""
    wanted = filter_of(request)
    try:
        session.check_cluster(AclOperation.DESCRIBE)
        admin.check_configured("No Authorizer is configured on the broker")
        wanted.check()
        with store_errors_answered():
            found = await admin.describe(wanted)
    except ApiError as error:
        return DescribeAclsResponse(error_code=error.code, error_message=error.message)
    resources: dict[ResourcePattern, DescribeAclsResource] = {}
    for pattern, entry in found:
        outcome = resources.setdefault(
            pattern,
            DescribeAclsResource(
                resource_type=pattern.resource_type,
                resource_name=pattern.name,
                pattern_type=PATTERN_PREFIXED if pattern.prefixed else PATTERN_LITERAL,
            ),
        )
        outcome.acls.append(
            AclDescription(
                principal=entry.principal,
                host=entry.host,
                operation=entry.operation,
                permission_type=permission_of(entry),
            )
        )
    return DescribeAclsResponse(error_message=None, resources=list(resources.values()))
