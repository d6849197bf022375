"""The state of the cluster for which the ACL matrix makes its requests, and how it is kept."""

import asyncio
from collections.abc import Mapping, Sequence
from typing import Any, Final, Protocol

from tests.recorded.acl_matrix.answers import compared
from tests.recorded.acl_matrix.probes import (
    GROUPS,
    NEW_TOPICS,
    OPEN_TRANSACTION,
    PLAIN_BATCH,
    TOKENS,
    TOPICS,
    TRANSACTIONS,
    Probe,
    Token,
    principal,
)
from tests.recorded.acl_matrix.situations import ADMIN, ADMINISTRATOR, HOST, USER, Situation, allow

from odradek.model.acl import Binding, ResourceType
from odradek.model.errors import ErrorCode
from odradek.security.acls import Requester
from odradek.wire.messages.add_partitions_to_txn import (
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnTopic,
)
from odradek.wire.messages.create_acls import AclCreation, CreateAclsRequest
from odradek.wire.messages.create_delegation_token import (
    CreatableRenewers,
    CreateDelegationTokenRequest,
)
from odradek.wire.messages.create_topics import CreatableTopic, CreateTopicsRequest
from odradek.wire.messages.delete_acls import DeleteAclsFilter, DeleteAclsRequest
from odradek.wire.messages.delete_topics import DeleteTopicsRequest, DeleteTopicState
from odradek.wire.messages.describe_delegation_token import DescribeDelegationTokenRequest
from odradek.wire.messages.expire_delegation_token import ExpireDelegationTokenRequest
from odradek.wire.messages.find_coordinator import FindCoordinatorRequest
from odradek.wire.messages.init_producer_id import InitProducerIdRequest
from odradek.wire.messages.metadata import MetadataRequest, MetadataRequestTopic
from odradek.wire.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from odradek.wire.messages.produce import (
    PartitionProduceData,
    ProduceRequest,
    TopicProduceData,
)
from odradek.wire.schema import Message

_TRIES: Final = 600
_ALLOW, _DENY = 3, 2
_LITERAL, _PREFIXED = 3, 4
_ANY: Final = 1
_TXN_TIMEOUT_MS: Final = 900_000
_PREFIX: Final = 12  # so many characters of a token's id are a prefix that no other one has


class World(Protocol):
    """A broker, and clients that it takes for a principal on a host."""

    async def ask(self, client: Requester, request: Message, version: int | None = None) -> Any:
        """Send a request, in the last version unless one is given."""


class MatrixCluster:
    """Asks the probes in the situations, and restores the state after each."""

    def __init__(self, world: World) -> None:
        self._world = world
        self._topic_ids: dict[str, bytes] = {}
        self._macs: dict[str, bytes] = {}
        self._token_ids: dict[str, str] = {}

    async def answers(self, situation: Situation, probes: Sequence[Probe]) -> list[Any]:
        """The answers of all probes in a situation."""
        await self._replace_acls(situation.acls)
        found = []
        for probe in probes:
            ids = self._topic_ids | self._macs
            request = probe.request(ids)
            names = {each: name for name, each in ids.items()} | self._resources()
            try:
                response = await self._world.ask(situation.client, request, probe.version)
                found.append(compared(response, names))
            except ConnectionError as error:
                found.append({"connection": str(error)})
            await self._undo(probe.undo, found[-1])
        return found

    # ------------------------------------------------------------------------- the state

    async def prepare(self) -> None:
        """Create topics, groups and transactions."""
        for kind, name in ((0, "g"), (1, "x")):
            await self._until_found(kind, name)
        for topic in TOPICS:
            await self._create(topic)
            await self._produce(topic)
        for group in GROUPS:
            await self._commit(group)
        for transactional_id in TRANSACTIONS:
            request = InitProducerIdRequest(
                transactional_id=transactional_id, transaction_timeout_ms=_TXN_TIMEOUT_MS
            )
            made = await self._producer_id(request)
            if transactional_id == OPEN_TRANSACTION:
                await self._begin(made.producer_id, made.producer_epoch)
        for name, token in TOKENS.items():
            if token.owner != token.requester:
                await self._replace_acls([allow(USER, token.owner, principal=token.requester)])
            await self._create_token(name)

    async def resume(self) -> None:
        """Wait until a broker that has been restarted coordinates groups and transactions."""
        for kind, name in ((0, "g"), (1, "x")):
            await self._until_found(kind, name)
        for group in GROUPS:
            await self._commit(group)
        await self._producer_id(InitProducerIdRequest(transactional_id=None))
        await self._read_ids()
        await self._find_tokens()

    async def _admin(self, request: Message, version: int | None = None) -> Any:
        return await self._world.ask(ADMINISTRATOR, request, version)

    async def _until_found(self, key_type: int, key: str) -> None:
        request = FindCoordinatorRequest(key_type=key_type, coordinator_keys=[key])
        for _ in range(_TRIES):
            (found,) = (await self._admin(request)).coordinators
            if not found.error_code:
                return
            await asyncio.sleep(0.05)
        raise TimeoutError("there is no coordinator")

    async def _producer_id(self, request: InitProducerIdRequest) -> Any:
        for _ in range(_TRIES):
            made = await self._admin(request)
            if not made.error_code:
                return made
            await asyncio.sleep(0.05)
        raise TimeoutError("there is no producer id")

    async def _produce(self, topic: str) -> None:
        part = PartitionProduceData(index=0, records=PLAIN_BATCH)
        topics = [TopicProduceData(name=topic, partition_data=[part])]
        request = ProduceRequest(acks=1, timeout_ms=1000, topic_data=topics)
        (written,) = (await self._admin(request)).responses[0].partition_responses
        assert not written.error_code

    async def _create(self, topic: str) -> None:
        await self._may_create(topic, validate_only=False)
        await self._read_ids()

    async def _may_create(self, topic: str, *, validate_only: bool) -> None:
        """Create a topic, or wait until it could be created: its deletion may not be complete."""
        made = CreatableTopic(name=topic, num_partitions=1, replication_factor=1)
        request = CreateTopicsRequest(topics=[made], timeout_ms=30_000, validate_only=validate_only)
        for _ in range(_TRIES):
            (created,) = (await self._admin(request)).topics
            if not created.error_code:
                return
            await asyncio.sleep(0.05)
        raise TimeoutError(f"topic {topic} cannot be created: {created}")

    async def _read_ids(self) -> None:
        asked = [MetadataRequestTopic(name=name) for name in TOPICS]
        request = MetadataRequest(topics=asked, allow_auto_topic_creation=False)
        for topic in (await self._admin(request)).topics:
            self._topic_ids[topic.name] = bytes(topic.topic_id)

    async def _commit(self, group: str) -> None:
        part = OffsetCommitRequestPartition(
            partition_index=0, committed_offset=5, committed_metadata=""
        )
        request = OffsetCommitRequest(
            group_id=group,
            generation_id_or_member_epoch=-1,
            topics=[
                OffsetCommitRequestTopic(name=topic, partitions=[part])
                for topic in ("ta1", "ta2", "tb")
            ],
        )
        for _ in range(_TRIES):
            answer = await self._admin(request)
            if not any(part.error_code for topic in answer.topics for part in topic.partitions):
                return
            await asyncio.sleep(0.05)
        raise TimeoutError(f"group {group} takes no offsets")

    async def _begin(self, producer_id: int, producer_epoch: int) -> None:
        request = AddPartitionsToTxnRequest(
            v3_and_below_transactional_id=OPEN_TRANSACTION,
            v3_and_below_producer_id=producer_id,
            v3_and_below_producer_epoch=producer_epoch,
            v3_and_below_topics=[
                AddPartitionsToTxnTopic(name=topic, partitions=[0]) for topic in ("ta2", "tb")
            ],
        )
        answer = await self._admin(request, 3)
        errors = {
            part.partition_error_code
            for topic in answer.results_by_topic_v3_and_below
            for part in topic.results_by_partition
        }
        assert errors == {ErrorCode.NONE}

    # ---------------------------------------------------------------------------- tokens

    async def _create_token(self, name: str) -> None:
        """Create a token, as its requester."""
        token = TOKENS[name]
        kind, _, owner = token.owner.partition(":")
        request = CreateDelegationTokenRequest(
            owner_principal_type=kind,
            owner_principal_name=owner,
            renewers=[CreatableRenewers(**principal(renewer)) for renewer in token.renewers],
            max_lifetime_ms=-1,
        )
        made = await self._world.ask(Requester(token.requester, HOST), request)
        assert not made.error_code, made
        self._macs[name], self._token_ids[name] = bytes(made.hmac), made.token_id

    async def _tokens(self) -> dict[bytes, tuple[Token, str]]:
        """All tokens with their ids, by HMAC."""
        answer = await self._admin(DescribeDelegationTokenRequest(owners=None))
        return {
            bytes(found.hmac): (
                Token(
                    f"{found.principal_type}:{found.principal_name}",
                    f"{found.token_requester_principal_type}:{found.token_requester_principal_name}",
                    tuple(f"{r.principal_type}:{r.principal_name}" for r in found.renewers),
                ),
                found.token_id,
            )
            for found in answer.tokens
        }

    def _resources(self) -> dict[bytes, str]:
        """The names of tokens by the names of resources of their ACLs."""
        return {
            token_id[:length].encode(): name
            for name, token_id in self._token_ids.items()
            for length in (_PREFIX, None)
        }

    async def _find_tokens(self) -> None:
        names = {token: name for name, token in TOKENS.items()}
        for mac, (token, token_id) in (await self._tokens()).items():
            self._macs[names[token]], self._token_ids[names[token]] = mac, token_id

    async def _remove_new_tokens(self) -> None:
        for mac, (token, _) in (await self._tokens()).items():
            if mac not in self._macs.values():
                request = ExpireDelegationTokenRequest(hmac=mac, expiry_time_period_ms=-1)
                remover = ADMIN if ADMIN in token.renewers else token.owner
                answer = await self._world.ask(Requester(remover, HOST), request)
                _require(not answer.error_code, answer)

    async def _restore_token(self, name: str) -> None:
        if self._macs[name] not in await self._tokens():
            await self._create_token(name)

    # ------------------------------------------------------------------------------ ACLs

    async def _replace_acls(self, acls: Sequence[Binding]) -> None:
        await self._delete_acls()
        if acls:
            creations = [_creation(acl, self._token_ids) for acl in acls]
            answer = await self._admin(CreateAclsRequest(creations=creations))
            _require(not any(result.error_code for result in answer.results), answer)

    async def _delete_acls(self, principal: str | None = None) -> None:
        every = DeleteAclsFilter(
            resource_type_filter=_ANY, resource_name_filter=None, pattern_type_filter=_ANY,
            principal_filter=principal, host_filter=None, operation=_ANY, permission_type=_ANY,
        )  # fmt: skip
        (result,) = (await self._admin(DeleteAclsRequest(filters=[every]))).filter_results
        assert not result.error_code

    # ------------------------------------------------------------------------------ undo

    async def _undo(self, what: str, answer: Any) -> None:
        if what == "ACLs":
            await self._delete_acls("User:nobody")
        elif what.startswith("group "):
            await self._commit(what.removeprefix("group "))
        elif what.startswith("topic "):
            topic = what.removeprefix("topic ")
            if not await self._exist([topic]):
                await self._create(topic)
        elif what == "new topics":
            being_created = [
                topic["name"]
                for topic in answer.get("topics", ())
                if topic.get("error_code") == ErrorCode.LEADER_NOT_AVAILABLE
            ]
            for topic in being_created:
                await self._until_exists(topic)
            for topic in await self._exist(NEW_TOPICS):
                await self._delete(topic)
        elif what == "new tokens":
            await self._remove_new_tokens()
        elif what.startswith("token "):
            await self._restore_token(what.removeprefix("token "))
        else:
            _require(not what, what)

    async def _exist(self, topics: Sequence[str]) -> list[str]:
        asked = [MetadataRequestTopic(name=name) for name in topics]
        request = MetadataRequest(topics=asked, allow_auto_topic_creation=False)
        return [
            topic.name
            for topic in (await self._admin(request)).topics
            if topic.error_code != ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        ]

    async def _until_exists(self, topic: str) -> None:
        for _ in range(_TRIES):
            if await self._exist([topic]):
                return
            await asyncio.sleep(0.05)
        raise TimeoutError(f"topic {topic} does not exist")

    async def _delete(self, topic: str) -> None:
        request = DeleteTopicsRequest(topics=[DeleteTopicState(name=topic)], timeout_ms=30_000)
        (deleted,) = (await self._admin(request)).responses
        assert not deleted.error_code, deleted
        await self._may_create(topic, validate_only=True)


def _creation(acl: Binding, token_ids: Mapping[str, str]) -> AclCreation:
    pattern, entry = acl
    name = pattern.name
    if pattern.resource_type is ResourceType.DELEGATION_TOKEN and name in token_ids:
        name = token_ids[name][: _PREFIX if pattern.prefixed else None]
    return AclCreation(
        resource_type=pattern.resource_type,
        resource_name=name,
        resource_pattern_type=_PREFIXED if pattern.prefixed else _LITERAL,
        principal=entry.principal,
        host=entry.host,
        operation=entry.operation,
        permission_type=_ALLOW if entry.allowed else _DENY,
    )


def _require(holds: bool, answer: Any) -> None:
    assert holds, answer
