"""The shell on a store: its output and its errors."""

import asyncio
import io
import sys

import pytest

import odradek.cli.kafka.server_start as kafka_server_start
from odradek.cli.kafka import server_stop, zookeeper_shell
from odradek.cli.kafka.tool import run_tool
from odradek.cli.kafka.zookeeper_shell import (
    Shell,
    ShellWatches,
    access_entries,
    client_config,
    words_of,
)
from odradek.coord.memory import MemoryStore, MemoryTree
from odradek.coord.store import Access
from odradek.sim.world.loop import run


def play(*commands):
    """What a shell does with commands, one after the other: whether each worked."""

    async def story():
        store = MemoryStore(MemoryTree())
        await store.open()
        await store.create("/brokers/ids", b"x", make_parents=True)
        await store.create("/brokers/topics")
        shell = Shell(store)
        return [await shell.run(command.split()) for command in commands]

    return run(story())


def test_nodes_are_listed_and_read_as_zookeeper_prints_them(capsys):
    worked = play(
        "ls /", "ls /brokers", "get /brokers/ids", "get /brokers/topics", "ls -R /brokers"
    )

    assert worked == [True] * 5
    assert capsys.readouterr().out.splitlines() == [
        "[brokers]",
        "[ids, topics]",
        "x",
        "null",
        "/brokers",
        "/brokers/ids",
        "/brokers/topics",
    ]


def test_watches_are_printed_when_they_fire_once_for_each_event(capsys):
    async def story():
        store = MemoryStore(MemoryTree())
        await store.open()
        shell = Shell(store)
        shell.watches = ShellWatches(store)
        async with asyncio.TaskGroup() as tasks:
            printing = tasks.create_task(shell.watches.print_fired())
            for command in (
                "create /x 1", "get -w /x", "get -w /x", "set /x 2", "set /x 3",
                "ls -w /x", "create /x/y", "stat -w /z", "create /z", "get -w /z", "ls -w /z",
                "delete /z",
            ):  # fmt: skip
                await shell.run(command.split())
                await asyncio.sleep(1)  # simulated: what has fired is printed
            printing.cancel()

    run(story())
    text = capsys.readouterr().out
    assert "\nWATCHER::\n\nWatchedEvent state:SyncConnected type:NodeDataChanged path:/x\n" in text
    assert [line.split("type:")[1] for line in text.splitlines() if "type:" in line] == [
        "NodeDataChanged path:/x",
        "NodeChildrenChanged path:/x",
        "NodeCreated path:/z",
        "NodeDeleted path:/z",
    ]


def test_acls_are_printed_as_zookeepers_shell_prints_them(capsys):
    worked = play("getAcl /brokers", "getAcl /nope", "getAcl -s /brokers/ids", "ls -w /")

    assert worked == [True, False, True, True]
    text = capsys.readouterr()
    assert text.out.splitlines()[:2] == ["'world,'anyone", ": cdrwa"]
    assert "cZxid" in text.out
    assert text.err == "Node does not exist: /nope\n"


def test_nodes_are_made_written_and_removed(capsys):
    worked = play(
        "create /a one",
        "set /a two",
        "get /a",
        "create -s /a/n-",
        "delete -v 7 /a/n-0000000000",
        "delete /a",
        "deleteall /a",
        "ls /",
    )

    assert worked == [True, True, True, True, False, False, True, True]
    text = capsys.readouterr()
    assert text.out.splitlines() == ["two", "[brokers]"]
    assert text.err.splitlines() == [
        "Created /a",
        "Created /a/n-0000000000",
        "version No is not valid : /a/n-0000000000",
        "Node not empty: /a",
    ]


def test_a_stat_has_zookeepers_lines(capsys):
    assert play("stat /brokers/ids") == [True]
    keys = [line.partition(" = ")[0] for line in capsys.readouterr().out.splitlines()]

    assert keys == [
        "cZxid", "ctime", "mZxid", "mtime", "cversion", "dataVersion", "ephemeralOwner",
        "dataLength", "numChildren",
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("command", "complaint"),
    [
        ("get /nope", "Node does not exist: /nope"),
        ("create /brokers", "Node already exists: /brokers"),
        ("frob /", "Command not found: Command not found frob"),
        ("ls", "ls [-s] [-w] [-R] path"),
        ("ls -x /", "Unrecognized option: -x"),
        ("ls brokers", "Path must start with / character"),
        ("delete -v x /brokers", "must be a number"),
    ],
)
def test_errors_are_printed_on_stderr(capsys, command, complaint):
    assert play(command) == [False]
    assert complaint in capsys.readouterr().err


def test_a_file_that_is_not_a_store_is_refused(tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)

    assert run_tool("zookeeper-shell", ["nowhere", "ls", "/"]) == 1
    complaint = "nowhere: must be host:port of a ZooKeeper, or the directory of a cluster"
    assert complaint in capsys.readouterr().err
    assert zookeeper_shell.main([]) == 1
    assert "USAGE" in capsys.readouterr().out


def test_the_embedded_store_is_spoken_to_line_by_line(tmp_path, capsys, monkeypatch):
    file = tmp_path / "coordination.db"
    file.touch()
    monkeypatch.setattr(sys, "stdin", io.StringIO("create /a one\nget /a\n\n'\nquit\nls /\n"))

    assert zookeeper_shell.main([str(tmp_path)]) == 0
    text = capsys.readouterr()
    assert text.out.splitlines() == [
        f"Connecting to {tmp_path}",
        "Welcome to ZooKeeper!",
        "JLine support is disabled",
        "",
        "WATCHER::",
        "",
        "WatchedEvent state:SyncConnected type:None path:null",
        "one",
        "",
        "WATCHER::",
        "",
        "WatchedEvent state:Closed type:None path:null",
    ]
    assert text.err == "Created /a\n"


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ('set /a {"version":1}', ["set", "/a", '{"version":1}']),
        ("""create /a '{"a": 1, "b": "c"}'""", ["create", "/a", '{"a": 1, "b": "c"}']),
        ('set /a {"a": "b c"}', ["set", "/a", '{"a":', "b c", "}"]),
        ("""  set   "/a b"  ''  """, ["set", "/a b", ""]),
        ('set /a b"c d"', ["set", "/a", 'b"c', 'd"']),
        ('set /a "a""b"c', ["set", "/a", "a", "b", "c"]),
        ('set /a "open word', ["set", "/a", "open", "word"]),
        (r"set /a back\slash\n", ["set", "/a", r"back\slash\n"]),
    ],
)
def test_a_typed_line_has_the_words_that_zookeeper_finds(line, words):
    # Apache ZooKeeper 3.8.4 stored these words when it was piped such lines.
    assert words_of(line) == words


def test_json_is_stored_with_its_quotes_as_it_was_typed(tmp_path, capsys, monkeypatch):
    (tmp_path / "coordination.db").touch()
    text = '{"version":1,"config":{"retention.ms":"5"}}'
    typed = f"create /a {text}\nget /a\nset /a '{text} '\r\nget /a\n"
    monkeypatch.setattr(sys, "stdin", io.StringIO(typed))

    assert zookeeper_shell.main([str(tmp_path)]) == 0
    assert capsys.readouterr().out.splitlines()[-2:] == [text, f"{text} "]


def test_the_scripts_of_servers_print_their_usage(capsys):
    assert kafka_server_start.main([]) == 1
    assert "USAGE: kafka-server-start [-daemon] server.properties" in capsys.readouterr().out
    assert kafka_server_start.main(["a.properties", "--help"]) == 1
    assert kafka_server_start.main(["--version"]) == 0
    assert "\n3.9.2 (Odradek " in capsys.readouterr().out
    assert kafka_server_start.main(["-daemon", "nowhere.properties"]) == 1
    assert "nowhere.properties: no such file" in capsys.readouterr().err
    assert server_stop.main(["--frob"]) == 1
    assert server_stop.main(["--broker-id", "no such id"]) == 1
    assert "No kafka server to stop" in capsys.readouterr().out


def test_an_acl_is_read_as_it_is_typed(capsys):
    assert access_entries("world:anyone:r,digest:bob:aGFzaA==:cdrwa") == [
        Access("world", "anyone", "r"),
        Access("digest", "bob:aGFzaA==", "cdrwa"),
    ]
    assert access_entries("nonsense") == []
    access_entries("world:anyone:rx")
    assert capsys.readouterr().err.splitlines() == [
        "nonsense does not have the form scheme:id:perm",
        "Unknown perm type: x",
    ]


def test_the_ensemble_as_clients_name_it():
    text = (
        "server.1=alpha:2888:3888:participant;0.0.0.0:2181\n"
        "server.2=beta:2888:3888:participant;0.0.0.0:2182\nversion=100000000"
    )
    assert client_config(text) == "100000000 0.0.0.0:2181,0.0.0.0:2182"
    assert client_config("") == " "


def test_what_only_zookeeper_has_is_answered_for_the_embedded_store(capsys):
    worked = play(
        "whoami", "sync /brokers", "config", "config -c", "setAcl /brokers world:anyone:r",
        "setAcl /brokers nonsense", "setAcl /brokers", "sync",
    )  # fmt: skip

    assert worked == [True, True, True, True, False, False, False, False]
    printed = capsys.readouterr()
    assert printed.out.splitlines() == [
        "Auth scheme: User", "world: anyone", "Sync is OK", "", " ",
    ]  # fmt: skip
    assert printed.err.splitlines() == [
        "/brokers: the embedded store has no ACLs, the file's mode decides",
        "nonsense does not have the form scheme:id:perm",
        "Acl is not valid : null",
        "setAcl [-s] [-v version] [-R] path acl",
        "sync path",
    ]
