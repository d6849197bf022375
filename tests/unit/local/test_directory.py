"""The cluster's directory: written atomically, read back, refused when it has other files."""

import errno
import os
import signal

import pytest

from odradek.cli.main import run
from odradek.local import directory as directory_module
from odradek.local.directory import (
    BrokerRecord,
    ClusterDirectory,
    ClusterRecord,
    LocalError,
    TargetState,
    replace_text,
)
from odradek.local.processes import ProcessId


def test_what_is_saved_is_loaded(tmp_path):
    state = ClusterRecord(
        up=True,
        brokers={
            0: BrokerRecord(
                wanted=TargetState.RUNNING,
                process=ProcessId(17, "boot:123"),
                ready=True,
                listeners=["PLAINTEXT://127.0.0.1:20000"],
                http="http://127.0.0.1:20001",
            ),
            1: BrokerRecord(),
        },
    )
    directory = ClusterDirectory(tmp_path / "a" / "b")
    directory.save(state)

    assert directory.load() == state
    assert [file.name for file in directory.path.iterdir()] == ["cluster.json"]


def test_an_empty_directory_has_no_cluster(tmp_path):
    assert ClusterDirectory(tmp_path / "none").load() is None
    assert ClusterDirectory(tmp_path).load() is None


def test_a_directory_whose_creation_was_interrupted_is_usable(tmp_path):
    directory = ClusterDirectory(tmp_path)
    with directory.locked():
        directory.broker(0).mkdir()

    assert directory.load() is None


def test_a_directory_of_something_else_is_refused(tmp_path):
    (tmp_path / "thesis.tex").touch()
    with pytest.raises(
        LocalError, match="is not empty and contains no cluster: choose another --dir"
    ):
        ClusterDirectory(tmp_path).load()
    with pytest.raises(LocalError, match="is not a directory"):
        ClusterDirectory(tmp_path / "thesis.tex").load()


@pytest.mark.parametrize("text", ["", "{", '{"format": 1, "up": true}'])
def test_a_damaged_file_is_named(tmp_path, text):
    (tmp_path / "cluster.json").write_text(text)
    with pytest.raises(LocalError, match=r"cluster\.json is damaged"):
        ClusterDirectory(tmp_path).load()


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ('{"format": 2}', r"another version of odradek \(format 2, and this one reads 1\)"),
        ('{"brokers": {}}', "is not written by odradek: choose another --dir"),
        ("[]", "is not written by odradek: choose another --dir"),
    ],
)
def test_what_another_version_or_program_has_written_is_not_called_damaged(
    tmp_path, text, complaint
):
    (tmp_path / "cluster.json").write_text(text)
    with pytest.raises(LocalError, match=complaint) as refused:
        ClusterDirectory(tmp_path).load()
    assert "damaged" not in str(refused.value)


def test_the_lock_is_exclusive(tmp_path, monkeypatch):
    monkeypatch.setattr(directory_module, "LOCK_WAIT_S", 0.05)
    directory = ClusterDirectory(tmp_path)
    other = ClusterDirectory(tmp_path)
    with directory.locked(), pytest.raises(LocalError, match="another odradek command"):
        other.locked().__enter__()
    with other.locked():
        pass


def test_a_large_log_is_rotated(tmp_path, monkeypatch):
    monkeypatch.setattr(directory_module, "LOG_BYTES_MAX", 10)
    directory = ClusterDirectory(tmp_path)
    directory.open_log(0).write_text("0123456789")
    assert directory.open_log(0).read_text() == "0123456789"

    directory.log(0).write_text("0123456789 and more")
    assert not directory.open_log(0).exists()
    assert (tmp_path / "logs" / "broker-0.log.1").read_text() == "0123456789 and more"


def test_a_write_that_fails_names_the_file_and_leaves_the_former_one(tmp_path, monkeypatch):
    def full(_descriptor):
        raise OSError(errno.ENOSPC, "No space left on device")

    file = tmp_path / "file"
    file.write_text("former")
    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(OSError, match="No space left on device") as failed:
        replace_text(file, "new")

    assert failed.value.filename == str(file)
    assert [each.name for each in tmp_path.iterdir()] == ["file"]
    assert file.read_text() == "former"


def test_a_command_that_cannot_write_says_where_and_what_to_do(tmp_path, monkeypatch, capsys):
    def full(_descriptor):
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    monkeypatch.setattr(signal, "signal", lambda *_: None)  # `up` replaces handlers
    assert run(["up", "--detach", "--dir", str(tmp_path / "D")]) == 1
    assert capsys.readouterr().err == (
        f"odradek: {tmp_path}/D/broker-0/server.properties: No space left on device: "
        "free space on its file system, then repeat the command\n"
    )
