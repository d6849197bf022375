"""The configuration of a `server.properties`, and what is refused at start."""

import pytest

from odradek.config.broker import BrokerConfig, base_name
from odradek.config.option import ConfigConflictError, InvalidConfigError
from odradek.model.cluster import EndPoint


def config(**properties):
    return BrokerConfig(
        {name.replace("_", "."): text for name, text in properties.items()}, host_name="here"
    )


def end_point(name, host, port, protocol="PLAINTEXT"):
    return EndPoint(listener=name, security_protocol=protocol, host=host, port=port)


def test_without_properties_a_broker_listens_on_the_loopback_interface():
    broker = config()

    assert broker.listeners == (end_point("PLAINTEXT", "127.0.0.1", 9092),)
    assert broker.advertised_listeners == broker.listeners
    assert broker.inter_broker_listener == "PLAINTEXT"
    assert broker.log_dirs == ("/tmp/kafka-logs",)
    assert broker.unknown() == []
    assert broker.without_effect() == []


def test_every_interface_is_advertised_by_the_name_of_the_host():
    broker = config(listeners="PLAINTEXT://:9092, ssl://[::]:9093")

    assert broker.listeners[1] == end_point("SSL", "::", 9093, "SSL")
    assert [e.connection_string for e in broker.advertised_listeners] == [
        "PLAINTEXT://here:9092",
        "SSL://here:9093",
    ]


def test_listeners_may_have_other_names_by_the_protocol_map():
    broker = config(
        listeners="IN://10.0.0.1:9092,OUT://:9093",
        advertised_listeners="OUT://kafka.example.org:443,IN://10.0.0.1:9092",
        listener_security_protocol_map="in:plaintext,OUT:SSL",
        inter_broker_listener_name="in",
    )

    assert broker.advertised_listeners[0] == end_point("OUT", "kafka.example.org", 443, "SSL")
    assert broker.inter_broker_listener == "IN"


def test_one_port_serves_ipv4_and_ipv6():
    broker = config(
        listeners="A://127.0.0.1:9092,B://[::1]:9092",
        listener_security_protocol_map="A:PLAINTEXT,B:PLAINTEXT",
        inter_broker_listener_name="A",
    )

    assert [e.host for e in broker.listeners] == ["127.0.0.1", "::1"]


def test_several_listeners_may_have_port_0():
    assert [e.port for e in config(listeners="PLAINTEXT://:0,SSL://:0").listeners] == [0, 0]


NO_PROTOCOL = (
    "Error creating broker listeners from '{0}': No security protocol defined for listener {1}"
)
NO_END_POINT = (
    "Error creating broker listeners from '{0}': Unable to parse {0} to a broker endpoint"
)
VALID = "The valid options based on currently configured listeners are "


@pytest.mark.parametrize(
    ("properties", "message"),
    [
        ({"listeners": "X://h:1"}, NO_PROTOCOL.format("X://h:1", "X")),
        ({"listeners": "X"}, NO_END_POINT.format("X")),
        ({"listeners": "PLAINTEXT://h:70000"}, NO_END_POINT.format("PLAINTEXT://h:70000")),
        ({"listeners": ""}, "There must be at least one broker advertised listener."),
        (
            {"listeners": "PLAINTEXT://:1,PLAINTEXT://:2"},
            "Each listener must have a different name, listeners: PLAINTEXT://:1,PLAINTEXT://:2",
        ),
        (
            {"listeners": "PLAINTEXT://:1,SSL://:1"},
            "Each listener must have a different port, listeners: PLAINTEXT://:1,SSL://:1",
        ),
        (
            {"listeners": "PLAINTEXT://0.0.0.0:1"},
            (
                "advertised.listeners cannot use the nonroutable meta-address 0.0.0.0. "
                "Use a routable IP address."
            ),
        ),
        (
            {"listeners": "PLAINTEXT://:1", "advertised_listeners": "PLAINTEXT://h:1,SSL://h:2"},
            (
                "advertised.listeners listener names must be equal to or a subset of the ones "
                "defined in listeners. Found PLAINTEXT,SSL. The valid options based on the current "
                "configuration are PLAINTEXT"
            ),
        ),
        (
            {"listeners": "SSL://h:1"},
            (
                "inter.broker.listener.name must be a listener name defined in "
                f"advertised.listeners. {VALID}SSL"
            ),
        ),
        (
            {"inter_broker_listener_name": "PLAINTEXT", "security_inter_broker_protocol": "SSL"},
            (
                "Only one of inter.broker.listener.name and security.inter.broker.protocol "
                "should be set."
            ),
        ),
        (
            {"listener_security_protocol_map": "A:B"},
            "Invalid security protocol `B` defined in listener.security.protocol.map",
        ),
        (
            {"listener_security_protocol_map": "A"},
            "listener.security.protocol.map: 'A' must have the form NAME:PROTOCOL",
        ),
        (
            {"max_connections_per_ip_overrides": "a:1,b"},
            "max.connections.per.ip.overrides: 'b' must have the form host:count",
        ),
        (
            {"max_connections_per_ip": "0"},
            (
                "max.connections.per.ip can be set to zero only if "
                "max.connections.per.ip.overrides property is set."
            ),
        ),
        (
            {"broker_id": "1001"},
            (
                "broker.id must be greater than or equal to -1 and not greater than "
                "reserved.broker.max.id"
            ),
        ),
        (
            {"broker_id": "-1", "broker_id_generation_enable": "false"},
            "broker.id must be greater than or equal to 0",
        ),
        (
            {"process_roles": "broker", "zookeeper_connect": "zk:2181"},
            (
                "process.roles is for KRaft, and zookeeper.connect for a cluster with ZooKeeper; "
                "this broker has no KRaft: remove process.roles, or the file is another broker's."
            ),
        ),
        (
            {"broker_id": "1", "node_id": "2"},
            "You must set `node.id` to the same value as `broker.id`.",
        ),
        (
            {"log_dirs": " , "},
            "At least one log directory must be defined via log.dirs or log.dir.",
        ),
        ({"log_dirs": "/a,/b,/a"}, "log.dirs must not name a directory twice."),
        (
            {"log_retention_minutes": "0"},
            "log.retention.ms must be unlimited (-1) or, greater than or equal to 1",
        ),
        ({"log_roll_ms": "0"}, "log.roll.ms must be greater than or equal to 1"),
        ({"log_roll_jitter_ms": "-1"}, "log.roll.jitter.ms must be greater than or equal to 0"),
        (
            {"log_flush_interval_ms": "-1"},
            "log.flush.interval.ms must be greater than or equal to 0",
        ),
        ({"log_cleaner_threads": "0"}, "log.cleaner.threads must be at least 1"),
        (
            {"log_cleaner_threads": "200"},
            "log.cleaner.dedupe.buffer.size must be at least 1MB per cleaner thread.",
        ),
        (
            {"replica_fetch_wait_max_ms": "30001", "replica_lag_time_max_ms": "50000"},
            (
                "replica.socket.timeout.ms should always be at least replica.fetch.wait.max.ms to "
                "prevent unnecessary socket timeouts"
            ),
        ),
        (
            {"replica_lag_time_max_ms": "499"},
            (
                "replica.fetch.wait.max.ms should always be less than or equal to "
                "replica.lag.time.max.ms to prevent frequent changes in ISR"
            ),
        ),
        (
            {"queued_max_request_bytes": "5"},
            "queued.max.request.bytes must be larger or equal to socket.request.max.bytes",
        ),
        (
            {"inter_broker_protocol_version": "4.0"},
            (
                "Invalid value 4.0 for configuration inter.broker.protocol.version: "
                "Version 4.0 is not a valid version"
            ),
        ),
        (
            {"fetch_max_bytes": "100"},
            "Invalid value 100 for configuration fetch.max.bytes: Value must be at least 1024",
        ),
    ],
)
def test_refused_at_start(properties, message):
    with pytest.raises((InvalidConfigError, ConfigConflictError)) as refused:
        config(**properties)

    assert str(refused.value) == message


@pytest.mark.parametrize(
    ("properties", "retention_ms"),
    [
        ({}, 604_800_000),
        ({"log_retention_hours": "1"}, 3_600_000),
        ({"log_retention_hours": "1", "log_retention_minutes": "5"}, 300_000),
        ({"log_retention_minutes": "5", "log_retention_ms": "7"}, 7),
        ({"log_retention_hours": "-1"}, -1),
        ({"log_retention_ms": "-5"}, -1),
    ],
)
def test_the_finest_unit_of_a_time_is_in_effect(properties, retention_ms):
    assert config(**properties).topic_defaults.retention_ms == retention_ms


def test_log_dirs_has_precedence_over_log_dir():
    assert config(log_dir="/x").log_dirs == ("/x",)
    assert config(log_dir="/x", log_dirs="/a, /b,").log_dirs == ("/a", "/b")


def test_node_id_and_broker_id_both_set_the_id():
    assert config(node_id="5").broker_id == 5
    assert config(broker_id="5").values["node.id"] == 5


def test_the_most_specific_setting_is_in_effect():
    static = config(message_max_bytes="1000", num_partitions="3")
    both = static.with_dynamic(
        dynamic={"message.max.bytes": "3000"},
        dynamic_default={"message.max.bytes": "2000", "min.insync.replicas": "2"},
    )
    general = both.with_dynamic(dynamic={}, dynamic_default=both.dynamic_default)

    assert static.topic_defaults.max_message_bytes == 1000
    assert both.topic_defaults.max_message_bytes == 3000
    assert general.topic_defaults.max_message_bytes == 2000
    assert general.topic_defaults.min_insync_replicas == 2
    assert general.num_partitions == 3


def test_overrides_have_precedence_over_the_file():
    assert config(broker_id="1").with_overrides({"num.partitions": "9"}).num_partitions == 9


def test_a_generated_id_is_above_the_reserved_ones_and_stays():
    given = config().with_broker_id(1001)
    reported = given.with_dynamic(dynamic={"log.segment.bytes": "5000"}, dynamic_default={})

    assert given.broker_id == reported.broker_id == 1001
    assert reported.topic_defaults.segment_bytes == 5000
    assert given.static == {}


def test_unknown_names_and_options_without_effect_are_reported():
    broker = config(
        foo="1",
        listener_name_plaintext_foo="2",
        num_io_threads="9",  # no effect here
        background_threads="10",  # no effect either, but it is the default
        node_id="1",
        listener_name_plaintext_num_network_threads="4",
        num_partitions="3",
    )

    assert broker.unknown() == ["foo", "listener.name.plaintext.foo"]
    assert broker.without_effect() == [
        "listener.name.plaintext.num.network.threads",
        "num.io.threads",
    ]


def test_an_option_may_have_a_value_for_one_listener():
    broker = config(max_connections="100", listener_name_plaintext_max_connections="10")

    assert broker.for_listener("PLAINTEXT", "max.connections") == 10
    assert broker.for_listener("SSL", "max.connections") == 100


def test_an_option_may_have_a_listener_and_a_mechanism_before_it():
    assert base_name("listener.name.out.ssl.client.auth") == "ssl.client.auth"
    assert base_name("listener.name.out.scram-sha-256.sasl.jaas.config") == "sasl.jaas.config"
    assert base_name("sasl.jaas.config") is None


def test_a_configuration_is_replaced_not_changed():
    with pytest.raises(AttributeError, match="replaced, not changed"):
        config().num_partitions = 5
    with pytest.raises(AttributeError, match="replaced, not changed"):
        config().topic_defaults.segment_bytes = 5
