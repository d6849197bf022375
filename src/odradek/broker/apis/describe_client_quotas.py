"""DescribeClientQuotas (48), versions 0-1: the quotas of entities that match a filter.

Behaviour:
    * Cluster DescribeConfigs; else CLUSTER_AUTHORIZATION_FAILED.
    * Any broker answers, from the store. `strict`: only entities without further types.

Versions:
    v1  flexible
"""

from odradek.broker.admin.clients import ClientAdmin, Component
from odradek.broker.admin.topics import store_errors_answered
from odradek.broker.serving.session import Session
from odradek.model.acl import AclOperation
from odradek.model.errors import ApiError
from odradek.wire.messages.describe_client_quotas import (
    DescribeClientQuotasRequest,
    DescribeClientQuotasResponse,
    EntityData,
    EntryData,
    ValueData,
)


async def describe_client_quotas(
    admin: ClientAdmin, session: Session, request: DescribeClientQuotasRequest
) -> DescribeClientQuotasResponse:
    """List the matching entities with their quotas."""
    components = [Component(c.entity_type, c.match_type, c.match) for c in request.components]
    try:
        session.check_cluster(AclOperation.DESCRIBE_CONFIGS)
        with store_errors_answered():
            found = await admin.describe_quotas(components, strict=request.strict)
    except ApiError as error:
        return DescribeClientQuotasResponse(
            error_code=error.code, error_message=error.message, entries=None
        )
    return DescribeClientQuotasResponse(
        error_message=None,
        entries=[
            EntryData(
                entity=[EntityData(entity_type=k, entity_name=n) for k, n in entity.items()],
                values=[ValueData(key=key, value=value) for key, value in quotas.items()],
            )
            for entity, quotas in found
        ],
    )
