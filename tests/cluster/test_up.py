"""`odradek` as its users run it, with real brokers."""

import asyncio
import json
import os
import signal
import socket
import subprocess
import sys

import pytest

from odradek.client.cluster import Cluster
from odradek.config.properties import parse
from odradek.wire.messages.create_topics import (
    CreatableTopic,
    CreateTopicsRequest,
    CreateTopicsResponse,
)

ODRADEK = (sys.executable, "-m", "odradek")


def odradek(*arguments, expect=0):
    done = subprocess.run(
        [*ODRADEK, *map(str, arguments)], capture_output=True, text=True, check=False, timeout=60
    )
    assert done.returncode == expect, done
    return done


def status(path):
    return json.loads(odradek("status", "--json", "--dir", path).stdout)


@pytest.fixture
def path(tmp_path):
    yield tmp_path / "D"
    if (tmp_path / "D" / "cluster.json").exists():
        odradek("down", "--dir", tmp_path / "D")


def topics(bootstrap):
    async def ask():
        async with await Cluster.bootstrap(bootstrap) as cluster:
            return [topic.name for topic in (await cluster.refresh(None)).topics]

    return asyncio.run(ask())


def create(bootstrap, name, partitions=1, replication_factor=1):
    async def ask():
        async with await Cluster.bootstrap(bootstrap) as cluster:
            topic = CreatableTopic(
                name=name, num_partitions=partitions, replication_factor=replication_factor
            )
            request = CreateTopicsRequest(topics=[topic])
            answer = await (await cluster.controller()).request(request, CreateTopicsResponse)
            assert answer.topics[0].error_code == 0

    asyncio.run(ask())


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_in_the_foreground_a_signal_stops_all_cleanly(path, number):
    with subprocess.Popen(
        [*ODRADEK, "up", "--dir", path], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as up:
        bootstrap = up.stdout.readline().strip()
        assert status(path)["bootstrap"] == bootstrap
        assert topics(bootstrap) == []
        up.send_signal(number)
        output = up.communicate(timeout=60)[1]

    assert up.returncode == 0
    assert output.splitlines()[-2:] == ["connect to:", "stopping; once more to kill"]
    (broker,) = status(path)["brokers"]
    assert (broker["state"], broker["pid"]) == ("stopped", None)
    assert "stopping" in (path / "logs" / "broker-0.log").read_text()


def test_auto_starts_a_broker_for_each_core(path):
    program = (
        "import os, runpy; os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[:1]); "
        "runpy.run_module('odradek', run_name='__main__')"
    )
    command = [sys.executable, "-c", program, "up", "--brokers", "auto", "--detach", "--dir", path]
    done = subprocess.run(command, capture_output=True, text=True, check=True, timeout=60)

    assert done.stderr.startswith("--brokers auto: 1, because 1 core can be used\n")
    assert len(status(path)["brokers"]) == 1
    written = parse((path / "broker-0" / "server.properties").read_text())
    assert written["broker.rack"] == socket.gethostname()


def test_brokers_must_be_a_number_or_auto(path):
    refused = odradek("up", "--brokers", "many", "--dir", path, expect=1)
    assert "'many' is not a number, nor auto for one broker for each core" in refused.stderr


def test_racks_set_the_number_of_brokers(path):
    up = odradek("up", "--detach", "--racks", "a,b", "--dir", path)
    where = ["--bootstrap-server", up.stdout.strip()]
    nodes = odradek("cluster", "list-endpoints", *where).stdout.splitlines()[1:]
    assert [line.split()[3] for line in nodes] == ["a", "b"]


def test_a_detached_cluster_stays_and_every_command_finds_it(path):
    bootstrap = odradek("up", "--detach", "--dir", path).stdout.strip()
    create(bootstrap, "t")
    refused = odradek("up", "--detach", "--dir", path, expect=1)
    assert "a cluster runs in" in refused.stderr

    for verb, state in [
        ("pause", "paused"), ("resume", "running"), ("kill", "killed"), ("start", "running"),
        ("stop", "stopped"), ("restart", "running"), ("restart", "running"),
    ]:  # fmt: skip
        odradek(verb, 0, "--dir", path)
        assert status(path)["brokers"][0]["state"] == state
    assert topics(bootstrap) == ["t"]

    odradek("down", "--dir", path)
    assert status(path)["brokers"][0]["state"] == "stopped"
    assert odradek("up", "--detach", "--dir", path).stdout.strip() == bootstrap
    assert topics(bootstrap) == ["t"]


def test_a_cluster_grows_and_is_copied(path, tmp_path):
    first = odradek("up", "--detach", "--dir", path).stdout.strip()
    create(first, "t", partitions=4)
    added = odradek("add", "--rebalance", "--dir", path)
    bootstrap, _, rest = added.stdout.partition("\n")
    assert bootstrap.startswith(f"{first},")
    assert "2 partitions change" in rest
    assert f"odradek plan rebalance --execute --dir {path}" in added.stderr
    create(bootstrap, "of-two", replication_factor=2)

    odradek("down", "--dir", path)
    copy = tmp_path / "copy"
    assert f"odradek up --dir {copy}" in odradek("clone", copy, "--dir", path).stderr
    odradek("up", "--detach", "--dir", path)
    try:
        other = odradek("up", "--detach", "--dir", copy).stdout.strip()
        create(other, "u")
        assert sorted(topics(other)) == ["of-two", "t", "u"]
        assert sorted(topics(bootstrap)) == ["of-two", "t"]
    finally:
        odradek("down", "--dir", copy)


def test_up_with_more_brokers_adds_them_to_a_cluster_that_runs_or_does_not(path):
    first = odradek("up", "--detach", "--dir", path).stdout.strip()
    create(first, "t")

    running = odradek("up", "--brokers", 2, "--detach", "--dir", path)
    assert "added to the 1 broker of this directory: 1; replicas of" in running.stderr
    assert [broker["state"] for broker in status(path)["brokers"]] == ["running"] * 2
    odradek("down", "--dir", path)
    stopped = odradek("up", "--brokers", 4, "--detach", "--dir", path)
    assert "added to the 2 brokers of this directory: 2, 3; replicas of" in stopped.stderr
    assert [broker["state"] for broker in status(path)["brokers"]] == ["running"] * 4
    assert topics(stopped.stdout.strip()) == ["t"]


def test_options_reach_the_broker_and_invalid_ones_are_reported(path):
    wrong = odradek("up", "--detach", "--dir", path, "--", "log.segment.bytes=3", expect=1)
    assert "odradek: broker 0: Invalid value 3 for configuration log.segment.bytes" in wrong.stderr
    assert not (path / "logs").exists()

    odradek("up", "--detach", "--dir", path, "--", "log.segment.bytes=4096", "log.dirs=a,b")
    home = path / "broker-0"
    assert status(path)["brokers"][0]["log_dirs"] == [str(home / "a"), str(home / "b")]
    assert (home / "a" / "meta.properties").is_file()
    assert (home / "b" / "meta.properties").is_file()


def test_a_port_in_use_is_reported(path):
    odradek("up", "--detach", "--dir", path)
    port = status(path)["bootstrap"].rpartition(":")[2]
    second = path.with_name("second")
    refused = odradek("up", "--detach", "--dir", second, "--port", port, expect=1)

    holder = status(path)["brokers"][0]["pid"]
    assert f"broker 0 cannot listen at port {port} of 127.0.0.1: pid {holder} (" in refused.stderr
    assert not (second / "broker-0").exists()


def test_server_start_runs_one_broker_and_sigterm_ends_it_with_0(tmp_path):
    file = tmp_path / "server.properties"
    file.write_text(f"broker.id=7\nlisteners=PLAINTEXT://127.0.0.1:0\nlog.dirs={tmp_path}/none\n")
    ready, theirs = os.pipe()
    command = [*ODRADEK, "server-start", file, "--ready-fd", str(theirs)]
    override = ["--override", f"log.dirs={tmp_path / 'data'}"]
    with (
        (tmp_path / "log").open("w") as log,
        subprocess.Popen([*command, *override], pass_fds=(theirs,), stderr=log) as broker,
    ):
        os.close(theirs)
        with open(ready) as pipe:
            (listener,) = json.loads(pipe.readline())["listeners"]
        assert topics(listener.removeprefix("PLAINTEXT://")) == []
        broker.terminate()
        assert broker.wait(60) == 0
    assert (tmp_path / "data" / "meta.properties").is_file()
    assert not (tmp_path / "none").exists()


def test_the_small_demo_succeeds_and_leaves_nothing(tmp_path, monkeypatch):
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    done = odradek("demo", "--small")

    assert "every record is there, in order, byte for byte" in done.stderr
    assert "100,000 records" in done.stdout
    assert max(map(len, (done.stdout + done.stderr).splitlines())) <= 80
    assert list(tmp_path.iterdir()) == []
