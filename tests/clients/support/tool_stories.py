"""Kafka's own tools on Kafka's own brokers, running the stories of `tests/recorded/stories`.

    python tool_stories.py NAME ...           run, and print what differs
    python tool_stories.py --write NAME ...   record the output of Kafka's tools
    python tool_stories.py --ours NAME ...    our tools on Kafka's brokers
    python tool_stories.py --theirs NAME ...  Kafka's tools on brokers of ours

All calls of a story are made in one Java process (`java/Tools.java`), because a process takes a
second to start.
"""

import argparse
import base64
import contextlib
import pathlib
import re
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[3]))
sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))

import apache
import fetch
from tests.recorded.clusters import Cluster, OurCluster, run_step
from tests.recorded.recording import Recording, differences
from tests.recorded.stories import NAMES, STORIES, Call, Story, read_story

CLASSES = {
    "topics": "org.apache.kafka.tools.TopicCommand",
    "configs": "kafka.admin.ConfigCommand",
    "reassign-partitions": "org.apache.kafka.tools.reassign.ReassignPartitionsCommand",
    "leader-election": "org.apache.kafka.tools.LeaderElectionCommand",
    "consumer-groups": "org.apache.kafka.tools.consumer.group.ConsumerGroupCommand",
    "get-offsets": "org.apache.kafka.tools.GetOffsetShell",
    "acls": "kafka.admin.AclCommand",
    "delegation-tokens": "org.apache.kafka.tools.DelegationTokenCommand",
    "delete-records": "org.apache.kafka.tools.DeleteRecordsCommand",
    "log-dirs": "org.apache.kafka.tools.LogDirsCommand",
    "transactions": "org.apache.kafka.tools.TransactionsCommand",
    "features": "org.apache.kafka.tools.FeatureCommand",
    "cluster": "org.apache.kafka.tools.ClusterTool",
    "broker-api-versions": "kafka.admin.BrokerApiVersionsCommand",
    "console-producer": "kafka.tools.ConsoleProducer",
    "console-consumer": "org.apache.kafka.tools.consumer.ConsoleConsumer",
    "producer-perf-test": "org.apache.kafka.tools.ProducerPerformance",
    "consumer-perf-test": "org.apache.kafka.tools.ConsumerPerformance",
    "e2e-latency": "org.apache.kafka.tools.EndToEndLatency",
    "verifiable-producer": "org.apache.kafka.tools.VerifiableProducer",
    "verifiable-consumer": "org.apache.kafka.tools.VerifiableConsumer",
    "replica-verification": "org.apache.kafka.tools.ReplicaVerificationTool",
    "zookeeper-shell": "org.apache.zookeeper.ZooKeeperMainWithTlsSupportForKafka",
}
_TIMEOUT_MS = 90_000
_ENDLESS_MS = 5_000
_HEAP = "512M"


class JavaTools:
    """Kafka's tools in one process of Java."""

    def __init__(self, home: pathlib.Path) -> None:
        command = fetch.java_class("3.9", fetch.HERE / "java" / "Tools.java", heap=_HEAP)
        # A tool that ends the process is to end its call alone.
        command[1:1] = ["-Djava.security.manager=allow"]
        self._log = (home / "java-tools.log").open("ab")
        self._process = subprocess.Popen(
            command, cwd=home, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=self._log
        )

    def run(
        self, tool: str, words: Sequence[str], stdin: str = "", timeout_ms: int = _TIMEOUT_MS
    ) -> tuple[str, str, str]:
        """One call: exit code, stdout, stderr."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        call = [str(timeout_ms), *map(_encoded, (CLASSES[tool], stdin, *words))]
        self._process.stdin.write(" ".join(call).encode() + b"\n")
        self._process.stdin.flush()
        answer = self._process.stdout.readline().decode().split()
        if len(answer) != 3:
            raise RuntimeError(f"{tool} {' '.join(words)} has ended the process of all tools")
        code, out, err = answer
        return code, _decoded(out), _decoded(err)

    def close(self) -> None:
        assert self._process.stdin is not None
        self._process.stdin.close()
        self._process.kill()  # a call that was left alone would hold it up
        self._process.wait()
        assert self._process.stdout is not None
        self._process.stdout.close()
        self._log.close()


def _encoded(text: str) -> str:
    return base64.b64encode(text.encode()).decode() or "-"


def _decoded(text: str) -> str:
    return "" if text == "-" else base64.b64decode(text).decode("utf-8", "replace")


class _Server:
    """A broker of Apache Kafka that can be started again."""

    def __init__(self, home: pathlib.Path, zookeeper: str, number: int, brokers: int) -> None:
        self._made = lambda: apache.Broker(
            home, zookeeper, broker_id=number, brokers=brokers, properties=self.options,
            port=self.port, heap=_HEAP,
        )  # fmt: skip
        self.port = apache.free_port()
        self.options: dict[str, str] = {}
        self._broker: apache.Broker | None = None

    @property
    def pid(self) -> int:
        assert self._broker is not None
        return self._broker.pid

    @property
    def is_up(self) -> bool:
        return self._broker is not None and self._broker.process.poll() is None

    def begin(self) -> None:
        self._broker = self._made()

    def wait(self) -> None:
        assert self._broker is not None
        self._broker.wait()

    def start(self) -> None:
        self.begin()
        self.wait()

    def stop(self) -> None:
        if self._broker is not None:
            self._broker.stop()

    def kill(self) -> None:
        if self._broker is not None:
            self._broker.process.kill()
            self._broker.process.wait()


class ApacheCluster(Cluster):
    """Brokers 1 to N of Apache Kafka 3.9 in ZooKeeper mode."""

    def __init__(self, home: pathlib.Path, story: Story) -> None:
        self._zookeeper = apache.ZooKeeper(home / "zookeeper")
        servers = {
            number: _Server(
                home / f"broker-{number}", self._zookeeper.address, number, story.brokers
            )
            for number in range(1, story.brokers + 1)
        }
        ports = [server.port for server in servers.values()]
        super().__init__(home, ports, self._zookeeper.port)
        self.brokers = {**servers}
        self._servers = servers
        for number, server in servers.items():
            racks = {"broker.rack": story.racks[number - 1]} if story.racks else {}
            own = {"auto.leader.rebalance.enable": "false"}
            server.options = {**own, **racks, **story.options}

    def start(self) -> None:
        """Start them; broker 1 first, which becomes the controller."""
        for number, server in self._servers.items():
            server.begin()
            if number == 1:
                server.wait()
        for server in self._servers.values():
            server.wait()

    def close(self) -> None:
        super().close()
        self._zookeeper.process.kill()
        self._zookeeper.process.wait()


def play(
    story: Story,
    home: pathlib.Path,
    *,
    apaches_brokers: bool,
    javas_tools: bool,
    verbose: bool = False,
) -> list[tuple[Call, tuple[str, str, str]]]:
    """Play a story. Returns what came of each call."""
    reported = []
    cluster: Cluster
    with contextlib.ExitStack() as stack:
        if apaches_brokers:
            cluster = ApacheCluster(home, story)
        else:
            cluster = OurCluster(
                home, brokers=story.brokers, racks=story.racks, options=story.options
            )
        stack.callback(cluster.close)
        cluster.start()
        tools = JavaTools(home)
        stack.callback(tools.close)
        for step in story.steps:
            if verbose and isinstance(step, Call):
                sys.stderr.write(f"{time.strftime('%H:%M:%S')} {step.text[0]}\n")
            if isinstance(step, Call):
                reported.append(
                    (step, _output(cluster, tools if javas_tools else None, step.recording))
                )
            else:
                run_step(cluster, step)
    return reported


def _output(cluster: Cluster, tools: JavaTools | None, recorded: Recording) -> tuple[str, str, str]:
    for file, text in recorded.files.items():
        (cluster.home / file).write_text(text)
    endless = recorded.code == "timeout"
    if tools is None:
        if endless:
            return cluster.run_for(
                recorded.tool, recorded.arguments, recorded.stdin, _ENDLESS_MS / 1000
            )
        ours, *streams = cluster.run(recorded.tool, recorded.arguments, recorded.stdin)
        return str(ours), streams[0], streams[1]
    words = [cluster.translated(word) for word in recorded.arguments]
    if recorded.tool == "zookeeper-shell" and words:
        words = ["-server", *words]
    code, out, err = tools.run(
        recorded.tool, words, recorded.stdin, _ENDLESS_MS if endless else _TIMEOUT_MS
    )
    return code, cluster.as_recorded(out), cluster.as_recorded(err)


_STACK = re.compile(r"^\s+at [\w.$]+[\w$<>/.@]*\(|^\s*\.\.\. \d+ more$")
_HELP = re.compile(r"^Option +.*Description|^usage: ")
_AFTER_HELP = re.compile(r"^[\w.-]+: +error: ")


def _shortened(text: str) -> list[str]:
    """Without stack traces and help texts."""
    lines: list[str] = []
    is_help = False
    for line in text.split("\n"):
        if _HELP.match(line) and not is_help:
            is_help = True
            lines.append("[the tool's help follows here: ours prints its own]")
        if _STACK.match(line) or (is_help and not _AFTER_HELP.match(line)):
            continue
        lines.append(line)
    while lines and not lines[-1].strip():
        lines.pop()
    return lines


def write_down(story: Story, reported: Sequence[tuple[Call, tuple[str, str, str]]]) -> None:
    """Write the outputs into the story's file."""
    lines = [*story.head, ""]
    printed = {id(call): outcome for call, outcome in reported}
    for step in story.steps:
        if not isinstance(step, Call):
            lines += [f"> {step}", ""]
            continue
        code, out, err = printed[id(step)]
        given = []
        for line in step.text:
            if line.startswith("[exit "):
                break
            given.append(line)
        lines += [*step.head, *given, f"[exit {code}]", "[stdout]", *_shortened(out)]
        errors = _shortened(err)
        lines += ["[stderr]", *errors, ""] if errors else [""]
    (STORIES / f"{story.name}.txt").write_text("\n".join(lines))


def compared(reported: Sequence[tuple[Call, tuple[str, str, str]]]) -> list[str]:
    """What differs from what is written down."""
    return [
        f"{call.text[0]}\n  {what}"
        for call, (code, out, err) in reported
        for what in differences(call.recording, code, out, err, call.allowed)
    ]


def main(arguments: Sequence[str] | None = None) -> int:
    """Play stories. Returns the exit code."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--write", action="store_true")
    parser.add_argument("--ours", action="store_true")
    parser.add_argument("--theirs", action="store_true")
    parser.add_argument("--verbose", action="store_true")
    parser.add_argument("names", nargs="*")
    chosen = parser.parse_args(arguments)
    failed = False
    for name in chosen.names or NAMES:
        story = read_story(name)
        with tempfile.TemporaryDirectory(prefix="tool-stories-") as home:
            reported = play(
                story,
                pathlib.Path(home),
                apaches_brokers=not chosen.theirs,
                javas_tools=not chosen.ours,
                verbose=chosen.verbose,
            )
        if chosen.write:
            write_down(story, reported)
            continue
        found = compared(reported)
        failed |= bool(found)
        lines = [f"{name}: {len(reported)} calls, {len(found)} differ", *found]
        sys.stdout.write("".join(f"{line}\n" for line in lines))
    return int(failed)


if __name__ == "__main__":
    sys.exit(main())
