"""What `odradek up` writes into properties files, and which lines it keeps."""

import socket

import pytest

from odradek.config.properties import parse
from odradek.local.directory import ClusterDirectory, LocalError
from odradek.local.options import UpOptions, amend, read_log_dirs, write_options
from odradek.local.startable import free_ports


@pytest.fixture
def directory(tmp_path):
    return ClusterDirectory(tmp_path / "D")


def options(directory, broker_id):
    return parse(directory.properties_file(broker_id).read_text())


def test_brokers_share_the_store_and_nothing_else(directory):
    write_options(directory, UpOptions(), brokers=3)
    all_options = [options(directory, i) for i in range(3)]

    assert [o["broker.id"] for o in all_options] == ["0", "1", "2"]
    assert len({o["odradek.store.path"] for o in all_options}) == 1
    for key in ("listeners", "odradek.http.port", "log.dirs"):
        assert len({o[key] for o in all_options}) == 3


@pytest.mark.parametrize(
    ("brokers", "replicas", "min_isr"), [(1, "1", "1"), (2, "2", "2"), (3, "3", "2"), (5, "3", "2")]
)
def test_internal_topics_are_as_safe_as_the_cluster_allows(directory, brokers, replicas, min_isr):
    write_options(directory, UpOptions(), brokers=brokers)
    written = options(directory, brokers - 1)

    assert written["offsets.topic.replication.factor"] == replicas
    assert written["transaction.state.log.replication.factor"] == replicas
    assert written["transaction.state.log.min.isr"] == min_isr


def test_fixed_ports_count_up(directory):
    write_options(directory, UpOptions(port=9092, http_port=8080, host="localhost"), brokers=2)

    assert options(directory, 1)["listeners"] == "PLAINTEXT://localhost:9093"
    assert options(directory, 1)["odradek.http.host"] == "localhost"
    assert options(directory, 1)["odradek.http.port"] == "8081"


def test_racks_are_assigned_in_turn(directory):
    write_options(directory, UpOptions(racks=("a", "b")), brokers=3)

    assert [options(directory, i)["broker.rack"] for i in range(3)] == ["a", "b", "a"]


def test_zookeeper_takes_the_place_of_the_file(directory):
    write_options(directory, UpOptions(zookeeper="127.0.0.1:2181/x"), brokers=2)

    assert {options(directory, i)["zookeeper.connect"] for i in range(2)} == {"127.0.0.1:2181/x"}


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        ({"racks": ("a", "")}, "--racks a,: a rack must have a name"),
        ({"racks": ("a", "b"), "brokers": 1}, "there must be a broker for each rack"),
        ({"properties": {"zookeeper.connect": "a:1"}}, "use --zookeeper"),
    ],
)
def test_impossible_racks_are_refused(arguments, complaint):
    with pytest.raises(LocalError, match=complaint):
        UpOptions(**arguments)


def test_the_users_changes_are_kept_by_the_next_up(directory):
    write_options(directory, UpOptions(), brokers=1)
    file = directory.properties_file(0)
    before = file.read_text() + "# mine\nnum.partitions = 5\n"
    file.write_text(before)
    write_options(directory, UpOptions(), brokers=1)
    assert file.read_text() == before

    write_options(directory, UpOptions(properties={"num.partitions": "7"}), brokers=1)
    assert file.read_text() == before.replace("num.partitions = 5", "num.partitions=7")


@pytest.mark.parametrize(
    "text",
    ["", "a=1", "a : 1\n", "a=1\na=2\n", "a=\\\n 1\nb=2\n", "b=\\\na=3\n", "b=\\\n", "# a=1\n"],
)
@pytest.mark.parametrize("value", ["9", "x=y:z", " leading", "back\\slash", "ü", ""])
def test_an_amended_file_has_the_new_value_and_all_other_lines_unchanged(text, value):
    amended = amend(text, {"a": value})

    assert parse(amended) == parse(text) | {"a": value}
    assert amend(amended, {"a": value}) == amended


def test_relative_log_dirs_are_below_their_brokers_directory(directory):
    write_options(directory, UpOptions(properties={"log.dirs": "one, two"}), brokers=2)
    home = directory.broker(1)

    assert read_log_dirs(directory, 1) == [str(home / "one"), str(home / "two")]


def test_brokers_cannot_share_a_log_dir(directory):
    with pytest.raises(LocalError, match="log.dirs=/data: must be relative"):
        write_options(directory, UpOptions(properties={"log.dirs": "/data"}), brokers=2)


def test_a_port_in_use_is_not_chosen():
    ports = free_ports("127.0.0.1", 3)
    assert len(set(ports)) == 3
    with socket.create_server(("127.0.0.1", ports[0])):
        assert ports[0] not in free_ports("127.0.0.1", 11_000)


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        ({"brokers": 0}, "--brokers 0: must be from 1 to 100"),
        ({"brokers": 101}, "--brokers 101: must be from 1 to 100"),
        ({"port": 0}, "--port 0: must be from 1 to 65535"),
        ({"brokers": 2, "http_port": 65_535}, "--http-port 65535: must be from 1 to 65534"),
        ({"brokers": 3, "port": 9000, "http_port": 9002}, "must be at least 3 apart"),
        ({"host": "0.0.0.0"}, "--host '0.0.0.0': must be an address that clients can connect to"),
        ({"properties": {"broker.id": "7"}}, "broker.id: not to be set here"),
        ({"properties": {"listeners": "x"}}, "listeners: not to be set here, use --host and"),
    ],
)
def test_impossible_options_are_refused(arguments, complaint):
    with pytest.raises(LocalError, match=complaint):
        UpOptions(**arguments)


@pytest.mark.parametrize("host", ["192.0.2.1", "no.such.host.invalid"])
def test_a_host_of_another_machine_is_refused(directory, host):
    with pytest.raises(LocalError, match=f"--host {host}: "):
        write_options(directory, UpOptions(host=host), brokers=1)


def test_racks_may_repeat(directory):
    write_options(directory, UpOptions(racks=("a", "b")), brokers=3)

    assert [options(directory, i).get("broker.rack") for i in range(3)] == ["a", "b", "a"]
