"""Java's console tools on a cluster of `odradek up --secure`, with the files that it wrote."""

import json
import pathlib
import subprocess
from collections.abc import Iterator

import fetch
import pytest
from harness import odradek
from java_tools import CLASSES, line

pytest.importorskip("cryptography", reason="the extra `secure`")
pytestmark = pytest.mark.jvm

__all__ = ["line"]  # a fixture

# The flag for the file: KIP-1147 has renamed it.
FLAGS = {
    ("console-producer", "3.9"): "--producer.config",
    ("console-consumer", "3.9"): "--consumer.config",
}


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Iterator[pathlib.Path]:
    path = tmp_path_factory.mktemp("secure") / "D"
    odradek("up", "--secure", "--brokers", "2", "--detach", "--dir", str(path))
    yield path
    odradek("down", "--dir", str(path))


def run(
    home: pathlib.Path, line: str, tool: str, user: str, *arguments: str, stdin: str = ""
) -> str:
    """Run one of Java's tools as a user. Returns all that it prints."""
    main = CLASSES[tool]
    bootstrap = json.loads(odradek("status", "--dir", str(home), "--json"))["bootstrap"]
    config = FLAGS.get((tool, line), "--command-config")
    done = subprocess.run(
        fetch.java(
            line, main if isinstance(main, str) else main[line],
            "--bootstrap-server", bootstrap,
            config, str(home / "clients" / f"{user}.properties"), *arguments,
        ),
        input=stdin, capture_output=True, text=True, timeout=120, check=False,
    )  # fmt: skip
    return done.stdout + done.stderr


def test_the_application_is_refused_until_it_is_allowed(home: pathlib.Path, line: str) -> None:
    topic = f"java-{line}"
    replicas = ("--replication-factor", "2")
    created = run(home, line, "topics", "admin", "--create", "--topic", topic, *replicas)
    assert f"Created topic {topic}." in created

    refused = run(home, line, "console-producer", "app", "--topic", topic, stdin="early\n")
    assert "TopicAuthorizationException" in refused
    odradek(
        "allow", "app", "read,write", "topic", topic, "--group", f"{topic}*", "--dir", str(home)
    )
    run(home, line, "console-producer", "app", "--topic", topic, stdin="late\n")
    read = ("--topic", topic, "--group", f"{topic}-1", "--from-beginning", "--max-messages", "1")
    assert "late\n" in run(home, line, "console-consumer", "app", *read)
    assert run(home, line, "topics", "app", "--list").split() == [topic]
    odradek(
        "revoke", "app", "read,write", "topic", topic, "--group", f"{topic}*", "--dir", str(home)
    )
