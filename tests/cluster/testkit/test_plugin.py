"""The fixtures in a run of pytest of their own; what they cost those who do not use them."""

import os
import pathlib
import subprocess
import sys
import threading
import tomllib

import pytest

pytest_plugins = ["pytester"]


@pytest.fixture
def run(pytester, monkeypatch):
    """Run pytest in a process, with the plugin alone."""
    monkeypatch.setenv("PYTEST_DISABLE_PLUGIN_AUTOLOAD", "1")

    def runs(text, *arguments):
        pytester.makepyfile(text)
        return pytester.runpytest_subprocess(
            "-p", "odradek.testkit.plugin", "-p", "no:cacheprovider", *arguments
        )

    return runs


def test_tests_share_a_broker_and_have_topics_of_their_own(run):
    result = run(
        """
        import pytest

        seen = []

        @pytest.mark.parametrize("number", [1, 2])
        def test_orders(kafka, number):
            topic = kafka.topic("orders")
            assert topic.startswith("test_orders-")
            assert topic.endswith("-orders")
            kafka.produce(topic, "one")
            kafka.assert_records(topic, ["one"])
            seen.append((kafka.bootstrap, topic))

        def test_it_was_one_broker():
            (one, first), (other, second) = seen
            assert one == other
            assert first != second

        def test_the_broker_is_not_harmed(kafka):
            kafka.kill(0)
        """
    )
    result.assert_outcomes(passed=3, failed=1)
    result.stdout.fnmatch_lines(["*kill: the broker of the fixture `kafka` is shared*"])


def test_a_factory_of_clusters_and_a_failure_that_shows_the_line_of_the_test(run):
    result = run(
        """
        def test_a_leader_dies(kafka_cluster):
            with kafka_cluster(brokers=3) as cluster:
                cluster.topic("t")
                leader = cluster.leader("t")
                cluster.kill(leader)
                cluster.wait_for(lambda: cluster.leader("t") not in (leader, -1))
                cluster.produce("t", "one")
                cluster.assert_records("t", ["one"])

        def test_it_fails(kafka_cluster):
            cluster = kafka_cluster(brokers=1)
            cluster.open()  # and it is not closed
            cluster.topic("t")
            cluster.assert_records("t", ["one"], timeout_s=0.1)
        """
    )
    result.assert_outcomes(passed=1, failed=1)
    result.stdout.fnmatch_lines(
        [
            ">*cluster.assert_records(*",
            "E*AssertionError: topic t has 0 records, expected 1*",
            "E*missing: 'one'*",
        ]
    )
    result.stdout.no_fnmatch_line("*testkit/cluster.py*")


def test_an_error_of_the_kit_shows_the_line_of_the_test_alone(run):
    result = run(
        """
        from odradek.testkit import KafkaCluster

        def test_a_shared_broker(kafka):
            kafka.topic("orders", retention_mss=1000)

        def test_a_verb_that_runs_on_the_thread_of_the_brokers(kafka):
            kafka.leader("nowhere")

        def test_a_factory(kafka_cluster):
            kafka_cluster(0)

        def test_brokers_that_are_processes():
            with KafkaCluster(processes=True) as cluster:
                cluster.start(0)
        """
    )
    result.assert_outcomes(failed=4)
    result.stdout.fnmatch_lines(
        [
            ">*retention_mss=1000*",
            "E*KitError: retention.mss: there is no such topic option; did you mean retention.ms?",
            ">*kafka.leader(*",
            "E*KitError: there is no topic nowhere",
            ">*kafka_cluster(0)",
            "E*KitError: brokers=0: must be from 1 to 20",
            ">*cluster.start(0)",
            "E*KitError: broker 0 runs already (pid *",
        ]
    )
    for frame in ("*src/odradek/*", "*concurrent/futures*"):
        result.stdout.no_fnmatch_line(frame)


def test_unittest_and_a_plain_context_manager(run):
    result = run(
        """
        import unittest
        from odradek.testkit import KafkaCluster

        class Orders(unittest.TestCase):
            @classmethod
            def setUpClass(cls):
                cls.kafka = cls.enterClassContext(KafkaCluster())

            def test_orders(self):
                self.kafka.topic("orders")
                self.kafka.produce("orders", ("key", "value"))
                self.kafka.assert_records("orders", [("key", "value")])
        """
    )
    result.assert_outcomes(passed=1)


def test_each_worker_of_xdist_has_a_broker(run):
    result = run(
        """
        import pytest

        @pytest.mark.parametrize("number", range(4))
        def test_orders(kafka, number):
            topic = kafka.topic("orders")
            kafka.produce(topic, str(number))
            kafka.assert_records(topic, [str(number)])
        """,
        "-p", "xdist", "-n", "2",
    )  # fmt: skip
    result.assert_outcomes(passed=4)


def test_nothing_is_left_behind(run, pytester):
    result = run(
        """
        import os, pathlib, tempfile, threading
        import pytest

        def left():
            folder = pathlib.Path(tempfile.gettempdir())
            return (
                sorted(thread.name for thread in threading.enumerate()),
                sorted(path.name for path in folder.glob("odradek-kit-*")),
                sorted(os.readlink(path) for path in pathlib.Path("/proc/self/fd").iterdir()
                       if os.path.lexists(path) and path.is_symlink() and path.exists()),
            )

        @pytest.mark.parametrize("processes", [False, True])
        def test_all_is_as_before(kafka_cluster, processes):
            with kafka_cluster(2, processes=processes) as cluster:  # what is made once, is made
                pass
            before = left()
            with kafka_cluster(2, processes=processes) as cluster:
                cluster.topic("t")
                cluster.produce("t", "one")
                cluster.assert_records("t", ["one"])
                cluster.partition([0], [1])
                cluster.slow(1, ms=50)
                cluster.fail_next("Produce", "REQUEST_TIMED_OUT")
                cluster.pause(0)
                cluster.kill(1)
                pids = [cluster.pid(each) for each in (0, 1)] if processes else []
            assert left() == before
            for pid in pids:
                assert not pathlib.Path(f"/proc/{pid}").exists()
        """,
        "--basetemp=" + str(pytester.path / "temp"),
    )
    result.assert_outcomes(passed=2)


def test_a_run_that_is_killed_leaves_no_process(tmp_path):
    program = """
import sys, time
from odradek.testkit import KafkaCluster
with KafkaCluster(2, processes=True) as cluster:
    print(cluster.pid(0), cluster.pid(1), flush=True)
    time.sleep(60)
"""
    script = tmp_path / "program.py"
    script.write_text(program)
    with subprocess.Popen(
        [sys.executable, str(script)],
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, "TMPDIR": str(tmp_path)},
    ) as running:
        pids = running.stdout.readline().split()
        running.kill()
    ended = threading.Event()
    deadline = 200
    while deadline and not all(is_gone(pid) for pid in pids):
        ended.wait(0.1)
        deadline -= 1
    assert len(pids) == 2
    assert [pid for pid in pids if not is_gone(pid)] == []


def is_gone(pid):
    try:
        return pathlib.Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "Z"
    except FileNotFoundError:
        return True


def test_the_plugin_imports_nothing_that_pytest_has_not_imported():
    program = (
        "import sys, pytest\n"
        "before = set(sys.modules)\n"
        "import odradek.testkit.plugin\n"
        "print(*sorted(set(sys.modules) - before))\n"
    )
    printed = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True
    ).stdout.split()
    assert printed == ["odradek", "odradek.testkit", "odradek.testkit.plugin"]


def test_the_wheel_announces_the_plugin():
    text = (pathlib.Path(__file__).parents[3] / "pyproject.toml").read_text()
    announced = tomllib.loads(text)["project"]["entry-points"]["pytest11"]
    assert announced == {"odradek": "odradek.testkit.plugin"}
