"""Brokers that are added to a cluster on this machine, and copies of its directory."""

import stat

import pytest

from odradek.config.properties import parse
from odradek.local.directory import BrokerRecord, ClusterDirectory, ClusterRecord, LocalError
from odradek.local.growth import clone, write_added
from odradek.local.options import UpOptions, amend, write_options


@pytest.fixture
def directory(tmp_path):
    return ClusterDirectory(tmp_path / "D")


@pytest.fixture
def copy(tmp_path):
    return ClusterDirectory(tmp_path / "copy")


def create(directory, brokers, **options):
    write_options(directory, UpOptions(**options), brokers=brokers)
    records = {broker_id: BrokerRecord() for broker_id in range(brokers)}
    directory.save(ClusterRecord(up=False, brokers=records))


def options(directory, broker_id):
    return parse(directory.properties_file(broker_id).read_text())


def set_option(directory, broker_id, **values):
    file = directory.properties_file(broker_id)
    changes = {name.replace("_", "."): value for name, value in values.items()}
    file.write_text(amend(file.read_text(), changes))


def port_of(listeners):
    return int(listeners.rpartition(":")[2])


def test_an_added_broker_has_the_options_of_broker_0_and_its_own_place(directory):
    create(directory, 2, properties={"log.retention.hours": "7", "log.dirs": "data,more"})
    write_added(directory, [2, 3], None)
    all_options = [options(directory, i) for i in range(4)]

    assert [each["broker.id"] for each in all_options] == ["0", "1", "2", "3"]
    for name in ("log.retention.hours", "odradek.store.path", "offsets.topic.replication.factor"):
        assert len({each[name] for each in all_options}) == 1
    for name in ("listeners", "odradek.http.port", "log.dirs"):
        assert len({each[name] for each in all_options}) == 4
    home = directory.broker(3)
    assert all_options[3]["log.dirs"] == f"{home / 'data'},{home / 'more'}"


def test_ports_continue_those_of_the_others_and_leave_out_used_ones(directory):
    create(directory, 3)
    first = port_of(options(directory, 0)["listeners"])
    for broker_id in (1, 2):
        set_option(directory, broker_id, listeners=f"PLAINTEXT://127.0.0.1:{first + broker_id}")
    write_added(directory, [3], None)

    assert port_of(options(directory, 3)["listeners"]) > first + 2


def test_each_of_several_listeners_gets_a_port_and_is_advertised_there(directory):
    create(directory, 1)
    listeners = "PLAINTEXT://127.0.0.1:20100,INSIDE://[::1]:20200"
    advertised = "PLAINTEXT://example.org:20100,INSIDE://[::1]:20200"
    set_option(directory, 0, listeners=listeners, advertised_listeners=advertised)
    write_added(directory, [1], None)
    added = options(directory, 1)

    ports = [port_of(each) for each in added["listeners"].split(",")]
    assert not {20100, 20200} & set(ports)
    assert added["advertised.listeners"] == (
        f"PLAINTEXT://example.org:{ports[0]},INSIDE://[::1]:{ports[1]}"
    )


def test_the_rack_is_the_smallest_or_the_one_that_is_named(directory):
    create(directory, 3, racks=("a", "b"))
    write_added(directory, [3], None)
    write_added(directory, [4], "c")

    assert [options(directory, i)["broker.rack"] for i in (3, 4)] == ["b", "c"]


@pytest.mark.parametrize(
    ("changed", "complaint"),
    [
        ({"log_dirs": "/somewhere/else"}, "brokers cannot share /somewhere/else"),
        ({"advertised_listeners": "PLAINTEXT://example.org:9"}, "port 9 is not one of"),
    ],
)
def test_what_another_broker_cannot_take_over_is_refused(directory, changed, complaint):
    create(directory, 1)
    set_option(directory, 0, **changed)
    with pytest.raises(LocalError, match=complaint):
        write_added(directory, [1], None)
    assert not directory.properties_file(1).exists()


def test_the_file_of_a_secure_broker_is_secret_and_names_its_own_certificate(directory):
    create(directory, 1)
    set_option(directory, 0, ssl_keystore_location=str(directory.secrets / "broker-0.pem"))
    directory.properties_file(0).chmod(0o600)
    write_added(directory, [1], None)

    keystore = options(directory, 1)["ssl.keystore.location"]
    assert keystore == str(directory.secrets / "broker-1.pem")
    assert stat.S_IMODE(directory.properties_file(1).stat().st_mode) == 0o600


def test_a_copy_has_the_files_and_options_under_its_own_path_and_ports(directory, copy):
    create(directory, 2, properties={"log.retention.hours": "7"})
    segment = directory.broker(1) / "data" / "t-0" / "00000000000000000000.log"
    segment.parent.mkdir(parents=True)
    segment.write_bytes(b"records")
    directory.coordination.write_bytes(b"store")
    directory.open_log(0).write_text("of the original")
    (directory.path / "coordination.db-session-1.lock").touch()
    copied = clone(directory, copy)

    assert (copied.files, copied.total_bytes > 12) == (4, True)
    assert (copy.broker(1) / "data" / "t-0" / segment.name).read_bytes() == b"records"
    assert copy.coordination.read_bytes() == b"store"
    assert not (copy.path / "logs").exists()
    assert not list(copy.path.glob("*session*"))
    for broker_id in (0, 1):
        old, new = options(directory, broker_id), options(copy, broker_id)
        different = {name for name in old if old[name] != new[name]}
        assert different == {"listeners", "odradek.http.port", "log.dirs", "odradek.store.path"}
        assert new["log.dirs"] == str(copy.broker(broker_id) / "data")
    assert copy.expect() == ClusterRecord(up=False, brokers={0: BrokerRecord(), 1: BrokerRecord()})


def test_a_private_directory_has_a_private_copy(directory, copy):
    create(directory, 1)
    directory.path.chmod(0o700)
    directory.properties_file(0).chmod(0o600)
    directory.clients.mkdir()
    client = directory.clients / "app.librdkafka.properties"
    client.write_text(f"ssl.ca.location={directory.clients}/ca.pem\nsasl.username=app\n")
    clone(directory, copy)

    assert (copy.clients / client.name).read_text() == (
        f"ssl.ca.location={copy.clients}/ca.pem\nsasl.username=app\n"
    )
    assert stat.S_IMODE(copy.path.stat().st_mode) == 0o700
    assert stat.S_IMODE(copy.properties_file(0).stat().st_mode) == 0o600


@pytest.mark.parametrize(
    ("changed", "complaint"),
    [
        ({"log_dirs": "/somewhere/else"}, "/somewhere/else is not in"),
        ({"zookeeper_connect": "127.0.0.1:2181"}, "is in ZooKeeper"),
    ],
)
def test_a_cluster_with_data_elsewhere_is_not_copied(directory, copy, changed, complaint):
    create(directory, 1)
    set_option(directory, 0, **changed)
    with pytest.raises(LocalError, match=complaint):
        clone(directory, copy)
    assert not copy.path.exists()


def test_neither_a_used_directory_nor_one_inside_becomes_a_copy(directory, copy):
    create(directory, 1)
    with pytest.raises(LocalError, match="is inside of"):
        clone(directory, ClusterDirectory(directory.path / "copy"))
    copy.path.mkdir()
    (copy.path / "file").touch()
    with pytest.raises(LocalError, match="choose a directory that does not, or is empty"):
        clone(directory, copy)
