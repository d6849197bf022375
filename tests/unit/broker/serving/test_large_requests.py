"""Admin requests of thousands of elements: other clients are served while they are handled."""

import asyncio

import pytest
from tests.unit.broker.live import play

from odradek.broker.apis.describe_configs import REPEATED_MAX
from odradek.model.errors import ErrorCode
from odradek.wire.messages.alter_client_quotas import (
    AlterClientQuotasRequest,
    EntityData,
    EntryData,
    OpData,
)
from odradek.wire.messages.alter_user_scram_credentials import (
    AlterUserScramCredentialsRequest,
    ScramCredentialDeletion,
    ScramCredentialUpsertion,
)
from odradek.wire.messages.api_versions import ApiVersionsRequest
from odradek.wire.messages.create_partitions import CreatePartitionsRequest, CreatePartitionsTopic
from odradek.wire.messages.delete_topics import DeleteTopicsRequest, DeleteTopicState
from odradek.wire.messages.describe_configs import DescribeConfigsRequest, DescribeConfigsResource
from odradek.wire.messages.describe_log_dirs import DescribableLogDirTopic, DescribeLogDirsRequest
from odradek.wire.messages.describe_user_scram_credentials import (
    DescribeUserScramCredentialsRequest,
    UserName,
)
from odradek.wire.messages.elect_leaders import ElectLeadersRequest, TopicPartitions
from odradek.wire.messages.incremental_alter_configs import (
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
)
from odradek.wire.messages.list_partition_reassignments import (
    ListPartitionReassignmentsRequest,
    ListPartitionReassignmentsTopics,
)
from odradek.wire.messages.update_features import FeatureUpdateKey, UpdateFeaturesRequest

MANY = 5_000
TOPIC = 2


def named(kind, field="name", **more):
    return [kind(**{field: f"name-{number}"}, **more) for number in range(MANY)]


LARGE = {
    "DeleteTopics v5": (
        5,
        DeleteTopicsRequest(
            topic_names=[f"name-{number}" for number in range(MANY)], timeout_ms=1_000
        ),
        lambda response: response.responses,
    ),
    "DeleteTopics v6": (
        6,
        DeleteTopicsRequest(topics=named(DeleteTopicState), timeout_ms=1_000),
        lambda response: response.responses,
    ),
    "ElectLeaders": (
        2,
        ElectLeadersRequest(
            election_type=0,
            topic_partitions=named(TopicPartitions, "topic", partitions=[0]),
            timeout_ms=1_000,
        ),
        lambda response: response.replica_election_results,
    ),
    "AlterClientQuotas": (
        1,
        AlterClientQuotasRequest(
            entries=[
                EntryData(
                    entity=[EntityData(entity_type="user", entity_name=f"name-{number}")],
                    ops=[OpData(key="producer_byte_rate", value=1.0, remove=False)],
                )
                for number in range(MANY)
            ],
            validate_only=True,
        ),
        lambda response: response.entries,
    ),
    "DescribeUserScramCredentials": (
        0,
        DescribeUserScramCredentialsRequest(users=named(UserName)),
        lambda response: response.results,
    ),
    "AlterUserScramCredentials": (
        0,
        AlterUserScramCredentialsRequest(
            upsertions=named(
                ScramCredentialUpsertion,
                mechanism=1,
                iterations=1,
                salt=b"salt",
                salted_password=b"password",
            )
        ),
        lambda response: response.results,
    ),
    "UpdateFeatures": (
        1,
        UpdateFeaturesRequest(
            feature_updates=named(FeatureUpdateKey, "feature", max_version_level=1)
        ),
        lambda response: response.results,
    ),
    "CreatePartitions": (
        3,
        CreatePartitionsRequest(topics=named(CreatePartitionsTopic, count=3), timeout_ms=1_000),
        lambda response: response.results,
    ),
}


@pytest.mark.parametrize("name", LARGE)
def test_while_a_large_request_is_handled_others_are_answered(name):
    version, request, results = LARGE[name]

    async def story(live):
        await live.topic("t")
        answer = live.peer().send(request, version)
        other = live.peer()
        served = 0
        while not answer.done():
            await other.ask(ApiVersionsRequest(), 0)
            served += 1
            await asyncio.sleep(0)

        assert served > MANY // 100
        assert len(results(await answer)) == MANY

    play(story)


def test_of_many_partitions_those_under_reassignment_are_listed():
    async def story(live):
        await live.topic("t")
        request = ListPartitionReassignmentsRequest(
            topics=named(ListPartitionReassignmentsTopics, partition_indexes=[0]), timeout_ms=1_000
        )
        answer = await live.peer().ask(request, 0)

        assert answer.error_code == ErrorCode.NONE
        assert answer.topics == []

    play(story)


def test_a_resource_is_described_16_times_however_often_it_is_named():
    async def story(live):
        await live.topic("t")
        named_often = DescribeConfigsResource(
            resource_type=TOPIC, resource_name="t", configuration_keys=None
        )
        answer = await live.peer().ask(DescribeConfigsRequest(resources=[named_often] * MANY), 4)
        described = [result for result in answer.results if result.configs]
        errors = [result.error_code for result in answer.results]

        assert len(described) == errors.count(0) == REPEATED_MAX
        assert errors.count(ErrorCode.INVALID_REQUEST) == MANY - REPEATED_MAX

    play(story)


def test_a_resource_that_is_named_first_and_last_is_not_altered():
    async def story(live):
        await live.topic("t")
        named = [AlterConfigsResource(resource_type=TOPIC, resource_name="t", configs=[])]
        others = [
            AlterConfigsResource(resource_type=TOPIC, resource_name=f"name-{number}", configs=[])
            for number in range(MANY)
        ]
        request = IncrementalAlterConfigsRequest(resources=named + others + named)
        answer = await live.peer().ask(request, 1)
        errors = [r.error_code for r in answer.responses if r.resource_name == "t"]

        assert errors == [ErrorCode.INVALID_REQUEST] * 2
        assert len(answer.responses) == MANY + 2

    play(story)


def test_partitions_of_a_directory_are_found_among_many_that_are_not_here():
    async def story(live):
        await live.topic("t", 3)
        topics = [
            *named(DescribableLogDirTopic, "topic", partitions=[0]),
            DescribableLogDirTopic(topic="t", partitions=[0]),
            DescribableLogDirTopic(topic="t", partitions=[2, 9]),
        ]
        answer = await live.peer().ask(DescribeLogDirsRequest(topics=topics), 4)
        found = {
            (topic.name, partition.partition_index)
            for result in answer.results
            for topic in result.topics
            for partition in topic.partitions
        }

        assert found == {("t", 0), ("t", 2)}

    play(story)


def test_a_user_among_many_gets_all_of_its_changes():
    async def story(live):
        upsertions = named(
            ScramCredentialUpsertion,
            mechanism=1,
            iterations=4096,
            salt=b"salt",
            salted_password=b"password",
        )[:300]
        request = AlterUserScramCredentialsRequest(
            deletions=[ScramCredentialDeletion(name="name-7", mechanism=2)], upsertions=upsertions
        )
        answer = await live.peer().ask(request, 0)
        codes = {result.user: result.error_code for result in answer.results}

        assert len(codes) == len(upsertions)
        assert codes["name-7"] == ErrorCode.RESOURCE_NOT_FOUND
        assert codes["name-8"] == ErrorCode.NONE

    play(story)
