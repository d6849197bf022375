"""Alert rules and what brokers export, as Prometheus' own tool reads them.

promtool is part of Debian's package `prometheus`; `./run clients` installs it.
"""

import contextlib
import io
import json
import pathlib
import shutil
import subprocess
import time
import urllib.request

import pytest
from prometheus_client.parser import text_string_to_metric_families

from odradek.cli.main import run

RULES = pathlib.Path(__file__).parents[2] / "deploy" / "prometheus"
pytestmark = pytest.mark.skipif(
    shutil.which("promtool") is None, reason="promtool is not installed (package prometheus)"
)


WITHIN_S = 60.0


def odradek(*arguments):
    """Run one command; its exit code and what it prints."""
    out = io.StringIO()
    with contextlib.redirect_stdout(out):
        code = run([str(argument) for argument in arguments])
    return code, out.getvalue()


def wait_for(true):
    deadline_s = time.monotonic() + WITHIN_S
    while not true():
        assert time.monotonic() < deadline_s, true
        time.sleep(0.05)


def promtool(*arguments, cwd=RULES):
    return subprocess.run(
        ["promtool", *map(str, arguments)], cwd=cwd, check=True, capture_output=True, text=True
    ).stdout


def test_the_rules_and_the_configuration_are_valid():
    assert "SUCCESS" in promtool("check", "rules", "alerts.yml")
    assert "SUCCESS" in promtool("check", "config", "prometheus.yml")


def test_each_alert_fires_for_the_series_of_its_case():
    promtool("test", "rules", "alerts-test.yml")


def test_alerts_fire_for_what_brokers_export_when_one_of_two_is_killed(tmp_path):
    home = tmp_path / "home"
    try:
        assert odradek("up", "--brokers", 2, "--detach", "--dir", home)[0] == 0
        cluster = Cluster(home)
        bootstrap = cluster.status()["bootstrap"]
        code, printed = odradek(
            "topics", "--bootstrap-server", bootstrap, "--create", "--topic", "t",
            "--replica-assignment", "0:1,0:1", "--config", "min.insync.replicas=2",
        )  # fmt: skip
        assert code == 0, printed
        assert odradek("kill", 1, "--dir", home)[0] == 0
        under = "kafka_server_replicamanager_underminisrpartitioncount"
        wait_for(lambda: cluster.samples().get((under,)) == 2)
        alerts = cluster.fired(tmp_path, ("KafkaUnderMinIsr", "KafkaUnderReplicated",
                                          "KafkaBrokerDown", "KafkaNoController"))  # fmt: skip
    finally:
        odradek("down", "--dir", home)
    assert alerts == {"KafkaUnderMinIsr", "KafkaUnderReplicated", "KafkaBrokerDown"}


class Cluster:
    """Two brokers, of which Prometheus reads broker 0."""

    def __init__(self, home):
        self.home = home

    def status(self):
        return json.loads(odradek("status", "--json", "--dir", self.home)[1])

    def samples(self):
        """What broker 0 exports, by name and labels."""
        with urllib.request.urlopen(f"{self.status()['brokers'][0]['http']}/metrics") as answer:
            text = answer.read().decode()
        return {
            (sample.name, *sorted(sample.labels.items())): sample.value
            for family in text_string_to_metric_families(text)
            for sample in family.samples
        }

    def fired(self, tmp_path, names):
        """Which of these alerts fire if all stays for ten minutes as it is now."""
        series = [
            {"series": _series(name, {**dict(labels), "job": "kafka", "instance": "0"}),
             "values": f"{value}x40"}
            for (name, *labels), value in self.samples().items()
            if name.startswith("kafka_") and "_bucket" not in name
        ]  # fmt: skip
        series += [
            {"series": 'up{job="kafka",instance="0"}', "values": "1x40"},
            {"series": 'up{job="kafka",instance="1"}', "values": "0x40"},
        ]
        return {name for name in names if _fires(tmp_path, series, name)}


def _series(name, labels):
    pairs = ",".join(f"{key}={json.dumps(value)}" for key, value in labels.items())
    return f"{name}{{{pairs}}}"


def _fires(tmp_path, series, alert):
    """promtool tests that an alert does not fire: it fails if it does."""
    case = {
        "rule_files": [str(RULES / "alerts.yml")],
        "evaluation_interval": "30s",
        "tests": [
            {
                "interval": "30s",
                "input_series": series,
                "alert_rule_test": [{"eval_time": "10m", "alertname": alert, "exp_alerts": []}],
            }
        ],
    }
    file = tmp_path / f"{alert}.yml"
    file.write_text(json.dumps(case))
    done = subprocess.run(
        ["promtool", "test", "rules", str(file)], check=False, capture_output=True, text=True
    )
    assert done.returncode == 0 or "got:[" in done.stdout + done.stderr, done.stdout + done.stderr
    return done.returncode != 0
