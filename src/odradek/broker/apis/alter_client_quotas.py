"""AlterClientQuotas (49), versions 0-1: quotas of users, clients and addresses set and removed.

Behaviour:
    * Cluster AlterConfigs; else CLUSTER_AUTHORIZATION_FAILED, for each entity.
    * Any broker stores them. Each entity succeeds or fails on its own.
    * Every broker enforces them once it has handled the notification of the change.

Versions:
    v1  flexible
"""

from odradek.broker.admin.clients import ClientAdmin
from odradek.broker.admin.topics import store_errors_answered
from odradek.broker.serving.session import Session
from odradek.model.acl import AclOperation
from odradek.model.errors import ApiError
from odradek.wire.messages.alter_client_quotas import (
    AlterClientQuotasRequest,
    AlterClientQuotasResponse,
    AlteredEntity,
    AlteredEntry,
)


async def alter_client_quotas(
    admin: ClientAdmin, session: Session, request: AlterClientQuotasRequest
) -> AlterClientQuotasResponse:
    response = AlterClientQuotasResponse()
    for entry in request.entries:
        outcome = AlteredEntry(
            error_message=None,
            entity=[
                AlteredEntity(entity_type=part.entity_type, entity_name=part.entity_name)
                for part in entry.entity
            ],
        )
        changes = {op.key: None if op.remove else op.value for op in entry.ops}
        try:
            session.check_cluster(AclOperation.ALTER_CONFIGS)
            with store_errors_answered():
                await admin.alter_quotas(
                    {part.entity_type: part.entity_name for part in entry.entity},
                    changes,
                    validate_only=request.validate_only,
                )
        except ApiError as error:
            outcome.error_code = error.code
            outcome.error_message = error.message
        response.entries.append(outcome)
    return response
