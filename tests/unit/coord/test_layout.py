"""Znodes as Apache Kafka 3.9 writes them, read and written again byte for byte; and bad ones."""

import json
import pathlib
import re
from uuid import UUID

import pytest

from odradek.coord import layout, layout_config, layout_odradek, layout_security
from odradek.coord.layout_config import ConfigEntity, broker_entity, topic_entity
from odradek.coord.layout_odradek import BrokerLogs, NotedRegistration, NotedRegistrations
from odradek.coord.znode import CorruptNodeError
from odradek.model.acl import AclEntry, AclOperation, ResourcePattern, ResourceType
from odradek.model.cluster import Broker, EndPoint
from odradek.model.partition import Assignment, LeaderAndIsr, TopicPartition

WRITTEN_BY_KAFKA = [
    line.partition(" ")[::2]
    for line in (pathlib.Path(__file__).parent / "znodes_3_9.txt").read_text().splitlines()[1:]
]
T0 = TopicPartition("t", 0)


def again_broker(path, data):
    fields = json.loads(data)
    broker = layout.decode_broker(int(path.rpartition("/")[2]), data, broker_epoch=7)
    assert broker.broker_epoch == 7
    return layout.encode_broker(
        broker, timestamp_ms=int(fields["timestamp"]), jmx_port=fields["jmx_port"]
    )


def again_state(path, data):
    _, _, _, topic, _, number, _ = path.split("/")
    partition = TopicPartition(topic, int(number))
    assert layout.partition_state_path(partition) == path
    state = layout.decode_partition_state(partition, data, partition_epoch=3)
    assert state.leader_and_isr.partition_epoch == 3
    return layout.encode_partition_state(state)


def again_topic(path, data):
    topic = path.rpartition("/")[2]
    assert layout.topic_path(topic) == path
    return layout.encode_topic(layout.decode_topic(topic, data))


def again_config(path, data):
    entity = layout_config.parse_entity_path(path.removeprefix("/config/"))
    assert entity.path == path
    return layout_config.encode_config(layout_config.decode_config(path, data))


def again_config_change(path, data):
    return layout_config.encode_config_change(layout_config.decode_config_change(path, data))


def again_acl_change(path, data):
    pattern = layout_security.decode_acl_change(path, data)
    assert layout_security.acl_change_parent(pattern) == path.rpartition("/")[0]
    return layout_security.encode_acl_change(pattern)


def without_path(encode, decode):
    return lambda path, data: encode(decode(data))


def with_path(encode, decode):
    return lambda path, data: encode(decode(path, data))


AGAIN = {
    r"/cluster/id": without_path(layout.encode_cluster_id, layout.decode_cluster_id),
    r"/controller": without_path(layout.encode_controller, layout.decode_controller),
    r"/controller_epoch": without_path(
        layout.encode_controller_epoch, layout.decode_controller_epoch
    ),
    r"/feature": without_path(layout.encode_feature, layout.decode_feature),
    r"/latest_producer_id_block": without_path(
        layout.encode_producer_id_block, layout.decode_producer_id_block
    ),
    r"/brokers/ids/\d+": again_broker,
    r"/brokers/topics/\w+": again_topic,
    r"/brokers/topics/\w+/partitions/\d+/state": again_state,
    r"/admin/reassign_partitions": without_path(
        layout.encode_reassign_partitions, layout.decode_reassign_partitions
    ),
    r"/admin/preferred_replica_election": with_path(
        layout.encode_partitions, layout.decode_partitions
    ),
    r"/isr_change_notification/.*": with_path(layout.encode_partitions, layout.decode_partitions),
    r"/log_dir_event_notification/.*": with_path(
        layout.encode_log_dir_event, layout.decode_log_dir_event
    ),
    r"/config/changes/.*": again_config_change,
    r"/config/(?!changes).*": again_config,
    r"/kafka-acl/.*": with_path(layout_security.encode_acls, layout_security.decode_acls),
    r"/kafka-acl-(extended-)?changes/.*": again_acl_change,
    r"/delegation_token/tokens/.*": with_path(
        layout_security.encode_token, layout_security.decode_token
    ),
}


@pytest.mark.parametrize(("path", "text"), WRITTEN_BY_KAFKA)
def test_what_kafka_wrote_comes_out_as_it_went_in(path, text):
    (again,) = (again for pattern, again in AGAIN.items() if re.fullmatch(pattern, path))

    assert again(path, text.encode()) == text.encode()


def test_every_kind_of_node_has_an_example():
    for pattern in AGAIN:
        assert any(re.fullmatch(pattern, path) for path, _ in WRITTEN_BY_KAFKA), pattern


# ----------------------------------------------------------------------- values and versions


def end_point(listener, protocol, host, port):
    return EndPoint(listener=listener, security_protocol=protocol, host=host, port=port)


@pytest.mark.parametrize(
    ("fields", "end_points", "rack"),
    [
        ({"version": 1, "host": "h", "port": 9}, [("PLAINTEXT", "PLAINTEXT", "h", 9)], None),
        (
            {"version": 2, "host": "h", "port": 9, "endpoints": ["SSL://h:8"]},
            [("SSL", "SSL", "h", 8)],
            None,
        ),
        ({"version": 3, "endpoints": ["SSL://h:8"], "rack": "r"}, [("SSL", "SSL", "h", 8)], "r"),
        (
            {
                "version": 4,
                "endpoints": ["in://[fe80::1%eth0]:8"],
                "listener_security_protocol_map": {"in": "sasl_ssl"},
                "rack": None,
            },
            [("IN", "SASL_SSL", "fe80::1%eth0", 8)],
            None,
        ),
        (
            {
                "version": 9,
                "endpoints": ["A://:8"],
                "listener_security_protocol_map": {"A": "SSL"},
                "is_from_the_future": True,
            },
            [("A", "SSL", "", 8)],
            None,
        ),
    ],
)
def test_registrations_of_every_version_are_read(fields, end_points, rack):
    broker = layout.decode_broker(3, json.dumps(fields).encode(), broker_epoch=5)

    expected = tuple(end_point(*values) for values in end_points)
    assert broker == Broker(id=3, end_points=expected, rack=rack, broker_epoch=5)


def test_topics_of_every_version_are_read():
    first = layout.decode_topic("t", b'{"version":1,"partitions":{"10":[1,2],"9":[2,1]}}')
    third = layout.decode_topic(
        "t",
        b'{"version":3,"partitions":{"0":[3,1,2]},"adding_replicas":{"0":[3]},'
        b'"removing_replicas":{"0":[2]},"topic_id":"AAAAAAAAAAEAAAAAAAAAAg"}',
    )

    assert first.topic_id is None
    assert list(first.assignments) == [9, 10]
    assert first.assignments[9] == Assignment(replicas=(2, 1))
    assert third.topic_id == UUID(int=(1 << 64) + 2)
    assert third.assignments[0] == Assignment(replicas=(3, 1, 2), adding=(3,), removing=(2,))
    assert third.assignments[0].target == (3, 1)


def test_a_partition_without_leader_keeps_its_isr():
    data = b'{"controller_epoch":2,"leader":-1,"version":1,"leader_epoch":1,"isr":[4]}'

    state = layout.decode_partition_state(T0, data, partition_epoch=1)

    assert state.controller_epoch == 2
    assert state.leader_and_isr == LeaderAndIsr(
        leader=-1, leader_epoch=1, isr=(4,), partition_epoch=1
    )


def test_a_controller_from_before_kraft_is_read():
    node = layout.decode_controller(b'{"version":1,"brokerid":3,"timestamp":"17"}')

    assert node == layout.ControllerNode(3, 17, -1)


def test_features_of_version_1_are_read_by_their_highest_level():
    data = (
        b'{"version":1,"status":1,"features":{"f":{"min_version_level":1,"max_version_level":3}}}'
    )

    assert layout.decode_feature(data) == layout.FeatureNode(enabled=True, features={"f": 3})


def test_an_empty_producer_id_block_means_that_none_was_drawn():
    assert layout.decode_producer_id_block(None) is None
    block = layout.decode_producer_id_block(
        b'{"version":1,"broker":4,"block_start":"1000","block_end":"1999"}'
    )
    assert block == layout.ProducerIdBlock(4, 1000, 2000)


@pytest.mark.parametrize(
    ("name", "number"),
    [
        ("config_change_0000000012", 12),
        ("config_change_", None),
        ("config_change_-000000001", None),
        ("config_change_٣", None),
        ("other_0000000012", None),
    ],
)
def test_the_number_of_a_notification_is_read_from_its_name(name, number):
    assert layout.sequence_number(name, layout_config.CONFIG_CHANGE_PREFIX) == number


def test_config_entities_have_paths():
    client_of_user = ConfigEntity((("users", "al ice"), ("clients", None)))

    assert topic_entity("t").path == "/config/topics/t"
    assert broker_entity(None).path == "/config/brokers/<default>"
    assert client_of_user.entity_path == "users/al%20ice/clients/<default>"
    assert layout_config.sanitize("a/b*+~ü<default>") == "a%2Fb%2A%2B~%C3%BC%3Cdefault%3E"
    assert layout_config.parse_entity_path(client_of_user.entity_path) == client_of_user


def test_config_changes_of_version_1_are_read():
    data = b'{"version":1,"entity_type":"clients","entity_name":"a%2Fb"}'

    entity = layout_config.decode_config_change("/config/changes/x", data)

    assert entity == ConfigEntity((("clients", "a/b"),))


def test_a_config_node_without_data_has_no_overrides():
    assert layout_config.decode_config("/config/users/u", None) == {}
    assert layout_config.decode_config("/config/users/u", b"{}") == {}


def test_acls_have_paths():
    literal = ResourcePattern(ResourceType.TRANSACTIONAL_ID, "x")
    prefixed = ResourcePattern(ResourceType.TOPIC, "pre", prefixed=True)

    assert layout_security.acl_path(literal) == "/kafka-acl/TransactionalId/x"
    assert layout_security.acl_path(prefixed) == "/kafka-acl-extended/prefixed/Topic/pre"
    assert layout_security.decode_acls("/kafka-acl/Topic/t", None) == frozenset()
    (entry,) = layout_security.decode_acls(
        "/kafka-acl/Topic/t",
        b'{"version":1,"acls":[{"principal":"User:a","permissionType":"Deny",'
        b'"operation":"Read","host":"*"}]}',
    )
    assert entry == AclEntry("User:a", "*", AclOperation.READ, allowed=False)


def test_the_requester_of_an_old_token_is_its_owner():
    data = (
        b'{"version":2,"owner":"User%3Ao","renewers":[],"issueTimestamp":1,"maxTimestamp":3,'
        b'"expiryTimestamp":2,"tokenId":"id"}'
    )

    token = layout_security.decode_token("/delegation_token/tokens/id", data)

    assert (token.owner, token.requester) == ("User:o", "User:o")


# --------------------------------------------------------------------------- what is corrupt


@pytest.mark.parametrize(
    ("data", "problem"),
    [
        (None, "no data, must be a JSON object"),
        (b"x", "not JSON: Expecting value"),
        (b"\xff", "not JSON: "),
        (b"[1]", r"the data is \[1\], must be a JSON object"),
        (b"[" * 100_000, "not JSON: "),
        (b'{"leader":1,"leader_epoch":0,"isr":[1]}', "controller_epoch is missing, must be an int"),
        (
            b'{"controller_epoch":1,"leader":"1","leader_epoch":0,"isr":[1]}',
            'leader is "1", must be an integer',
        ),
        (
            b'{"controller_epoch":1,"leader":true,"leader_epoch":0,"isr":[1]}',
            "leader is true, must be an integer",
        ),
        (
            b'{"controller_epoch":1,"leader":1,"leader_epoch":0,"isr":[1,2.5]}',
            r"isr contains 2.5, must be a list of integers",
        ),
        (
            b'{"controller_epoch":1,"leader":1,"leader_epoch":0,"isr":[]}',
            r"isr \[\], must be distinct brokers and at least one",
        ),
        (
            b'{"controller_epoch":1,"leader":1,"leader_epoch":0,"isr":[1,1]}',
            r"isr \[1, 1\], must be distinct brokers and at least one",
        ),
        (
            b'{"controller_epoch":1,"leader":3,"leader_epoch":0,"isr":[1,2]}',
            r"leader 3, must be in the isr \[1, 2\]",
        ),
        (
            b'{"controller_epoch":1,"leader_recovery_state":3,"leader":1,"leader_epoch":0,"isr":[1]}',
            "leader_recovery_state 3, must be 0 or 1",
        ),
    ],
)
def test_a_corrupt_partition_state_is_named_with_its_problem(data, problem):
    with pytest.raises(
        CorruptNodeError, match=f"^znode /brokers/topics/t/partitions/0/state: {problem}"
    ):
        layout.decode_partition_state(T0, data, partition_epoch=0)


@pytest.mark.parametrize(
    ("data", "problem"),
    [
        (b'{"partitions":{"a":[1]}}', "partitions: 'a' is not a partition number"),
        (b'{"partitions":{"0":[1,1]}}', r"partition 0: replicas \(1, 1\), must be distinct"),
        (b'{"partitions":{"0":[]}}', r"partition 0: replicas \(\), must be distinct"),
        (b'{"partitions":{"0":[-1]}}', r"partition 0: replicas \(-1,\), must be distinct"),
        (b'{"partitions":{"0":"x"}}', 'in partitions: 0 is "x", must be a list of integers'),
        (b'{"partitions":[]}', r"partitions is \[\], must be a JSON object"),
        (
            b'{"partitions":{"0":[1]},"adding_replicas":{"0":[2]}}',
            r"partition 0: adding \(2,\) and removing None, must be among \(1,\)",
        ),
        (b'{"partitions":{},"topic_id":"short"}', "topic_id: 'short' is not a UUID"),
        (b'{"partitions":{},"topic_id":5}', "topic_id is 5, must be a string"),
    ],
)
def test_a_corrupt_topic_is_named_with_its_problem(data, problem):
    with pytest.raises(CorruptNodeError, match=f"^znode /brokers/topics/t: {problem}"):
        layout.decode_topic("t", data)


@pytest.mark.parametrize(
    ("fields", "problem"),
    [
        ({"version": 0}, "version 0, must be at least 1"),
        ({"version": 5}, "endpoints is missing"),
        ({"version": 5, "endpoints": ["h:9"]}, "endpoint 'h:9', must be NAME://host:port"),
        ({"version": 5, "endpoints": [9]}, "endpoints contains 9, must be a list of strings"),
        (
            {
                "version": 5,
                "endpoints": ["A://h:9"],
                "listener_security_protocol_map": {"B": "SSL"},
            },
            "endpoint 'A://h:9' is not in listener_security_protocol_map",
        ),
    ],
)
def test_a_corrupt_broker_is_named_with_its_problem(fields, problem):
    with pytest.raises(CorruptNodeError, match=f"^znode /brokers/ids/3: {problem}"):
        layout.decode_broker(3, json.dumps(fields).encode(), broker_epoch=1)


@pytest.mark.parametrize(
    "attempt",
    [
        lambda: layout.decode_cluster_id(b'{"version":"1"}'),
        lambda: layout.decode_controller(b"3"),
        lambda: layout.decode_controller_epoch(b"one"),
        lambda: layout.decode_controller_epoch(None),
        lambda: layout.decode_reassign_partitions(b'{"partitions":[{"topic":"t"}]}'),
        lambda: layout.decode_partitions("/x", b'{"partitions":{}}'),
        lambda: layout.decode_producer_id_block(
            b'{"broker":4,"block_start":"1000","block_end":"998"}'
        ),
        lambda: layout.decode_producer_id_block(b'{"broker":4,"block_start":1,"block_end":2}'),
        lambda: layout_config.decode_config("/x", b'{"config":{"a":1}}'),
        lambda: layout_config.decode_config_change("/x", b'{"version":3}'),
        lambda: layout_config.decode_config_change("/x", b'{"version":2,"entity_path":"topics"}'),
        lambda: layout_security.decode_acls("/x", b'{"acls":[{"principal":"User:a"}]}'),
        lambda: layout_security.decode_acl_change("/kafka-acl-changes/x", b"NOTHING:t"),
        lambda: layout_security.decode_token("/x", b"{}"),
        lambda: layout_odradek.decode_noted(b'{"controller_epoch":1}', modified_id=9),
    ],
)
def test_a_corrupt_node_is_refused(attempt):
    with pytest.raises(CorruptNodeError, match="^znode /"):
        attempt()


def test_a_new_registration_has_the_id_of_the_transaction_that_noted_it():
    noted = NotedRegistrations(
        5, {2: NotedRegistration(70, 71), 1: NotedRegistration(80, layout_odradek.SINCE_NOW)}
    )
    data = layout_odradek.encode_noted(noted)
    expected = NotedRegistrations(5, {1: NotedRegistration(80, 99), 2: NotedRegistration(70, 71)})
    assert layout_odradek.decode_noted(data, modified_id=99) == expected


@pytest.mark.parametrize(
    ("written", "read"),
    [
        (BrokerLogs(0), BrokerLogs(70)),
        (BrokerLogs(50), BrokerLogs(50)),
        (BrokerLogs(50, 0), BrokerLogs(50, 70)),
        (BrokerLogs(50, 40), BrokerLogs(50, 40)),
        pytest.param(BrokerLogs(50, 71), BrokerLogs(50), id="copied from another store"),
    ],
)
def test_what_a_broker_reports_of_its_logs_is_read_as_it_was_written(written, read):
    data = layout_odradek.encode_broker(written)
    assert layout_odradek.decode_broker(1, data, modified_id=70) == read
