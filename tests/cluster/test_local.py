"""The supervisor with real processes, which are fake brokers that start quickly."""

import contextlib
import errno
import json
import os
import pathlib
import shutil
import signal
import socket
import subprocess
import sys
import threading
from functools import partial

import pytest

from odradek.local import directory as directory_module
from odradek.local import processes
from odradek.local.client_files import ClientFiles
from odradek.local.copies import clone
from odradek.local.directory import ClusterDirectory, LocalError
from odradek.local.options import UpOptions, amend
from odradek.local.supervisor import Supervisor

FAKE = (sys.executable, str(pathlib.Path(__file__).with_name("support") / "fake_broker.py"))


def supervisor(tmp_path, text, **timeouts):
    return Supervisor(
        ClusterDirectory(tmp_path / "D"),
        say=text.append,
        program=FAKE,
        **{"start_timeout_s": 20.0, "stop_timeout_s": 20.0, **timeouts},
    )


@pytest.fixture
def cluster(tmp_path):
    """A supervisor of fake brokers, which are ended after the test."""
    text: list[str] = []
    made = supervisor(tmp_path, text)
    made.messages = text
    yield made
    with contextlib.suppress(LocalError):
        made.kill_all()


def states(cluster):
    return [broker["state"] for broker in cluster.status()["brokers"]]


def pids(cluster):
    return [broker["pid"] for broker in cluster.status()["brokers"]]


def test_up_starts_every_broker_and_down_stops_them(cluster):
    cluster.up(UpOptions(brokers=3))
    report = cluster.status()

    assert [broker["state"] for broker in report["brokers"]] == ["running"] * 3
    assert report["bootstrap"].count(",") == 2
    assert f"PLAINTEXT://{report['bootstrap'].split(',')[2]}" in report["brokers"][2]["listeners"]
    assert report["http"].startswith("http://127.0.0.1:")
    pid = report["brokers"][0]["pid"]

    cluster.down()

    assert states(cluster) == ["stopped"] * 3
    assert pids(cluster) == [None] * 3
    with pytest.raises(ProcessLookupError):
        os.kill(pid, 0)


def test_a_cluster_that_comes_up_again_keeps_its_ports(cluster):
    cluster.up(UpOptions(brokers=2))
    bootstrap = cluster.status()["bootstrap"]
    cluster.down()
    cluster.up(UpOptions())

    assert cluster.status()["bootstrap"] == bootstrap
    assert states(cluster) == ["running", "running"]


def test_a_second_up_in_one_directory_is_refused(cluster):
    cluster.up(UpOptions())
    before = pids(cluster)

    with pytest.raises(LocalError, match=f"broker 0 is pid {before[0]}.*odradek down"):
        cluster.up(UpOptions())
    assert pids(cluster) == before


def test_brokers_are_added_to_a_cluster_that_runs(cluster):
    cluster.up(UpOptions(brokers=1))
    before = pids(cluster)
    assert cluster.add(2) == [1, 2]
    cluster.up(UpOptions(brokers=4))

    assert states(cluster) == ["running"] * 4
    assert pids(cluster)[:1] == before
    assert "added to the 1 broker of this directory: 1, 2; replicas" in cluster.messages[0]
    assert "added to the 3 brokers of this directory: 3; replicas" in cluster.messages[1]


def test_up_with_more_brokers_than_there_were_adds_them(cluster):
    cluster.up(UpOptions(brokers=2))
    cluster.down()
    with pytest.raises(LocalError, match="no broker of .* runs: odradek up --brokers 3"):
        cluster.add()
    cluster.up(UpOptions(brokers=3))

    assert states(cluster) == ["running"] * 3
    assert "added to the 2 brokers of this directory: 2; replicas" in cluster.messages[0]


def test_no_more_brokers_are_added_than_a_directory_may_have(cluster):
    cluster.up(UpOptions())
    with pytest.raises(LocalError, match="must be from 1 to 100"):
        cluster.add(100)
    assert states(cluster) == ["running"]


def test_a_cluster_is_copied_when_it_does_not_run(cluster, tmp_path):
    cluster.up(UpOptions(brokers=2))
    copy = ClusterDirectory(tmp_path / "copy")
    with pytest.raises(LocalError, match="broker 0 of .* runs.*odradek down"):
        clone(ClusterDirectory(tmp_path / "D"), copy)
    cluster.kill(0)
    cluster.down()
    clone(ClusterDirectory(tmp_path / "D"), copy)
    other = Supervisor(copy, say=print, program=FAKE)
    try:
        cluster.up(UpOptions())
        other.up(UpOptions())
        assert not set(other.status()["bootstrap"].split(",")) & set(
            cluster.status()["bootstrap"].split(",")
        )
    finally:
        other.kill_all()


def test_a_copy_neither_starts_nor_stops_brokers_beside_its_original(cluster, tmp_path):
    cluster.up(UpOptions(brokers=2))
    before = pids(cluster)
    shutil.copytree(tmp_path / "D", tmp_path / "copy")
    copy = Supervisor(ClusterDirectory(tmp_path / "copy"), say=print, program=FAKE)

    acts = (
        copy.down, copy.add, partial(copy.up, UpOptions()), partial(copy.start, 0),
        partial(copy.stop, 0), partial(copy.kill, 1), partial(copy.pause, 1),
    )  # fmt: skip
    for act in acts:
        with pytest.raises(LocalError, match="is a copy of .*odradek clone --dir"):
            act()
    copy.kill_all()
    assert (states(copy), copy.status()["bootstrap"]) == (["stopped"] * 2, "")
    assert (states(cluster), pids(cluster)) == (["running"] * 2, before)


def test_a_cluster_whose_directory_is_moved_while_it_runs_is_stopped_and_starts_there(
    cluster, tmp_path
):
    cluster.up(UpOptions(brokers=2))
    before = pids(cluster)
    (tmp_path / "D").rename(tmp_path / "moved")
    moved = Supervisor(ClusterDirectory(tmp_path / "moved"), say=print, program=FAKE)
    with pytest.raises(LocalError, match=f"broker 0 is pid {before[0]}"):
        moved.up(UpOptions())
    moved.down()
    try:
        moved.up(UpOptions())
        report = moved.status()["brokers"]
        assert report[1]["log_dirs"] == [str(tmp_path / "moved" / "broker-1" / "data")]
        assert not set(before) & set(pids(moved))
    finally:
        moved.kill_all()
    assert not (tmp_path / "D").exists()


def test_brokers_are_stopped_and_killed_on_a_full_file_system(cluster, monkeypatch):
    cluster.up(UpOptions(brokers=3))

    def full(file, text, *, is_secret=False):
        raise OSError(errno.ENOSPC, "No space left on device", str(file))

    def no_lock(self):
        raise OSError(errno.EROFS, "Read-only file system", "cluster.lock")

    monkeypatch.setattr(directory_module, "replace_text", full)
    cluster.kill(0)
    cluster.stop(1)
    monkeypatch.setattr(ClusterDirectory, "locked", no_lock)
    cluster.down()

    assert pids(cluster) == [None] * 3
    assert len(cluster.messages) == 3
    assert "No space left on device: this command is carried out and not" in cluster.messages[0]


def test_a_broker_that_cannot_be_recorded_does_not_run(cluster, monkeypatch, tmp_path):
    cluster.up(UpOptions())
    cluster.down()
    saves, started = [], []
    replace_text, start = directory_module.replace_text, processes.start

    def full_after_one(file, text, **how):
        saves.append(file)
        if len(saves) > 1:
            raise OSError(errno.ENOSPC, "No space left on device", str(file))
        replace_text(file, text, **how)

    def noted(*words, **how):
        started.append(start(*words, **how))
        return started[-1]

    monkeypatch.setattr(directory_module, "replace_text", full_after_one)
    monkeypatch.setattr(processes, "start", noted)
    with pytest.raises(OSError, match="No space left"):
        cluster.start(0)
    assert [processes.is_alive(process) for process in started] == [False]


def test_a_port_in_use_is_found_before_a_process_is_started_and_its_holder_named(cluster, tmp_path):
    with socket.create_server(("127.0.0.1", 0)) as holder:
        port = holder.getsockname()[1]
        with pytest.raises(LocalError, match=f"broker 0 cannot listen at port {port} of 127.0.0.1"):
            cluster.up(UpOptions(port=port))
        assert not (tmp_path / "D" / "broker-0").exists()
        cluster.up(UpOptions())
        cluster.stop(0)
        file = ClusterDirectory(tmp_path / "D").properties_file(0)
        file.write_text(amend(file.read_text(), {"odradek.http.port": str(port)}))
        with pytest.raises(LocalError, match=f"port {port} .*pid {os.getpid()} "):
            cluster.start(0)
    cluster.start(0)
    assert states(cluster) == ["running"]


def test_a_wrong_value_is_found_before_a_process_is_started_and_not_stored(cluster, tmp_path):
    with pytest.raises(LocalError, match="broker 0: .*log.segment.bytes"):
        cluster.up(UpOptions(properties={"log.segment.bytes": "3"}))
    assert not (tmp_path / "D" / "logs").exists()
    cluster.up(UpOptions(brokers=2))
    assert states(cluster) == ["running"] * 2


def test_two_concurrent_ups_create_one_cluster(cluster, tmp_path):
    other = Supervisor(ClusterDirectory(tmp_path / "D"), say=print, program=FAKE)
    outcomes = []

    def up(supervisor):
        try:
            supervisor.up(UpOptions())
            outcomes.append("up")
        except LocalError as error:
            outcomes.append(str(error))

    threads = [threading.Thread(target=up, args=(s,)) for s in (cluster, other)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    outcomes.sort(key=len)
    assert outcomes[0] == "up"
    assert "a cluster runs in" in outcomes[1]


def test_a_killed_broker_is_started_again_where_it_was(cluster):
    cluster.up(UpOptions(brokers=2))
    before = cluster.status()["brokers"]
    cluster.kill(0)

    assert states(cluster) == ["killed", "running"]

    cluster.start(0)
    after = cluster.status()["brokers"]

    assert states(cluster) == ["running", "running"]
    assert after[0]["listeners"] == before[0]["listeners"]
    assert after[0]["pid"] != before[0]["pid"]
    assert after[1] == before[1]


def test_a_paused_broker_continues_when_resumed(cluster):
    cluster.up(UpOptions())
    cluster.pause(0)
    assert states(cluster) == ["paused"]

    cluster.resume(0)
    assert states(cluster) == ["running"]


def test_a_paused_broker_can_be_stopped(cluster):
    cluster.up(UpOptions())
    cluster.pause(0)
    cluster.stop(0)

    assert states(cluster) == ["stopped"]


def test_restart_gives_a_new_process(cluster):
    cluster.up(UpOptions())
    before = pids(cluster)
    cluster.restart(0)

    assert states(cluster) == ["running"]
    assert pids(cluster) != before


def test_a_broker_that_ends_at_start_is_reported_with_its_log_and_the_others_are_stopped(cluster):
    with pytest.raises(LocalError, match=r"(?s)broker \d ended while.*says hello.*no space left"):
        cluster.up(UpOptions(brokers=2, properties={"fake.dies": "no space left"}))

    assert pids(cluster) == [None, None]


def test_a_broker_that_never_serves_is_reported(cluster, tmp_path):
    hasty = supervisor(tmp_path, [], start_timeout_s=0.3)
    with pytest.raises(LocalError, match=r"broker 0 did not serve within 0 s: see .*broker-0.log"):
        hasty.up(UpOptions(properties={"fake.mute": "true"}))

    assert pids(cluster) == [None]


def test_a_broker_that_does_not_stop_is_killed_by_down_and_reported(cluster, tmp_path):
    cluster.up(UpOptions(properties={"fake.stubborn": "true"}))
    text: list[str] = []
    hasty = supervisor(tmp_path, text, stop_timeout_s=0.1)
    with pytest.raises(LocalError, match=r"did not stop.*odradek kill 0"):
        hasty.stop(0)
    hasty.down()

    assert text == ["broker 0 did not stop in 0 s: killed"]
    assert pids(cluster) == [None]


def test_a_pid_that_was_given_to_another_process_is_not_signalled(cluster, tmp_path):
    cluster.up(UpOptions())
    cluster.kill(0)
    with subprocess.Popen(["sleep", "60"]) as stranger:
        file = tmp_path / "D" / "cluster.json"
        state = json.loads(file.read_text())
        state["brokers"]["0"]["pid"] = stranger.pid
        file.write_text(json.dumps(state))

        for act in (cluster.kill, cluster.stop, cluster.pause, cluster.resume):
            with pytest.raises(LocalError, match="broker 0 does not run"):
                act(0)
        cluster.down()
        cluster.kill_all()

        assert stranger.poll() is None
        assert not processes.is_paused(processes.ProcessId(stranger.pid, ""))
        stranger.kill()


def test_watch_reports_a_crash_with_the_log_and_ends_with_the_last_broker(cluster):
    cluster.up(UpOptions())
    os.kill(pids(cluster)[0], signal.SIGKILL)

    with pytest.raises(LocalError, match="no broker is left"):
        cluster.watch()
    assert "broker 0 died" in cluster.messages[0]
    assert "broker 0 says hello" in cluster.messages[0]
    assert states(cluster) == ["crashed"]


def test_watch_ends_when_the_cluster_is_taken_down_elsewhere(cluster):
    cluster.up(UpOptions(brokers=2))
    watcher = threading.Thread(target=cluster.watch)
    watcher.start()
    cluster.kill(1)  # by a command: not reported as a crash
    cluster.down()
    watcher.join(20)

    assert not watcher.is_alive()
    assert cluster.messages == []


def test_a_missing_cluster_or_broker_is_named(cluster, tmp_path):
    with pytest.raises(
        LocalError, match=r"there is no cluster in .*/D: create one with odradek up"
    ):
        cluster.status()
    assert not (tmp_path / "D").exists()

    cluster.up(UpOptions(brokers=2))
    with pytest.raises(LocalError, match=r"there is no broker 7 in .*/D: 0, 1"):
        cluster.kill(7)
    with pytest.raises(LocalError, match="broker 1 runs already"):
        cluster.start(1)
    cluster.down()
    with pytest.raises(LocalError, match="--brokers 1: the cluster in this directory has 2"):
        cluster.up(UpOptions(brokers=1))


def test_a_broker_that_is_added_to_a_secure_cluster_gets_a_certificate(cluster, tmp_path):
    pytest.importorskip("cryptography", reason="the extra `secure`")
    cluster.up(UpOptions(secure=True))
    cluster.add()

    addresses = cluster.status()["bootstrap"]
    assert (tmp_path / "D" / "secrets" / "broker-1.pem").exists()
    assert cluster.status()["brokers"][1]["listeners"][0].startswith("SASL_SSL://")
    assert (
        f"bootstrap.servers={addresses}"
        in (tmp_path / "D" / "clients" / "app.librdkafka.properties").read_text()
    )


def test_the_clients_of_a_secure_cluster_find_it_after_it_has_moved(cluster, tmp_path):
    pytest.importorskip("cryptography", reason="the extra `secure`")
    files = ClientFiles(tmp_path / "D" / "clients")
    cluster.up(UpOptions(brokers=2, secure=True))
    former = cluster.status()["bootstrap"]

    assert f"bootstrap.servers={former}\n" in files.java("app").read_text()
    cluster.down()
    cluster.up(UpOptions(host="localhost"))
    bootstrap = cluster.status()["bootstrap"]

    assert bootstrap != former
    assert f"bootstrap.servers={bootstrap}\n" in files.java("app").read_text()
    assert f"bootstrap.servers={bootstrap}\n" in files.librdkafka("admin").read_text()
    (listener,) = cluster.status()["brokers"][1]["listeners"]
    assert listener.startswith("SASL_SSL://localhost:")


def test_a_broker_of_a_secure_cluster_that_starts_gets_a_certificate_that_is_missing(
    cluster, tmp_path
):
    pytest.importorskip("cryptography", reason="the extra `secure`")
    cluster.up(UpOptions(secure=True))
    cluster.stop(0)
    certificate = tmp_path / "D" / "secrets" / "broker-0.pem"
    certificate.unlink()
    cluster.start(0)

    assert certificate.read_text().count("BEGIN CERTIFICATE") == 2
