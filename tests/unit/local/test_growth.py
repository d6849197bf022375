"""Brokers that are added to a cluster on this machine."""

import stat

import pytest

from odradek.config.properties import parse
from odradek.local.directory import BrokerRecord, ClusterDirectory, ClusterRecord, LocalError
from odradek.local.growth import write_added
from odradek.local.options import UpOptions, amend, write_options


@pytest.fixture
def directory(tmp_path):
    return ClusterDirectory(tmp_path / "D")


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
