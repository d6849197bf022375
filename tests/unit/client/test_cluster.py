"""A cluster's connections and metadata, found through any of its brokers."""

import asyncio
import contextlib

import pytest

from odradek.client.admin.topics import any_broker
from odradek.client.cluster import (
    BootstrapError,
    Cluster,
    InvalidAddressError,
    UnresolvableError,
)
from odradek.client.settings import ClientSettings
from odradek.model.errors import ApiError, ErrorCode
from odradek.model.partition import TopicPartition
from odradek.wire.codec import encoder
from odradek.wire.frame import LENGTH_BYTES
from odradek.wire.header import decode_request_header, encode_response_header
from odradek.wire.messages.api_versions import ApiVersion, ApiVersionsResponse
from odradek.wire.messages.find_coordinator import Coordinator, FindCoordinatorResponse
from odradek.wire.messages.metadata import (
    MetadataResponse,
    MetadataResponseBroker,
    MetadataResponsePartition,
    MetadataResponseTopic,
)

T0 = TopicPartition("t", 0)
SPOKEN = [
    ApiVersion(api_key=3, max_version=12),
    ApiVersion(api_key=10, max_version=4),
    ApiVersion(api_key=18, max_version=4),
]
GROUP = 0


class FakeCluster:
    """Brokers that serve only Metadata; `leaders` lists the leader of `t` in each response."""

    def __init__(self, brokers: int, leaders: list[int]) -> None:
        self.count = brokers
        self.leaders = leaders
        self.unaware = 0  # the number of next responses without brokers
        self.connections = [0] * brokers

    async def __aenter__(self):
        self.servers = [
            await asyncio.start_server(lambda r, w, i=i: self._serve(i, r, w), "127.0.0.1", 0)
            for i in range(self.count)
        ]
        self.ports = [server.sockets[0].getsockname()[1] for server in self.servers]
        return self

    async def __aexit__(self, *_):
        for server in self.servers:
            server.close()
            await server.wait_closed()

    async def _serve(self, broker_id, reader, writer):
        self.connections[broker_id] += 1
        ended = contextlib.suppress(asyncio.IncompleteReadError, ConnectionError)
        with contextlib.closing(writer), ended:
            while True:
                length = int.from_bytes(await reader.readexactly(LENGTH_BYTES), "big")
                header, _ = decode_request_header(memoryview(await reader.readexactly(length)))
                message = {
                    3: self._metadata,
                    10: lambda: FindCoordinatorResponse(
                        coordinators=[Coordinator(key="g", node_id=1, host="", port=0)]
                    ),
                    18: lambda: ApiVersionsResponse(api_keys=SPOKEN),
                }[header.api_key]()
                frame = encode_response_header(
                    header.api_key, header.api_version, header.correlation_id
                ) + encoder(type(message), header.api_version)(message)
                writer.write(len(frame).to_bytes(LENGTH_BYTES, "big") + frame)

    def _metadata(self):
        if self.unaware:
            self.unaware -= 1
            return MetadataResponse(controller_id=-1)
        leader = self.leaders[0] if len(self.leaders) == 1 else self.leaders.pop(0)
        partition = MetadataResponsePartition(leader_id=leader)
        return MetadataResponse(
            controller_id=1,
            brokers=[
                MetadataResponseBroker(node_id=i, host="127.0.0.1", port=port)
                for i, port in enumerate(self.ports)
            ],
            topics=[MetadataResponseTopic(name="t", topic_id=b"i" * 16, partitions=[partition])],
        )


def in_cluster(then, *, brokers=2, leaders=(0,), timeout_ms=5000):
    async def play():
        async with FakeCluster(brokers, list(leaders)) as fake:
            servers = f"127.0.0.1:{fake.ports[0]}"
            async with await Cluster.bootstrap(servers, timeout_ms=timeout_ms) as cluster:
                await then(cluster, fake)

    asyncio.run(asyncio.wait_for(play(), 10))


def test_each_broker_gets_one_connection():
    async def then(cluster, fake):
        leader = await cluster.leader(T0)
        controller = await cluster.controller()
        assert leader is controller is await cluster.broker(1)
        assert leader.name == f"127.0.0.1:{fake.ports[1]}"
        assert cluster.topic_id("t") == b"i" * 16
        assert fake.connections == [1, 1]

    in_cluster(then, leaders=[1])


def test_a_connection_that_was_lost_is_made_again():
    async def then(cluster, fake):
        first = await cluster.leader(T0)
        await first.close()
        assert (await cluster.leader(T0)).is_open
        assert fake.connections == [1, 2]

    in_cluster(then, leaders=[1])


def test_leader_waits_until_there_is_one():
    async def then(cluster, fake):
        leader = await cluster.leader(T0)
        assert leader.name == f"127.0.0.1:{fake.ports[1]}"

    in_cluster(then, leaders=[-1, -1, 1])


def test_a_coordinator_that_has_restarted_at_another_address_is_found():
    async def then(cluster, fake):
        there, fake.ports[1] = fake.ports[1], 1  # nothing listens there
        await cluster.refresh()
        asyncio.get_running_loop().call_later(0.05, fake.ports.__setitem__, 1, there)

        assert (await cluster.coordinator(GROUP, "g")).name == f"127.0.0.1:{there}"

    in_cluster(then, leaders=[0])


def test_no_leader_in_time_is_an_error():
    async def then(cluster, fake):
        with pytest.raises(ApiError, match="t-0 has no leader") as raised:
            await cluster.leader(T0)
        assert raised.value.code is ErrorCode.LEADER_NOT_AVAILABLE

    in_cluster(then, leaders=[-1], timeout_ms=60)


def test_controller_waits_until_there_is_one():
    async def then(cluster, fake):
        fake.unaware = 3
        controller = await cluster.controller()
        assert controller.name == f"127.0.0.1:{fake.ports[1]}"

    in_cluster(then)


def test_no_controller_in_time_is_an_error():
    async def then(cluster, fake):
        fake.unaware = 1_000
        with pytest.raises(ApiError, match="the cluster has no controller"):
            await cluster.controller()

    in_cluster(then, timeout_ms=60)


def test_nodes_waits_until_there_is_a_broker():
    async def then(cluster, fake):
        fake.unaware = 3
        connection = await any_broker(cluster)
        assert connection.name == f"127.0.0.1:{fake.ports[0]}"

    in_cluster(then)


def test_an_unknown_broker_id_is_an_error_that_names_it():
    async def then(cluster, fake):
        await cluster.refresh()
        with pytest.raises(ApiError, match="there is no broker 7"):
            await cluster.broker(7)

    in_cluster(then)


def test_the_first_bootstrap_address_that_answers_is_used():
    async def play():
        async with FakeCluster(2, [0]) as fake:
            fake.servers[0].close()
            await fake.servers[0].wait_closed()
            servers = ", ".join(f"127.0.0.1:{port}" for port in fake.ports)
            async with await Cluster.bootstrap(servers) as cluster:
                assert (await cluster.refresh()).controller_id == 1

    asyncio.run(play())


def test_empty_bootstrap_entries_are_skipped():
    async def play():
        async with FakeCluster(2, [0]) as fake:
            servers = f",127.0.0.1:{fake.ports[0]},"
            async with await Cluster.bootstrap(servers) as cluster:
                assert (await cluster.refresh()).controller_id == 1

    asyncio.run(play())


@pytest.mark.parametrize("servers", ["", ",", " , "])
def test_an_empty_bootstrap_list_is_refused(servers):
    with pytest.raises(InvalidAddressError, match="No resolvable bootstrap urls given"):
        asyncio.run(Cluster.bootstrap(servers))


@pytest.mark.parametrize("servers", ["localhost", "a:b", "127.0.0.1:1,9092"])
def test_an_invalid_address_is_an_error_that_names_it(servers):
    with pytest.raises(InvalidAddressError, match="Invalid url in bootstrap.servers: "):
        asyncio.run(Cluster.bootstrap(servers))


def test_the_error_names_each_unreachable_address_with_its_reason():
    with pytest.raises(BootstrapError, match=r"reached: 127.0.0.1:1: .*; 127.0.0.1:2: "):
        asyncio.run(Cluster.bootstrap("127.0.0.1:1,127.0.0.1:2"))


def test_connect_retries_until_the_cluster_runs():
    async def play():
        async with FakeCluster(1, [0]) as fake:
            port = fake.ports[0]
            fake.servers[0].close()
            await fake.servers[0].wait_closed()
            settings = ClientSettings(bootstrap_servers=(f"127.0.0.1:{port}",))
            waiting = asyncio.create_task(Cluster.connect(settings, wait_ms=10_000))
            await asyncio.sleep(0)
            fake.servers[0] = await asyncio.start_server(
                lambda r, w: fake._serve(0, r, w), "127.0.0.1", port
            )
            async with await waiting as cluster:
                assert (await cluster.refresh()).controller_id == 1

    asyncio.run(asyncio.wait_for(play(), 10))


def test_connect_retries_no_longer_than_wait_ms():
    settings = ClientSettings(bootstrap_servers=("127.0.0.1:1",), retry_backoff_ms=1)
    with pytest.raises(BootstrapError, match="no broker can be reached: 127.0.0.1:1: "):
        asyncio.run(asyncio.wait_for(Cluster.connect(settings, wait_ms=20), 10))


def test_a_silent_address_leaves_time_for_the_next_one():
    async def play():
        async def silent(reader, writer):
            with contextlib.closing(writer):
                await reader.read()

        servers = [await asyncio.start_server(silent, "127.0.0.1", 0) for _ in range(2)]
        ports = [server.sockets[0].getsockname()[1] for server in servers]
        settings = ClientSettings(
            bootstrap_servers=tuple(f"127.0.0.1:{port}" for port in ports),
            connection_setup_timeout_ms=60_000,
        )
        with pytest.raises(BootstrapError) as raised:
            await Cluster.connect(settings, wait_ms=200)
        for port, reason in zip(ports, raised.value.reasons, strict=True):
            assert reason.startswith(f"127.0.0.1:{port}: no answer within ")
        for server in servers:
            server.close()

    asyncio.run(asyncio.wait_for(play(), 20))


def test_a_host_name_without_an_address_is_not_retried():
    settings = ClientSettings(bootstrap_servers=("no.such.host.invalid:9092",))
    with pytest.raises(UnresolvableError, match="No resolvable bootstrap urls given") as raised:
        asyncio.run(asyncio.wait_for(Cluster.connect(settings, wait_ms=60_000), 20))
    assert "no.such.host.invalid:9092: " in raised.value.reasons[0]
