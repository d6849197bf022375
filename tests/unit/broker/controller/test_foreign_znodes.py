"""Znodes that somebody has edited, copied or put back: no broker ends, and the rest goes on."""

import asyncio
import json
import logging

import pytest

from odradek.coord import layout
from odradek.coord.store import Create, SetData
from odradek.coord.znode import EPOCH_MAX
from odradek.sim.scenes.replicas import TOPIC, contents, leading
from odradek.sim.scenes.scene import is_committed, make_topic, play, until
from odradek.sim.world.cluster import ProcessState

STATE = layout.partition_state_path(TOPIC)
REGISTRATION = {"version": 5, "host": "h", "port": 9, "timestamp": "1", "jmx_port": -1}
TOPIC_ID = "AAAAAAAAAAAAAAAAAAAAAQ"


def registration(**changes):
    protocols = {"PLAINTEXT": "PLAINTEXT"}
    endpoints = ["PLAINTEXT://h:9"]
    own = {"listener_security_protocol_map": protocols, "endpoints": endpoints}
    return REGISTRATION | own | changes


def topic(partitions, **changes):
    return {"version": 3, "partitions": partitions, "topic_id": TOPIC_ID} | changes


def state(**changes):
    return {
        "version": 1,
        "leader": 0,
        "leader_epoch": 0,
        "isr": [0],
        "controller_epoch": 1,
    } | changes


def below(number):
    return f"/brokers/topics/u{number}/partitions/0/state"


def move(topic="t", partition=0, replicas=(0, 1)):
    return {"topic": topic, "partition": partition, "replicas": replicas}


UNKNOWN = {"PLAINTEXT": "SSL3"}
# Nodes that were not there. Bytes are written as they are, everything else as JSON.
ADDED = {
    "/brokers/ids/²": registration(),
    "/brokers/ids/abc": b"",
    "/brokers/ids/99999999999": registration(),
    "/brokers/ids/10": b"\xff\xfe\x00",
    "/brokers/ids/11": registration(listener_security_protocol_map=UNKNOWN),
    "/brokers/ids/12": registration(endpoints=["PLAINTEXT://h:1099511627776"]),
    "/brokers/ids/13": registration(rack="\ud800"),
    "/brokers/ids/14": b"[" * 5_000,
    "/brokers/topics/v1": topic({"99999999999": [0]}),
    "/brokers/topics/v2": topic({"9" * 5000: [0]}),
    "/brokers/topics/v3": topic({"0": [1 << 40]}),
    "/brokers/topics/a b;$(x)\n": topic({"0": [0]}),
    "/brokers/topics/" + "x" * 300: topic({"0": [0]}),
    **{
        f"/brokers/topics/u{n}": topic({"0": [0]}, topic_id=f"AAAAAAAAAAAAAAAAAAAA{n}Q")
        for n in range(2, 8)
    },
    below(2): state(leader_epoch=(1 << 31) - 1),
    below(3): state(leader_epoch=-7),
    below(4): state(leader=1 << 40, isr=[1 << 40]),
    below(5): state(leader=-5),
    below(6): state(controller_epoch=1 << 40),
    below(7): b"\xff",
    "/brokers/topics/u2/partitions/²": b"",
    "/admin/delete_topics/u2": b"",
    "/admin/delete_topics/a\nb": b"",
    "/admin/preferred_replica_election": {"version": 1, "partitions": [{"topic": 5}]},
    "/admin/reassign_partitions": {"version": 1, "partitions": [move(replicas=[0, 1 << 40])]},
    "/isr_change_notification/isr_change_0000000001": b"\xff",
    "/log_dir_event_notification/log_dir_event_0000000001": {"version": 1, "broker": 1 << 70},
    "/config/changes/config_change_" + "9" * 5000: b"",
    "/config/changes/config_change_2147483647": {"version": 2, "entity_path": "topics/.."},
    "/config/changes/config_change_0000000001": {"version": 2, "entity_path": "topics/\ud800"},
    "/kafka-acl-changes/acl_changes_0000000001": b"Topic:..",
    "/delegation_token/token_changes/token_change_0000000001": b"..",
}
# Nodes that were there, and what is in them now.
CHANGED = {
    "/latest_producer_id_block": b"garbage",
    "/odradek/features": {"version": 1, "epoch": 1 << 80, "features": {}},
    "/odradek/noted": b"garbage",
    "/odradek/lives/1": {"version": 1, "clean_since": 1 << 80},
    "/feature": b"garbage",
}


def bytes_of(content):
    return content if isinstance(content, bytes) else json.dumps(content).encode()


def put(scene, path, content):
    find = scene.cluster.tree.find
    if find(path) is not None:
        scene.write_store(SetData(path, bytes_of(content)))
        return
    parent = path.rpartition("/")[0]
    if parent and find(parent) is None:
        put(scene, parent, b"")
    scene.write_store(Create(path, bytes_of(content)))


def active(scene):
    """The brokers that are controller."""
    return [b for b in scene.cluster.brokers if b.broker and b.broker.controller.term is not None]


def all_run(scene):
    return all(b.state is ProcessState.RUNNING for b in scene.cluster.brokers)


async def make(scene, name):
    async def make_anew():
        await scene.client.begin_anew()  # the controller may be another one
        await asyncio.wait_for(make_topic(scene.client, (0, 1), {}, name=name), 60)

    await scene.client.run(make_anew())


async def goes_on(scene):
    """Another controller is elected, a broker starts, and a topic is made and written to."""
    before = active(scene)
    scene.depose()
    await until(lambda: active(scene) and active(scene) != before)
    killed = scene.brokers[1]
    killed.kill()
    await until(lambda: killed.id not in scene.state.isr)
    killed.start()
    await scene.in_sync(*scene.brokers)
    assert await is_committed(scene.cluster.brokers[scene.state.leader], b"after")
    await make(scene, "new")
    assert all_run(scene)


@pytest.fixture
def failures(caplog):
    """What was logged with a traceback; `task_failed` logs each task that ends with an error."""
    caplog.set_level(logging.WARNING)
    return lambda: [record.exc_info[1] for record in caplog.records if record.exc_info]


def test_a_cluster_goes_on_beside_nodes_that_cannot_be_what_they_are(failures, caplog):
    async def story(scene):
        for path, content in (ADDED | CHANGED).items():
            put(scene, path, content)
        await asyncio.sleep(2)
        assert all_run(scene)
        await goes_on(scene)

    play(story)

    assert not failures()
    for named in ("ids/10", "ids/11", "ids/12", "ids/13", "ids/14", "topics/v1", "topics/v3"):
        assert f"znode /brokers/{named}: " in caplog.text, named
    for number in range(2, 8):
        assert f"znode {below(number)}: " in caplog.text, number
    assert "no producer gets a producer id until the node is repaired" in caplog.text


@pytest.mark.parametrize("epoch", [b"garbage", b"1_0", b"-5", b"2147483647", b"9" * 5000])
def test_without_a_controller_epoch_nobody_is_controller_and_all_brokers_serve(epoch, failures):
    async def story(scene):
        put(scene, layout.CONTROLLER_EPOCH, epoch)
        scene.depose()
        await asyncio.sleep(5)
        assert all_run(scene)
        assert not active(scene)
        assert await is_committed(scene.brokers[0], b"without")

        put(scene, layout.CONTROLLER_EPOCH, b"7")
        await until(lambda: bool(active(scene)))
        await goes_on(scene)

    play(story)

    assert not failures()


@pytest.mark.parametrize(
    "content", [b"garbage", b"", state(leader_epoch=EPOCH_MAX + 1), state(leader="0")]
)
def test_a_leader_serves_although_its_stored_state_cannot_be_read(content, failures):
    async def story(scene):
        before = scene.state
        put(scene, STATE, content)
        scene.depose()
        await asyncio.sleep(5)
        assert all_run(scene)
        leader = scene.brokers[before.leader]
        assert leading(leader)
        await make(scene, "new")

    play(story)

    assert not failures()


def test_a_copy_of_a_topic_gets_none_of_its_records(caplog):
    async def story(scene):
        original = layout.topic_path("t")
        data = scene.cluster.tree.find(original).data
        for copy in ("a", "u"):  # before it and behind it in the order of names
            put(scene, layout.topic_path(copy), data)
        await asyncio.sleep(2)
        scene.depose()
        await until(lambda: bool(active(scene)))
        await asyncio.sleep(2)
        assert await is_committed(scene.brokers[0], b"record")
        await goes_on(scene)
        for broker in scene.brokers:
            assert contents(broker)[-2:] == [b"record", b"after"]
            assert not {"a", "u"} & broker.running.metadata.topics.keys()

    play(story)

    for copy in ("a", "u"):
        assert f"znode /brokers/topics/{copy}: its id " in caplog.text
