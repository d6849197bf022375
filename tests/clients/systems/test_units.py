"""The units of deploy/systemd as they are, started by the systemd of an empty Debian.

Odradek is installed there as docs/guides/production.md shows, and systemd-nspawn boots it.
"""

import os
import pathlib
import shutil
import subprocess
import sys

import pytest
from tests.clients.systems import roots

ROOT = pathlib.Path(__file__).parents[3]
UNITS = ROOT / "deploy" / "systemd"
PACKAGES = "ca-certificates,dbus,python3,python3-venv,systemd,systemd-sysv"
# What the guide does on a machine, with a cluster of one broker and no ZooKeeper.
INSTALL = """
cd /root
python3 -m venv /opt/odradek
/opt/odradek/bin/pip install odradek-*.whl
useradd --system -d /var/lib/odradek odradek
install -d -o odradek -g odradek -m 0750 /var/lib/odradek /etc/odradek
cat >/etc/odradek/1.properties <<END
broker.id=1
listeners=PLAINTEXT://127.0.0.1:9092
log.dirs=/var/lib/odradek/data
odradek.http.port=8080
offsets.topic.replication.factor=1
END
echo "client.id=the-doctor" >/etc/odradek/doctor.properties
cat >/etc/odradek/doctor.env <<END
BOOTSTRAP=127.0.0.1:9092
OPTIONS=--every 1 --command-config /etc/odradek/doctor.properties
END
chown odradek: /etc/odradek/*
chmod 0600 /etc/odradek/*
"""
CHECK = """
[Unit]
After=network-online.target
SuccessAction=poweroff-force
FailureAction=poweroff-force
[Service]
Type=oneshot
ExecStart=/opt/odradek/bin/python /root/check.py
StandardOutput=file:/root/printed
StandardError=file:/root/printed
"""
# Runs in the container.
PROGRAM = """
import subprocess, time, urllib.request

TOOLS = "/opt/odradek/bin/"


def run(*command, typed=""):
    print("$", *command, flush=True)
    done = subprocess.run(command, input=typed, capture_output=True, text=True)
    print(done.stdout, done.stderr, flush=True)
    assert done.returncode == 0, done.returncode
    return done.stdout.strip()


def page(url):
    try:
        with urllib.request.urlopen(url, timeout=5) as answer:
            return answer.read().decode()
    except OSError:
        return ""


def until(true):
    deadline = time.monotonic() + 90
    while not true():
        assert time.monotonic() < deadline
        time.sleep(0.2)


def health():
    return page("http://127.0.0.1:8080/health")


def critical():
    for line in page("http://127.0.0.1:9308/metrics").splitlines():
        if line.startswith('odradek_doctor_findings{severity="critical"}'):
            return int(float(line.split()[1]))


def shown(unit, name):
    return run("systemctl", "show", "--value", "-p", name, unit)


try:
    run("systemctl", "enable", "--now", "odradek@1", "odradek-doctor")
    until(health)
    tool = ["--bootstrap-server", "127.0.0.1:9092", "--topic", "t"]
    run(TOOLS + "kafka-topics", *tool, "--create")
    run(TOOLS + "kafka-console-producer", *tool, typed="hello\\n")
    consume = ["--from-beginning", "--max-messages", "1"]
    assert run(TOOLS + "kafka-console-consumer", *tool, *consume) == "hello"
    until(lambda: critical() == 0)

    run("systemctl", "kill", "--signal=KILL", "odradek@1")
    until(lambda: not health())
    until(health)
    run("systemctl", "kill", "--signal=KILL", "odradek-doctor")
    until(lambda: critical() is None)
    until(lambda: critical() == 0)

    run("systemctl", "stop", "odradek@1")
    assert shown("odradek@1", "Result") == "success"
    until(lambda: critical() == 1)
    assert shown("odradek-doctor", "ActiveState") == "active"
    run("systemctl", "stop", "odradek-doctor")
    assert shown("odradek-doctor", "Result") == "success"
    assert shown("odradek-doctor", "ExecMainStatus") == "1"
    assert "broker 1" in run("journalctl", "-u", "odradek@1", "--no-pager")
    print("all of it works")
finally:
    subprocess.run(["journalctl", "--no-pager", "-n", "60"])
"""
BOOT = """
exec systemd-nspawn --quiet -D "$0" --register=no --keep-unit --private-network -M odradek-units \\
    --boot systemd.unit=check.service
"""

pytestmark = [
    pytest.mark.skipif(os.environ.get("ODRADEK_CLIENTS") != "1", reason="run by `./run clients`"),
    pytest.mark.skipif(
        not roots.may_make_systems() or shutil.which("systemd-nspawn") is None,
        reason="needs root, debootstrap and systemd-nspawn",
    ),
]


@pytest.fixture
def machine(tmp_path):
    """An empty Debian in which Odradek is installed as the guide says, with its units."""
    root = roots.copied(roots.system("trixie", PACKAGES, "systemd"), tmp_path / "machine")
    subprocess.run(
        [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", root / "root"],
        cwd=ROOT, check=True, capture_output=True,
    )  # fmt: skip
    roots.run_in(root, [INSTALL])
    system = root / "etc/systemd/system"
    for unit in UNITS.iterdir():
        shutil.copy(unit, system)
    (system / "check.service").write_text(CHECK)
    (root / "root/check.py").write_text(PROGRAM)
    return root


def test_the_units_start_a_broker_and_a_doctor_and_start_them_again(machine):
    done = subprocess.run(
        ["sh", "-c", BOOT, machine],
        check=False, timeout=400, stdin=subprocess.DEVNULL, capture_output=True, text=True,
    )  # fmt: skip
    printed = machine / "root/printed"
    assert printed.exists(), done.stdout + done.stderr
    assert "all of it works" in printed.read_text(), printed.read_text()
