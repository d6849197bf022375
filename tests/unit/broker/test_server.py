"""A broker starts or reports why not; when it stops it answers waiting requests."""

import asyncio

import pytest
from tests.unit.broker.live import LOG_DIRS, fetch, fetched, play, produce, produced

from odradek.coord import layout
from odradek.log.directories import CLEAN_SHUTDOWN_FILE, META_FILE
from odradek.model.errors import ErrorCode, StartupError
from odradek.sim.world.disk import Crash, DiskFault
from odradek.wire.messages.api_versions import ApiVersionsRequest
from odradek.wire.messages.create_topics import CreatableTopic, CreateTopicsRequest
from odradek.wire.messages.describe_configs import DescribeConfigsRequest, DescribeConfigsResource
from odradek.wire.messages.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
)

T0 = ("t", 0)
NEVER_MS = 600_000


async def refused(live, **properties):
    """Start the broker again, which fails. Returns the reason; nothing of it stays."""
    if live.broker.state != "stopped":
        await live.broker.stop()
    live.broker = live.make(**properties)
    with pytest.raises(StartupError) as error:
        await live.broker.start()
    await live.broker.stop()
    assert live.tree.find(layout.broker_path(0)) is None
    assert not live.network.listening
    assert not live.disk._locked
    return str(error.value)


async def starts(live, **properties):
    live.broker = live.make(**properties)
    await live.start()


# --------------------------------------------------------------------------------- refusals


ACL_AUTHORIZER = "kafka.security.authorizer.AclAuthorizer"


def test_with_an_authorizer_and_anonymous_super_users_nothing_is_warned_of(caplog):
    async def story(live):
        await live.topic("t", 1)

    play(story, authorizer_class_name=ACL_AUTHORIZER, super_users="User:a;User:ANONYMOUS")

    assert "ClusterAction" not in caplog.text
    assert "has no effect here" not in caplog.text


def test_brokers_that_will_refuse_each_other_are_warned_of(caplog):
    async def story(_):
        pass

    play(story, authorizer_class_name=ACL_AUTHORIZER, super_users="User:a")

    assert "User:ANONYMOUS may not do ClusterAction" in caplog.text


@pytest.mark.parametrize(
    ("properties", "words"),
    [
        (
            {"authorizer_class_name": ACL_AUTHORIZER, "super_users": "alice"},
            ["super.users", "'alice'", "User:alice"],
        ),
        (
            {"authorizer_class_name": "com.example.Mine", "super_users": "User:ANONYMOUS"},
            ["com.example.Mine"],
        ),
        (
            {"listeners": "SSL://b0:9092", "security_inter_broker_protocol": "SSL"},
            ["SSL"],
        ),
        (
            {
                "listeners": "SASL_PLAINTEXT://b0:9092",
                "security_inter_broker_protocol": "SASL_PLAINTEXT",
            },
            ["gssapi.sasl.jaas.config is not set", "the key of its keytab"],
        ),
    ],
)
def test_what_would_be_open_and_should_not_be_is_refused(properties, words):
    async def story(live):
        why = await refused(live, **properties)
        for word in words:
            assert word in why
        await starts(live)

    play(story)


def test_a_directory_of_another_broker():
    async def story(live):
        why = await refused(live, broker_id=7)
        assert "belongs to broker 0" in why
        assert "broker.id=7" in why

    play(story)


def test_a_directory_of_another_cluster():
    async def story(live):
        await live.broker.stop()
        live.disk.replace_now(
            f"{LOG_DIRS[1]}/{META_FILE}", b"version=0\nbroker.id=0\ncluster.id=another\n"
        )
        why = await refused(live)
        assert "belongs to cluster another" in why
        assert live.broker.cluster_id in why

    play(story)


def test_a_directory_that_another_process_uses():
    async def story(live):
        await live.broker.stop()
        lock = live.disk.lock(f"{LOG_DIRS[0]}/.lock")
        live.broker = live.make()
        with pytest.raises(StartupError, match=f"{LOG_DIRS[0]} is locked"):
            await live.broker.start()
        await live.broker.stop()
        lock.release()
        await starts(live)

    play(story)


def test_a_port_that_is_taken():
    async def story(live):
        await live.broker.stop()
        live.network.listening[9093] = None
        live.broker = live.make(
            listeners="PLAINTEXT://b0:9092,OUT://b0:9093",
            listener_security_protocol_map="PLAINTEXT:PLAINTEXT,OUT:PLAINTEXT",
        )
        with pytest.raises(StartupError, match="cannot listen on OUT://b0:9093"):
            await live.broker.start()
        await live.broker.stop()
        assert list(live.network.listening) == [9093], "the other listener is closed"
        live.network.listening.clear()

    play(story)


def test_no_directory_that_works():
    async def story(live):
        await live.broker.stop()
        live.disk.lose("/data")
        why = await refused(live)
        assert "none of log.dirs can be used" in why
        live.disk.faults.clear()

    play(story)


def test_one_directory_that_does_not_work_is_no_reason():
    async def story(live):
        await live.broker.stop()
        live.disk.lose(LOG_DIRS[0])
        await starts(live)

        assert live.broker.logs.online_directories == [LOG_DIRS[1]]
        assert live.broker.health().offline_log_dirs == (LOG_DIRS[0],)
        await live.topic("t")
        assert produced(await live.peer().ask(produce(live.batch(b"a")))) == {T0: 0}
        live.disk.faults.clear()

    play(story)


def test_a_broker_that_refuses_to_start_leaves_clean_directories_clean():
    async def story(live):
        await live.topic("t")
        live.append(b"a")
        await refused(live, listeners="SSL://b0:9092", security_inter_broker_protocol="SSL")
        await refused(live, broker_id=7)
        await live.broker.stop()
        for path in LOG_DIRS:
            assert live.disk.read_file(f"{path}/{CLEAN_SHUTDOWN_FILE}")
        await starts(live)
        await live.until(lambda: live.partition() is not None)

        assert live.log().leo == 1

    play(story)


# -------------------------------------------------------------------------------- the start


def test_requests_are_served_when_start_returns_and_states_follow_each_other():
    async def story(live):
        await live.broker.stop()
        broker = live.broker = live.make()
        assert broker.state == "starting"
        assert broker.health().cluster_id is None
        task = asyncio.ensure_future(broker.start())
        states = set()
        while not task.done():
            states.add(broker.state)
            await asyncio.sleep(0)
        await task
        assert broker.state == "running"
        assert states >= {"starting", "recovering"}
        answer = live.peer().send(ApiVersionsRequest(), 0)
        assert answer.result().error_code == ErrorCode.NONE

        assert broker.health().listeners == ("PLAINTEXT://b0:9092",)
        await broker.stop()
        assert broker.state == "stopped"

    play(story)


def test_a_port_that_was_not_chosen_is_advertised_as_it_was_got():
    async def story(live):
        (point,) = live.broker.end_points
        assert point.port == 20_000
        assert list(live.network.listening) == [20_000]

    play(story, listeners="PLAINTEXT://b0:0")


@pytest.mark.parametrize("value", ["1048588", "77"])
def test_the_layers_of_an_option_are_kept_and_described_where_the_value_stays_the_same(value):
    """1048588 is the default of message.max.bytes, and 77 is set in server.properties."""
    name = "message.max.bytes"

    async def described(live, resource):
        asked = DescribeConfigsResource(
            resource_type=4, resource_name=resource, configuration_keys=[name]
        )
        request = DescribeConfigsRequest(resources=[asked], include_synonyms=True)
        (result,) = (await live.peer().ask(request)).results
        return [(s.source, s.value) for entry in result.configs for s in entry.synonyms]

    async def alter(live, resource, operation):
        config = AlterableConfig(name=name, config_operation=operation, value=value)
        asked = AlterConfigsResource(resource_type=4, resource_name=resource, configs=[config])
        (answered,) = (
            await live.peer().ask(IncrementalAlterConfigsRequest(resources=[asked]))
        ).responses
        return ErrorCode(answered.error_code).name

    async def story(live):
        at_start = await described(live, "0")
        for resource, source in (("0", 2), ("", 3)):
            assert await alter(live, resource, 0) == "NONE"
            assert await described(live, "0") == [(source, value), *at_start]
            assert await described(live, "") == [(3, value)] * (resource == "")
            assert await alter(live, resource, 1) == "NONE"
            assert await described(live, "0") == at_start
            assert await described(live, "") == []

    play(story, **({} if value == "1048588" else {"message.max.bytes": value}))


def test_after_a_clean_stop_nothing_is_recovered_and_all_is_there():
    async def story(live):
        await live.topic("t", 3, retention_ms=123_456)
        for index in range(3):
            for _ in range(10):
                live.append(b"a", index=index)
        await live.restart()
        await live.until(lambda: len(live.broker.replicas) == 3)

        assert all(d.was_clean for d in live.broker.logs.directories.values())
        for index in range(3):
            log = live.log(index=index)
            assert (log.leo, log.high_watermark) == (10, 10)
            assert log.config.retention_ms == 123_456
        answer = await live.peer().ask(fetch({("t", 2): 0}), 12)
        assert fetched(answer) == {("t", 2): [b"a"] * 10}

    play(story)


def test_after_a_crash_all_that_was_written_is_there():
    async def story(live):
        await live.topic("t")
        for _ in range(10):
            await live.peer().ask(produce(live.batch(b"a")))
        old = live.broker
        live.store.crash(0)
        await old.tasks.cancel_all()
        live.network.listening.clear()
        live.disk.crash(Crash.PROCESS)
        live.broker = live.make()
        await live.start()
        await live.until(lambda: live.partition() is not None)

        assert not any(d.was_clean for d in live.broker.logs.directories.values())
        assert live.log().leo == 10
        assert produced(await live.peer().ask(produce(live.batch(b"b")))) == {T0: 10}

    play(story)


# --------------------------------------------------------------------------------- the stop


def test_the_stop_answers_produces_and_fetches_and_ends_the_connections():
    async def story(live):
        await live.topic("u")
        await live.order()
        peers = [live.peer() for _ in range(3)]
        waiting = peers[0].send(produce(live.batch(b"a"), acks=-1, timeout_ms=NEVER_MS))
        fetching = peers[1].send(fetch({T0: 0, ("u", 0): 0}, max_wait_ms=NEVER_MS), 12)
        await live.broker.stop()

        not_leader = ErrorCode.NOT_LEADER_OR_FOLLOWER
        assert produced(waiting.result()) == {T0: not_leader}
        assert fetched(fetching.result()) == {T0: not_leader, ("u", 0): not_leader}
        assert all(peer.closed for peer in peers)
        assert live.broker.purgatory.size == 0
        assert live.tree.find(layout.broker_path(0)) is None

    play(story)


def test_a_stopped_broker_is_deaf_and_does_nothing_more():
    async def story(live):
        await live.topic("t")
        live.peer().send(fetch({T0: 0}, max_wait_ms=NEVER_MS), 12)
        await live.broker.stop()
        assert not live.network.listening
        assert asyncio.all_tasks() == {asyncio.current_task()}
        operations = live.disk.operations
        await asyncio.sleep(3600)

        assert live.disk.operations == operations

    play(story)


def test_what_waits_for_the_controller_ends_with_the_broker():
    async def story(live):
        live.broker.metadata.update = lambda request: []  # the metadata never changes
        peer = live.peer()
        topic = CreatableTopic(name="t", num_partitions=1, replication_factor=1)
        answer = peer.send(CreateTopicsRequest(topics=[topic], timeout_ms=NEVER_MS))
        await asyncio.sleep(1)
        assert not answer.done()
        started = live.loop.time()
        await live.broker.stop()

        assert peer.closed
        assert live.loop.time() - started < 5

    play(story)


def test_a_broker_that_is_stopped_while_it_starts():
    async def story(live):
        for turns in range(0, 60, 3):
            await live.broker.stop()
            live.broker = live.make()
            starting = asyncio.ensure_future(live.broker.start())
            for _ in range(turns):
                await asyncio.sleep(0)
            starting.cancel()
            await asyncio.gather(starting, return_exceptions=True)
            await live.broker.stop()
            assert not live.network.listening
            assert live.tree.find(layout.broker_path(0)) is None
        await starts(live)

    play(story)


def test_a_disk_that_fails_while_the_broker_stops_does_not_hold_it_up():
    async def story(live):
        await live.topic("t", 2)
        for index in (0, 1):
            live.append(b"a", index=index)
        live.disk.faults.append(DiskFault("flush", f"{LOG_DIRS[0]}/", times=1 << 30))
        await live.broker.stop()

        assert live.broker.state == "stopped"
        live.disk.faults.clear()
        assert live.disk.read_file(f"{LOG_DIRS[0]}/{CLEAN_SHUTDOWN_FILE}") is None
        assert live.disk.read_file(f"{LOG_DIRS[1]}/{CLEAN_SHUTDOWN_FILE}")

    play(story)
