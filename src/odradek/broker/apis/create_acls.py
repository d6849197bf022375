"""CreateAcls (30), versions 0-3: store ACLs.

Behaviour:
    * Cluster Alter; else CLUSTER_AUTHORIZATION_FAILED, for each.
    * Without `authorizer.class.name`: SECURITY_DISABLED, for each.
    * Each is checked on its own; valid ones are stored together, by pattern. One that exists
      already is no error.

Versions:
    v1  prefixed patterns    v2  flexible    v3  user resources
"""

from odradek.broker.admin.acls import (
    PATTERN_LITERAL,
    PATTERN_PREFIXED,
    PERMISSION_ALLOW,
    PERMISSION_DENY,
    AclAdmin,
    check_new,
)
from odradek.broker.admin.topics import store_errors_answered
from odradek.broker.serving.session import Session
from odradek.model.acl import AclEntry, AclOperation, Binding, ResourcePattern, ResourceType
from odradek.model.errors import ApiError, ErrorCode
from odradek.wire.messages.create_acls import (
    AclCreation,
    AclCreationResult,
    CreateAclsRequest,
    CreateAclsResponse,
)


async def create_acls(
    admin: AclAdmin, session: Session, request: CreateAclsRequest
) -> CreateAclsResponse:
    outcomes: list[Binding | ApiError] = []
    for creation in request.creations:
        try:
            session.check_cluster(AclOperation.ALTER)
            admin.check_configured("No Authorizer is configured.")
            outcomes.append(_binding(creation))
        except ApiError as error:
            outcomes.append(error.with_traceback(None))
    failure: ApiError | None = None
    try:
        with store_errors_answered():
            await admin.create([outcome for outcome in outcomes if isinstance(outcome, Binding)])
    except ApiError as error:
        failure = error
    response = CreateAclsResponse()
    for outcome in outcomes:
        refusal = outcome if isinstance(outcome, ApiError) else failure
        response.results.append(
            AclCreationResult(
                error_code=refusal.code if refusal else ErrorCode.NONE,
                error_message=refusal.message if refusal else None,
            )
        )
    return response


def _binding(creation: AclCreation) -> Binding:
    """The ACL to create.

    Raises:
        ApiError: INVALID_REQUEST, a code is unknown or not allowed here.
    """
    concrete = (
        creation.resource_type in list(ResourceType)[2:]
        and creation.operation in list(AclOperation)[2:]
        and creation.resource_pattern_type in (PATTERN_LITERAL, PATTERN_PREFIXED)
        and creation.permission_type in (PERMISSION_DENY, PERMISSION_ALLOW)
    )
    if not concrete:
        raise ApiError(
            ErrorCode.INVALID_REQUEST, f"CreatableAcls contain unknown elements: {creation}"
        )
    pattern = ResourcePattern(
        ResourceType(creation.resource_type),
        creation.resource_name,
        prefixed=creation.resource_pattern_type == PATTERN_PREFIXED,
    )
    entry = AclEntry(
        principal=creation.principal,
        host=creation.host,
        operation=AclOperation(creation.operation),
        allowed=creation.permission_type == PERMISSION_ALLOW,
    )
    binding = Binding(pattern, entry)
    check_new(binding)
    return binding
