"""`kafka-configs --zookeeper` on an embedded store, before the first broker runs."""

import stat

import pytest

from odradek.cli.kafka.tool import run_tool

USERS = ["--entity-type", "users"]


def alter(where, credential, user="admin"):
    change = ["--alter", "--add-config", credential, "--entity-name", user]
    return run_tool("configs", ["--zookeeper", str(where), *USERS, *change])


@pytest.fixture
def where(tmp_path):
    return tmp_path / "coordination.db"


def test_the_first_user_is_stored_in_a_new_file(where, capsys):
    assert alter(where, "SCRAM-SHA-256=[iterations=8192,password=a,b=c]") == 0
    assert stat.S_IMODE(where.stat().st_mode) == 0o600
    assert "Completed updating config for entity: user-principal 'admin'." in (
        capsys.readouterr().out
    )
    assert run_tool("configs", ["--zookeeper", str(where.parent), *USERS, "--describe"]) == 0
    described = capsys.readouterr().out
    assert "Configs for user-principal 'admin' are SCRAM-SHA-256=salt=" in described
    assert described.rstrip().endswith(",iterations=8192")


@pytest.mark.parametrize("words", [["--describe"], ["--describe", "--entity-name", "admin"]])
def test_describing_creates_no_file(where, words, capsys):
    assert run_tool("configs", ["--zookeeper", str(where), *USERS, *words]) == 1
    assert "before the first broker runs, the file of odradek.store.path" in capsys.readouterr().err
    assert not where.exists()


def test_a_directory_without_a_store_is_refused(tmp_path, capsys):
    assert alter(tmp_path, "SCRAM-SHA-256=[password=a]") == 1
    assert "the file of odradek.store.path" in capsys.readouterr().err
    assert alter(tmp_path / "nowhere" / "coordination.db", "SCRAM-SHA-256=[password=a]") == 1
    assert list(tmp_path.iterdir()) == []


def test_a_credential_that_our_brokers_refuse_is_stored_with_a_warning(where, capsys):
    assert alter(where, "SCRAM-SHA-512=[iterations=16384,password=a]") == 0
    assert "refuse" not in capsys.readouterr().err
    assert alter(where, "SCRAM-SHA-512=[iterations=16385,password=a]") == 0
    assert "refuse a credential of 16385 iterations" in capsys.readouterr().err
