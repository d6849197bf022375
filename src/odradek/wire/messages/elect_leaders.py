"""ElectLeaders (43): elects the preferred replica, or one that is not in the ISR, as leader.

Versions:
    v1  unclean election
    v2  flexible
"""

from odradek.wire.schema import Message, array, int8, int16, int32, int32_array, string


class TopicPartitions(Message):
    topic: str = string()
    partitions: list[int] = int32_array()


class ElectLeadersRequest(Message, api_key=43, versions="0-2", flexible="2+"):
    election_type: int = int8("1+")  # 0: preferred; 1: unclean
    # None: all
    topic_partitions: list[TopicPartitions] | None = array(TopicPartitions, nullable="0+")
    timeout_ms: int = int32(default=60000)


class PartitionResult(Message):
    partition_id: int = int32()
    error_code: int = int16()
    error_message: str | None = string(nullable="0+")


class ReplicaElectionResult(Message):
    topic: str = string()
    partition_result: list[PartitionResult] = array(PartitionResult)


class ElectLeadersResponse(Message, api_key=43, versions="0-2", flexible="2+"):
    throttle_time_ms: int = int32()
    error_code: int = int16("1+")
    replica_election_results: list[ReplicaElectionResult] = array(ReplicaElectionResult)
