"""DescribeCluster (60), versions 0-1: the cluster's id, its brokers, its controller.

Behaviour:
    * Before its first UpdateMetadata a broker knows no brokers. The answer waits for it, like that
      of Metadata; Apache Kafka answers with a cluster of no brokers.

Versions:
    v1  `endpoint_type`: 1 brokers, 2 KRaft controllers (there are none here)
"""

from typing import Final

from odradek.broker.apis.metadata import NOT_ASKED_FOR, cluster_operations
from odradek.broker.cluster.metadata_cache import MetadataCache
from odradek.broker.serving.session import Session
from odradek.model.errors import ErrorCode
from odradek.wire.messages.describe_cluster import (
    DescribeClusterBroker,
    DescribeClusterRequest,
    DescribeClusterResponse,
)

_BROKERS: Final = 1
_CONTROLLERS: Final = 2


def describe_cluster(
    cache: MetadataCache, session: Session, request: DescribeClusterRequest, *, cluster_id: str
) -> DescribeClusterResponse:
    if request.endpoint_type != _BROKERS:
        error = (
            ErrorCode.MISMATCHED_ENDPOINT_TYPE
            if request.endpoint_type == _CONTROLLERS
            else ErrorCode.UNSUPPORTED_ENDPOINT_TYPE
        )
        return DescribeClusterResponse(
            error_code=error,
            error_message="this is a broker; the cluster has no KRaft controllers",
            cluster_authorized_operations=NOT_ASKED_FOR,
        )
    operations = NOT_ASKED_FOR
    if request.include_cluster_authorized_operations:
        operations = cluster_operations(session)
    return DescribeClusterResponse(
        cluster_id=cluster_id,
        controller_id=cache.controller_id,
        brokers=[
            DescribeClusterBroker(
                broker_id=broker.id, host=point.host, port=point.port, rack=broker.rack
            )
            for broker, point in cache.live_end_points(session.listener)
        ],
        cluster_authorized_operations=operations,
    )
