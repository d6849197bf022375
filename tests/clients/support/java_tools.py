"""Fixtures that run the command-line tools of Apache Kafka 3.9 and 4.x."""

import subprocess
from collections.abc import Callable

import fetch
import pytest
from harness import Cluster

CLASSES: dict[str, str | dict[str, str]] = {
    "api-versions": {
        "3.9": "kafka.admin.BrokerApiVersionsCommand",
        "4": "org.apache.kafka.tools.BrokerApiVersionsCommand",
    },
    "configs": "kafka.admin.ConfigCommand",
    "console-consumer": "org.apache.kafka.tools.consumer.ConsoleConsumer",
    "console-producer": {
        "3.9": "kafka.tools.ConsoleProducer",
        "4": "org.apache.kafka.tools.ConsoleProducer",
    },
    "delete-records": "org.apache.kafka.tools.DeleteRecordsCommand",
    "dump-log": {
        "3.9": "kafka.tools.DumpLogSegments",
        "4": "org.apache.kafka.tools.DumpLogSegments",
    },
    "get-offsets": "org.apache.kafka.tools.GetOffsetShell",
    "log-dirs": "org.apache.kafka.tools.LogDirsCommand",
    "producer-perf": "org.apache.kafka.tools.ProducerPerformance",
    "topics": "org.apache.kafka.tools.TopicCommand",
}
Tool = Callable[..., str]


@pytest.fixture(params=fetch.KAFKA_LINES)
def line(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def tool(cluster: Cluster, line: str) -> Tool:
    """Runs a tool and returns what it printed."""

    def run(name: str, *arguments: str, stdin: str = "", bootstrap: bool = True) -> str:
        main = CLASSES[name]
        main_class = main if isinstance(main, str) else main[line]
        where = ["--bootstrap-server", cluster.bootstrap] if bootstrap else []
        done = subprocess.run(
            fetch.java(line, main_class, *where, *arguments),
            input=stdin,
            capture_output=True,
            text=True,
            timeout=120,
            check=False,
        )
        output = f"{done.stdout}\n{done.stderr}"
        assert done.returncode == 0, f"{name} {arguments}: {output}"
        assert "Exception" not in output, f"{name} {arguments}: {output}"
        return done.stdout

    return run
