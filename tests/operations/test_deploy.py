"""Units of systemd, the image and the compose file, as far as no other system is needed.

test_units.py and test_image.py in tests/clients/systems start them in an empty Debian.
"""

import json
import os
import pathlib
import re
import shutil
import subprocess
import sys
import time
import urllib.error
import urllib.request

import pytest

ROOT = pathlib.Path(__file__).parents[2]
DEPLOY = ROOT / "deploy"
SCRIPTS = pathlib.Path(sys.executable).parent
WITHIN_S = 60.0
INSTRUCTIONS = {
    "FROM", "WORKDIR", "COPY", "RUN", "ENV", "USER", "VOLUME", "EXPOSE", "STOPSIGNAL",
    "HEALTHCHECK", "ENTRYPOINT", "CMD",
}  # fmt: skip


def wait_for(true):
    deadline_s = time.monotonic() + WITHIN_S
    while not (found := true()):
        assert time.monotonic() < deadline_s, true
        time.sleep(0.05)
    return found


def health(url):
    """What a broker says of itself; None while it does not answer."""
    try:
        with urllib.request.urlopen(f"{url}/health", timeout=5) as answer:
            return json.loads(answer.read())
    except OSError:
        return None


# ------------------------------------------------------------------------------------- systemd


def with_our_programs(name, directory):
    """A copy of a unit that runs what is installed here."""
    text = (DEPLOY / "systemd" / name).read_text().replace("/opt/odradek/bin", str(SCRIPTS))
    copy = directory / name
    copy.write_text(text.replace("User=odradek\nGroup=odradek\n", ""))
    return copy


@pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="systemd is not installed")
@pytest.mark.parametrize("name", ["odradek@.service", "odradek-doctor.service"])
def test_a_unit_is_valid(name, tmp_path):
    unit = with_our_programs(name, tmp_path)
    done = subprocess.run(
        ["systemd-analyze", "verify", "--man=no", str(unit)],
        check=False, capture_output=True, text=True,
    )  # fmt: skip
    assert [line for line in done.stderr.splitlines() if name.partition(".")[0] in line] == []


@pytest.mark.skipif(
    not pathlib.Path("/run/systemd/system").is_dir() or os.geteuid() != 0,
    reason="systemd does not run here, or we are not root",
)
def test_systemd_starts_restarts_and_stops_a_broker(tmp_path):
    home = pathlib.Path("/var/lib/odradek/test")
    unit = with_our_programs("odradek@.service", tmp_path)
    properties = tmp_path / "9.properties"
    text = unit.read_text().replace("/etc/odradek/%i", str(tmp_path / "%i"))
    installed = pathlib.Path("/run/systemd/system/odradek-test@.service")
    installed.write_text(text.replace("PrivateTmp=yes\n", "").replace("ProtectHome=yes\n", ""))
    properties.write_text(
        f"broker.id=9\nlisteners=PLAINTEXT://127.0.0.1:0\nlog.dirs={home}\n"
        "odradek.http.port=28093\n"
    )
    url = "http://127.0.0.1:28093"
    try:
        subprocess.run(["systemctl", "daemon-reload"], check=True)
        subprocess.run(["systemctl", "start", "odradek-test@9"], check=True)
        wait_for(lambda: health(url))
        subprocess.run(["systemctl", "kill", "--signal=KILL", "odradek-test@9"], check=True)
        wait_for(lambda: health(url) is None)
        wait_for(lambda: health(url))
    finally:
        subprocess.run(["systemctl", "stop", "odradek-test@9"], check=False)
        installed.unlink()
        subprocess.run(["systemctl", "daemon-reload"], check=False)
        shutil.rmtree(home, ignore_errors=True)


# --------------------------------------------------------------------------------------- image


def dockerfile():
    """The instructions, each with its arguments on one line."""
    text = (DEPLOY / "docker" / "Dockerfile").read_text().replace("\\\n", " ")
    lines = [line for line in text.splitlines() if line and not line.startswith("#")]
    return [(word, " ".join(rest.split())) for word, _, rest in (x.partition(" ") for x in lines)]


def test_the_image_copies_what_is_in_the_checkout_and_does_not_run_as_root():
    steps = dockerfile()
    assert {word for word, _ in steps} <= INSTRUCTIONS
    copied = [rest.split()[:-1] for word, rest in steps if word == "COPY" and "--from" not in rest]
    assert all((ROOT / source).exists() for sources in copied for source in sources)
    assert [rest for word, rest in steps if word == "USER"] == ["10092"]
    extras = set(re.search(r"\.\[([\w,]+)\]", str(steps)).group(1).split(","))
    assert extras <= extras_of_the_package()
    for word, rest in steps:
        assert word not in ("ENTRYPOINT", "CMD") or json.loads(rest)


@pytest.mark.skipif(not (SCRIPTS / "hadolint").exists(), reason="hadolint is not installed")
def test_hadolint_finds_nothing_in_the_image_s_file():
    done = subprocess.run(
        [SCRIPTS / "hadolint", DEPLOY / "docker" / "Dockerfile"],
        check=False, capture_output=True, text=True,
    )  # fmt: skip
    assert (done.returncode, done.stdout) == (0, "")


def extras_of_the_package():
    text = (ROOT / "pyproject.toml").read_text()
    section = text.partition("[project.optional-dependencies]")[2].partition("\n[")[0]
    return set(re.findall(r"^(\w+) = ", section, re.MULTILINE))


@pytest.fixture
def start(tmp_path):
    """Runs the image's entry point with an environment, in a directory of its own."""
    text = (DEPLOY / "docker" / "start").read_text().replace("/var/lib/odradek", str(tmp_path))
    script = tmp_path / "start"
    script.write_text(text)
    script.chmod(0o755)
    started = []

    def run(*arguments, **environment):
        process = subprocess.Popen(
            [str(script), *arguments],
            env={"PATH": f"{SCRIPTS}:{os.environ['PATH']}", **environment},
            stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
        )  # fmt: skip
        started.append(process)
        return process

    yield run
    for process in started:
        process.kill()
        process.communicate()


def test_the_entry_point_runs_a_broker_with_the_options_of_the_environment(start, tmp_path):
    broker = start(
        KAFKA_BROKER_ID="7",
        KAFKA_LISTENERS="PLAINTEXT://127.0.0.1:0",
        KAFKA_ADVERTISED_LISTENERS="PLAINTEXT://127.0.0.1:9092",
        KAFKA_ODRADEK_HTTP_PORT="0",
        KAFKA_LOG_RETENTION_HOURS="1",
        OTHER="x",
    )
    printed = []
    for line in broker.stdout:
        printed.append(line)
        if "metrics and health at" in line:
            break
    found = re.search(r"metrics and health at (\S+)", printed[-1])
    assert found, "".join(printed)
    assert wait_for(lambda: health(found.group(1)))["broker_id"] == 7
    options = (tmp_path / "server.properties").read_text()
    assert "log.retention.hours=1\n" in options
    assert "offsets.topic.replication.factor=1\n" in options
    assert "other" not in options.lower()
    broker.terminate()
    broker.stdout.read()
    assert broker.wait(WITHIN_S) == 0


def test_the_entry_point_runs_any_other_command(start):
    process = start("odradek", "--version")
    assert "odradek" in process.communicate(timeout=WITHIN_S)[0]
    assert process.returncode == 0


def test_the_compose_file_has_three_brokers_that_differ_and_the_page():
    text = (DEPLOY / "docker" / "compose.yml").read_text()
    services = re.findall(r"^  ([\w-]+):$", text.partition("services:")[2], re.MULTILINE)
    assert services == ["zookeeper", "broker-1", "broker-2", "broker-3", "page"]
    for option in ("KAFKA_BROKER_ID", "KAFKA_LISTENERS", "KAFKA_ADVERTISED_LISTENERS"):
        values = re.findall(rf"{option}: (.*)", text)
        assert len(set(values)) == 3
