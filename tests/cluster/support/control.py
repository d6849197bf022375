"""Three broker processes on one store, and the requests of tests to their controller."""

import json
import pathlib
import sqlite3
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import closing, suppress
from typing import Any, TypeVar

from brokers import BrokerProcess
from peers import HungUpError, Peer

from odradek.local.startable import free_ports
from odradek.model.errors import ErrorCode
from odradek.record.records import Record, build_batch
from odradek.wire.messages import alter_partition_reassignments as alter
from odradek.wire.messages import incremental_alter_configs as configs
from odradek.wire.messages import list_partition_reassignments as listing
from odradek.wire.messages.create_topics import (
    CreatableReplicaAssignment,
    CreatableTopic,
    CreatableTopicConfig,
    CreateTopicsRequest,
    CreateTopicsResponse,
)
from odradek.wire.messages.delete_topics import (
    DeleteTopicsRequest,
    DeleteTopicsResponse,
    DeleteTopicState,
)
from odradek.wire.messages.elect_leaders import (
    ElectLeadersRequest,
    ElectLeadersResponse,
    TopicPartitions,
)
from odradek.wire.messages.metadata import MetadataRequest, MetadataResponse
from odradek.wire.schema import Message

IDS = (1, 2, 3)
M = TypeVar("M", bound=Message)
TOPIC, BROKER, SET = 2, 4, 0


def wait_for(true: Callable[[], Any], *, within_s: float = 60.0) -> Any:
    """Wait until something is there; what it is."""
    deadline_s = time.monotonic() + within_s
    while not (found := true()):
        assert time.monotonic() < deadline_s, true
        time.sleep(0.02)
    return found


class ThreeBrokers:
    """Brokers 1, 2 and 3, which keep their ports when they restart. Options go to all of them.

    librdkafka does not follow a coordinator that restarts at another port and coordinates again.
    """

    def __init__(self, make_broker, tmp_path, **options: object) -> None:
        self.store = tmp_path / "coordination.db"
        ports = dict(zip(IDS, free_ports("127.0.0.1", len(IDS)), strict=True))
        self.brokers: dict[int, BrokerProcess] = {
            id_: make_broker(
                {
                    "broker.id": id_,
                    "listeners": f"PLAINTEXT://127.0.0.1:{ports[id_]}",
                    "odradek.store.path": self.store,
                    "log.dirs": f"{tmp_path}/{id_}/a,{tmp_path}/{id_}/b",
                    "auto.leader.rebalance.enable": "false",
                    **{key.replace("_", "."): value for key, value in options.items()},
                },
                name=f"broker-{id_}",
            )
            for id_ in IDS
        }
        for broker in self.brokers.values():
            broker.start()
        wait_for(lambda: len(self.metadata().brokers) == len(IDS))

    # ------------------------------------------------------------------------ what is seen

    def metadata(self) -> Any:
        """All topics in the metadata of a running broker."""
        return self.ask_any(MetadataRequest(topics=None), MetadataResponse)

    def partition(self, topic: str, number: int = 0, *, at: int | None = None) -> Any:
        """One partition in the metadata of a broker, or of any that has it; None if none does.

        A broker that has just started gets the topics' metadata a moment after it serves.
        """
        for broker in self.up() if at is None else [at]:
            metadata = self.ask(broker, MetadataRequest(topics=None), MetadataResponse)
            for found in metadata.topics:
                for partition in found.partitions if found.name == topic else ():
                    if partition.partition_index == number:
                        return partition
        return None

    def node(self, path: str) -> Any:
        """The JSON in a znode, without what differs from run to run; None if it does not exist."""
        with closing(sqlite3.connect(f"file:{self.store}?mode=ro", uri=True)) as file:
            found = file.execute("SELECT data FROM nodes WHERE path = ?", (path,)).fetchone()
        if found is None:
            return None
        value = json.loads(found[0]) if found[0] else {}
        value.pop("topic_id", None)
        return value

    def state(self, topic: str, number: int = 0) -> Any:
        """The state of a partition as it is stored."""
        return self.node(f"/brokers/topics/{topic}/partitions/{number}/state")

    @property
    def controller(self) -> int:
        return self.metadata().controller_id

    def up(self) -> list[int]:
        return [id_ for id_, broker in self.brokers.items() if broker.is_up]

    # --------------------------------------------------------------------------- what is asked

    def ask(self, broker: int, request: Message, answer: type[M]) -> M:
        with Peer(self.brokers[broker].port) as peer:
            return peer.request(request, answer)

    def ask_any(self, request: Message, answer: type[M]) -> M:
        return self.ask(self.up()[0], request, answer)

    def ask_controller(self, request: Message, answer: type[M], code: Callable[[M], int]) -> M:
        """Send a request to the controller, again while there is none."""

        def asked() -> M | None:
            controller = self.controller
            if controller in self.up():
                with suppress(HungUpError, OSError):
                    response = self.ask(controller, request, answer)
                    if code(response) != ErrorCode.NOT_CONTROLLER:
                        return response
            return None

        found: M = wait_for(asked)
        return found

    def create(self, topic: str, *replicas: Sequence[int], **options: str) -> None:
        """Create a topic with these replicas; waits until every broker has it in its metadata."""
        wanted = CreatableTopic(
            name=topic,
            num_partitions=-1,
            replication_factor=-1,
            assignments=[
                CreatableReplicaAssignment(partition_index=n, broker_ids=list(ids))
                for n, ids in enumerate(replicas)
            ],
            configs=[
                CreatableTopicConfig(name=key.replace("_", "."), value=value)
                for key, value in options.items()
            ],
        )
        request = CreateTopicsRequest(topics=[wanted], timeout_ms=30_000)
        response = self.ask_controller(
            request, CreateTopicsResponse, lambda r: r.topics[0].error_code
        )
        assert response.topics[0].error_code == ErrorCode.NONE, response
        for id_ in self.up():
            wait_for(lambda id_=id_: self.partition(topic, len(replicas) - 1, at=id_))

    def delete(self, topic: str, *, timeout_ms: int = 30_000) -> ErrorCode:
        request = DeleteTopicsRequest(topics=[DeleteTopicState(name=topic)], timeout_ms=timeout_ms)
        response = self.ask_controller(
            request, DeleteTopicsResponse, lambda r: r.responses[0].error_code
        )
        return ErrorCode(response.responses[0].error_code)

    def reassign(self, topic: str, targets: Mapping[int, Sequence[int] | None]) -> list[ErrorCode]:
        """Start a reassignment, or cancel it (None)."""
        partitions = [
            alter.ReassignablePartition(
                partition_index=n, replicas=None if ids is None else list(ids)
            )
            for n, ids in targets.items()
        ]
        named = alter.ReassignableTopic(name=topic, partitions=partitions)
        response = self.ask_controller(
            alter.AlterPartitionReassignmentsRequest(topics=[named]),
            alter.AlterPartitionReassignmentsResponse,
            lambda r: r.error_code,
        )
        assert response.error_code == ErrorCode.NONE, response
        return [ErrorCode(p.error_code) for p in response.responses[0].partitions]

    def reassigning(self) -> dict[str, Any]:
        response = self.ask_controller(
            listing.ListPartitionReassignmentsRequest(topics=None),
            listing.ListPartitionReassignmentsResponse,
            lambda r: r.error_code,
        )
        return {
            f"{t.name}-{p.partition_index}": (p.replicas, p.adding_replicas, p.removing_replicas)
            for t in response.topics
            for p in t.partitions
        }

    def elect(self, topic: str, number: int = 0, *, unclean: bool = False) -> ErrorCode:
        named = TopicPartitions(topic=topic, partitions=[number])
        request = ElectLeadersRequest(
            election_type=int(unclean), topic_partitions=[named], timeout_ms=30_000
        )
        response = self.ask_controller(
            request,
            ElectLeadersResponse,
            lambda r: r.replica_election_results[0].partition_result[0].error_code,
        )
        return ErrorCode(response.replica_election_results[0].partition_result[0].error_code)

    def configure(self, kind: int, name: str, **options: str) -> None:
        """Set options of a topic or a broker ("": of all).

        A broker that has just started may not have the topic in its metadata.
        """
        resource = configs.AlterConfigsResource(
            resource_type=kind,
            resource_name=name,
            configs=[
                configs.AlterableConfig(name=key.replace("_", "."), config_operation=SET, value=v)
                for key, v in options.items()
            ],
        )
        request = configs.IncrementalAlterConfigsRequest(resources=[resource])

        def is_known() -> bool:
            response = self.ask_any(request, configs.IncrementalAlterConfigsResponse)
            code = response.responses[0].error_code
            assert code in {ErrorCode.NONE, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION}, response
            return bool(code == ErrorCode.NONE)

        wait_for(is_known)

    def write(self, topic: str, values: Sequence[bytes], number: int = 0) -> None:
        """Write with acks=all, each value a batch, until it is acknowledged."""
        for value in values:
            batch = build_batch([Record(None, value)])
            wait_for(lambda batch=batch: self._written(topic, number, batch))

    def _written(self, topic: str, number: int, batch: bytes) -> bool:
        found = self.partition(topic, number)
        if found is None or found.leader_id not in self.up():
            return False
        with suppress(HungUpError, OSError), Peer(self.brokers[found.leader_id].port) as peer:
            return peer.produce(topic, number, batch).error_code == ErrorCode.NONE
        return False

    def refusal(self, topic: str, value: bytes) -> ErrorCode:
        """The error code of the leader for a record.

        A new leader may get its LeaderAndIsr request after other brokers have the metadata.
        """
        batch, found = build_batch([Record(None, value)]), []

        def is_led() -> bool:
            with Peer(self.brokers[self.partition(topic).leader_id].port) as peer:
                found.append(ErrorCode(peer.produce(topic, 0, batch).error_code))
            return found[-1] is not ErrorCode.NOT_LEADER_OR_FOLLOWER

        wait_for(is_led)
        return found[-1]

    def http_state(self, broker: int, path: str) -> Any:
        """A broker's own JSON report, by HTTP."""
        with self.brokers[broker].ask_http(path) as answer:
            return json.load(answer)

    def values(self, topic: str, number: int = 0) -> int:
        """How many records its leader serves."""
        leader = self.partition(topic, number).leader_id
        with Peer(self.brokers[leader].port) as peer:
            end = peer.offset(topic, number)
            peer.read(topic, number, 0, end)
            return end

    def holds(self, broker: int, topic: str, number: int = 0) -> bool:
        """Whether a broker has a directory for a partition."""
        dirs = self.brokers[broker].options["log.dirs"].split(",")
        return any(pathlib.Path(path, f"{topic}-{number}").is_dir() for path in dirs)
