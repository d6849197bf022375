"""A tool that is called while its broker is starting waits for it, as Kafka's own do."""

import subprocess
import sys

from brokers import BrokerProcess

from odradek.local.options import free_ports


def test_a_tool_reaches_a_broker_that_starts_after_it(tmp_path):
    (port,) = free_ports("127.0.0.1", 1)
    listeners = f"PLAINTEXT://127.0.0.1:{port}"
    broker = BrokerProcess(
        tmp_path / "broker",
        {"listeners": listeners, "odradek.store.path": tmp_path / "coordination.db"},
    )
    listing = [sys.executable, "-m", "odradek", "topics", "--list"]
    with subprocess.Popen(
        [*listing, "--bootstrap-server", f"127.0.0.1:{port}"],
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
    ) as tool:  # fmt: skip
        try:
            assert "could not be established" in tool.stderr.readline()
            broker.start()
            out, _ = tool.communicate(timeout=60)
        finally:
            tool.kill()
            broker.kill()
    assert (tool.returncode, out) == (0, "\n")
