"""Copies of a cluster's directory, and directories that have been moved."""

import json
import os
import shutil
import sqlite3
import stat
import subprocess

import pytest

from odradek.config.properties import parse
from odradek.coord import layout
from odradek.coord.sqlite_file import StoreFile
from odradek.local import processes
from odradek.local.copies import adopt, clone
from odradek.local.directory import BrokerRecord, ClusterDirectory, ClusterRecord, LocalError
from odradek.local.options import UpOptions, amend, options_of, settle, write_options
from odradek.local.place import moved_text


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


def test_a_copy_has_the_files_and_options_under_its_own_path_and_ports(directory, copy):
    create(directory, 2, properties={"log.retention.hours": "7"})
    segment = directory.broker(1) / "data" / "t-0" / "00000000000000000000.log"
    segment.parent.mkdir(parents=True)
    segment.write_bytes(b"records")
    directory.open_log(0).write_text("of the original")
    (directory.path / "coordination.db-session-1.lock").touch()
    copied = clone(directory, copy)

    assert (copied.files, copied.total_bytes > 12) == (3, True)
    assert (copy.broker(1) / "data" / "t-0" / segment.name).read_bytes() == b"records"
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


def test_a_moved_directory_names_its_new_place_before_and_after_the_next_start(directory, tmp_path):
    create(directory, 2, properties={"log.dirs": "a,b"})
    set_option(directory, 1, ssl_keystore_location=f"{directory.path}-other/key.pem")
    directory.clients.mkdir()
    (directory.clients / "app.properties").write_text(
        f"ssl.ca.location={directory.clients}/ca.pem\n"
    )
    moved = ClusterDirectory(tmp_path / "elsewhere" / "D2")
    moved.path.parent.mkdir()
    directory.path.rename(moved.path)
    state = moved.expect()

    assert (state.original, state.former) == (None, directory.path)
    expected = f"{moved.broker(1)}/a,{moved.broker(1)}/b"
    assert options_of(moved, 1)["log.dirs"] == expected
    assert options(moved, 1)["log.dirs"] != expected
    settle(moved, state)
    assert options(moved, 1)["log.dirs"] == expected
    assert options(moved, 0)["odradek.store.path"] == str(moved.coordination)
    assert options(moved, 1)["ssl.keystore.location"] == f"{directory.path}-other/key.pem"
    assert str(moved.clients) in (moved.clients / "app.properties").read_text()
    assert moved.expect().former is None


def test_a_move_that_was_interrupted_while_files_were_rewritten_is_continued(directory, tmp_path):
    create(directory, 2)
    inner = ClusterDirectory(directory.path / "inner")
    directory.path.rename(tmp_path / "aside")
    directory.path.mkdir()
    (tmp_path / "aside").rename(inner.path)
    set_option(inner, 0, log_dirs=str(inner.broker(0) / "data"))
    settle(inner, inner.expect())

    assert [options(inner, i)["log.dirs"] for i in (0, 1)] == [
        str(inner.broker(i) / "data") for i in (0, 1)
    ]


def test_a_directory_that_is_reached_by_a_link_is_not_moved(directory, tmp_path):
    create(directory, 1)
    (tmp_path / "link").symlink_to(directory.path)
    state = ClusterDirectory(tmp_path / "link").expect()

    assert (state.original, state.former) == (None, None)


def test_a_directory_that_was_put_back_from_a_backup_is_the_same_cluster(directory, tmp_path):
    create(directory, 1)
    shutil.copytree(directory.path, tmp_path / "backup")
    shutil.rmtree(directory.path)
    shutil.copytree(tmp_path / "backup", directory.path)
    assert directory.expect().original is None


def test_another_cluster_at_the_former_place_makes_no_copy(directory, tmp_path):
    create(directory, 1)
    moved = ClusterDirectory(tmp_path / "moved")
    shutil.copytree(directory.path, moved.path)
    shutil.rmtree(directory.path)
    create(directory, 1)
    assert (moved.expect().original, moved.expect().former) == (None, directory.path)


def test_a_copy_beside_its_original_knows_no_process_and_no_address(directory, copy):
    create(directory, 1)
    own = processes.ProcessId(os.getpid(), processes.born_of(os.getpid()))
    record = BrokerRecord(process=own, ready=True, listeners=["PLAINTEXT://127.0.0.1:1"])
    directory.save(ClusterRecord(up=True, brokers={0: record}, id=directory.expect().id))
    shutil.copytree(directory.path, copy.path)
    state = copy.expect()

    assert (state.up, state.brokers, state.original) == (False, {0: BrokerRecord()}, directory.path)
    with pytest.raises(LocalError, match="is a copy of .*odradek clone --dir .*copy makes it"):
        copy.refuse_copy(state)
    directory.refuse_copy(directory.expect())


def test_a_process_that_writes_its_output_elsewhere_is_not_this_directory_s(directory, tmp_path):
    create(directory, 1)
    moved = tmp_path / "moved"
    log = directory.open_log(0)
    with log.open("wb") as output, subprocess.Popen(["sleep", "60"], stdout=output) as process:
        started = processes.ProcessId(process.pid, processes.born_of(process.pid))
        record = BrokerRecord(process=started)
        directory.save(ClusterRecord(up=True, brokers={0: record}))
        assert directory.expect().brokers[0].process == started
        # A copy whose original has then been moved: nothing is at the recorded path.
        copy = ClusterDirectory(tmp_path / "copy")
        shutil.copytree(directory.path, copy.path)
        directory.path.rename(moved)

        assert ClusterDirectory(moved).expect().brokers[0].process == started
        assert copy.expect().brokers[0].process is None
        process.kill()


def test_a_copy_that_was_made_by_other_means_becomes_a_cluster_of_its_own(directory, copy):
    create(directory, 2)
    for broker_id in (0, 1):
        data = directory.broker(broker_id) / "data"
        data.mkdir()
        (data / "meta.properties").write_text("version=0\nbroker.id=0\ncluster.id=old\n")
    make_store(directory, "old")
    shutil.copytree(directory.path, copy.path)
    adopt(copy)

    (own,) = {cluster_id(copy, i) for i in (0, 1)}
    assert own not in ("old", "")
    assert stored_id(copy) == own
    assert stored_id(directory) == "old"
    assert copy.expect().original is None
    assert copy.expect().id != directory.expect().id
    for broker_id in (0, 1):
        old, new = options(directory, broker_id), options(copy, broker_id)
        assert new["log.dirs"] == str(copy.broker(broker_id) / "data")
        assert old["listeners"] != new["listeners"]
    with pytest.raises(LocalError, match="is not a copy"):
        adopt(copy)


def test_what_is_no_copy_keeps_its_ports(directory):
    create(directory, 1)
    before = options(directory, 0)
    with pytest.raises(LocalError, match="is not a copy of a directory that still exists"):
        adopt(directory)
    assert options(directory, 0) == before


def test_a_store_that_was_copied_while_it_was_written_is_refused(directory, copy):
    create(directory, 1)
    make_store(directory, "old")
    shutil.copytree(directory.path, copy.path)
    content = copy.coordination.read_bytes()
    copy.coordination.write_bytes(content[:4096] + bytes(len(content) - 4096))
    with pytest.raises(LocalError, match="was copied while brokers wrote it"):
        adopt(copy)
    assert copy.expect().original == directory.path


@pytest.mark.parametrize(
    ("text", "moved"),
    [
        ("/a/data/x,/a/data", "/b/c/x,/b/c"),
        ("/a/database, /x/a/data", "/a/database, /x/a/data"),
        ('keyTab="/a/data/k" file:/a/data/k;', 'keyTab="/b/c/k" file:/b/c/k;'),
    ],
)
def test_only_whole_paths_are_replaced(text, moved, tmp_path):
    places = {type(tmp_path)("/a/data"): type(tmp_path)("/b/c")}
    assert moved_text(text, places) == moved


def make_store(directory, name):
    """A store that has nothing but the cluster's id."""
    StoreFile(str(directory.coordination)).close()
    with sqlite3.connect(directory.coordination) as connection:
        connection.executemany(
            "INSERT INTO nodes(path, parent, data, version, created_id, modified_id, created_ms, "
            "modified_ms, owner, children_count, creations) VALUES (?,?,?,0,1,1,0,0,0,0,0)",
            [
                ("/cluster", "/", b""),
                (layout.CLUSTER_ID, "/cluster", layout.encode_cluster_id(name)),
            ],
        )


def cluster_id(directory, broker_id):
    return parse((directory.broker(broker_id) / "data" / "meta.properties").read_text())[
        "cluster.id"
    ]


def stored_id(directory):
    with sqlite3.connect(directory.coordination) as connection:
        (data,) = connection.execute(
            "SELECT data FROM nodes WHERE path = ?", (layout.CLUSTER_ID,)
        ).fetchone()
    return json.loads(data)["id"]
