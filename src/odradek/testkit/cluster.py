"""A cluster for tests: what a test does with its brokers, and what it asserts of its content."""

import time
from collections.abc import Callable, Coroutine, Iterable, Mapping
from datetime import timedelta
from types import TracebackType
from typing import TYPE_CHECKING, Any, Final, Self, TypeVar

from odradek.local.faults import STORE, Member
from odradek.model.errors import ErrorCode
from odradek.testkit.brokers import PROPERTIES, Brokers
from odradek.testkit.compare import (
    Expected,
    Found,
    content,
    not_exactly_once,
    wrong_offsets,
    wrong_records,
)
from odradek.testkit.errors import KitError, verb
from odradek.testkit.options import broker_options, topic_options
from odradek.wire.api_keys import APIS, ApiKey

if TYPE_CHECKING:
    from odradek.testkit.clients import Clients
    from odradek.wire.messages.metadata import MetadataResponsePartition

T = TypeVar("T")
TIMEOUT_S: Final = 10.0
_PAUSE_S: Final = 0.01
_READ_COMMITTED: Final = "read_committed"
BROKERS_MAX: Final = 20


def wait_for(condition: Callable[[], T], *, timeout_s: float = TIMEOUT_S, message: str = "") -> T:
    """Call a condition until it is true; what it has returned then.

    An AssertionError of the condition counts as false.

    Raises:
        AssertionError: it was not true within the time-out; the text has what it returned last.
    """
    __tracebackhide__ = True
    deadline_s = time.monotonic() + timeout_s
    while True:
        failed: AssertionError | None = None
        last: object = None
        try:
            found = condition()
            if found:
                return found
            last = found
        except AssertionError as error:
            failed = error
        if time.monotonic() >= deadline_s:
            what = message or getattr(condition, "__name__", "the condition")
            raise AssertionError(
                f"not within {timeout_s:g} s: {what}"
                + (f"; last: {failed}" if failed else f"; it returned {last!r} last")
            )
        time.sleep(_PAUSE_S)


class KafkaCluster:
    """Brokers for one test or many: a context manager.

    With `processes` each broker is a process; without, all run on a thread of this process. Both
    have real sockets and files, and do the same; `pid` is all that only processes have.
    """

    @verb
    def __init__(
        self,
        brokers: int = 1,
        *,
        processes: bool = False,
        properties: Mapping[str, object] | None = None,
    ) -> None:
        """`properties` are options of all brokers, as in server.properties.

        Raises:
            KitError: the number of brokers is out of range, or an option does not exist, is set by
                the kit, or does not allow its value.
        """
        if not 1 <= brokers <= BROKERS_MAX:
            raise KitError(f"brokers={brokers}: must be from 1 to {BROKERS_MAX}")
        self.brokers = brokers
        self.processes = processes
        self._properties = {
            **PROPERTIES,
            "default.replication.factor": str(min(3, brokers)),
            "offsets.topic.replication.factor": str(min(3, brokers)),
            "transaction.state.log.replication.factor": str(min(3, brokers)),
            "transaction.state.log.min.isr": str(min(2, brokers)),
            **broker_options(properties or {}),
        }
        self._started: Brokers | None = None
        self._ahead = timedelta()
        self._groups: list[list[Member]] = []

    # ---------------------------------------------------------------------- start and end

    def __enter__(self) -> Self:
        self.open()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()

    @verb
    def open(self) -> None:
        """Start all brokers; when this returns, each has all of them in its metadata."""
        if self._started is not None:
            raise KitError("the cluster runs already")
        kind: Callable[[int, Mapping[str, str]], Brokers]
        if self.processes:
            from odradek.testkit.processes import ProcessBrokers as kind  # noqa: PLC0415, N813
        else:
            from odradek.testkit.in_process import InProcessBrokers as kind  # noqa: PLC0415, N813
        self._started = kind(self.brokers, self._properties)
        try:
            self._started.start_all()
        except BaseException:
            self.close()
            raise

    def close(self) -> None:
        """End all brokers at once and remove their files; nothing is left."""
        started, self._started = self._started, None
        if started is not None:
            started.close()

    @property
    def _all(self) -> Brokers:
        if self._started is None:
            raise KitError("the cluster does not run: use it as a context manager, or open() it")
        return self._started

    @property
    @verb
    def bootstrap(self) -> str:
        """What a client's `bootstrap.servers` is: all brokers."""
        return ",".join(map(self._all.address, self._all.ids))

    # ---------------------------------------------------------------------------- brokers

    @verb
    def kill(self, broker: int) -> None:
        """End a broker as `kill -9` does. Its files stay, and `start` starts it again."""
        self._all.kill(broker)

    @verb
    def stop(self, broker: int) -> None:
        """Stop a broker cleanly, as SIGTERM does: it hands its leaders over first."""
        self._all.stop(broker)

    @verb
    def start(self, broker: int) -> None:
        """Start a broker again; when this returns, it serves.

        It has no faults, but is still on its side of a partition.
        """
        self._all.start(broker)
        if self._groups:
            self._all.partition(self._groups)

    @verb
    def pause(self, broker: int) -> None:
        """Freeze a broker as SIGSTOP does: its connections stay open, it does not answer."""
        self._all.pause(broker)

    @verb
    def resume(self, broker: int) -> None:
        """Continue a paused broker."""
        self._all.resume(broker)

    @verb
    def state(self, broker: int) -> str:
        """The state of a broker: running, paused, stopped, killed or crashed."""
        return self._all.state(broker)

    @verb
    def pid(self, broker: int) -> int:
        """The process of a broker, of a cluster with `processes=True`."""
        return self._all.pid(broker)

    # ----------------------------------------------------------------------------- faults

    @verb
    def partition(self, *groups: Iterable[Member]) -> None:
        """Cut groups of brokers off from each other, as in `partition([0], [1, 2])`.

        The coordination store, where brokers are registered, can be in a group, too:
        partition([0], [1, 2, "store"]); and so can clients: partition([0, "clients"], [1, 2]), or
        those of one client.id, "client:ID". What is in no group reaches all brokers; the kit does
        so in any case.
        As with TCP no byte is lost: what is held back passes when it is healed.
        """
        self._groups = [list(group) for group in groups]
        try:
            self._all.partition(self._groups)
        except BaseException:
            self._groups = []
            raise

    @verb
    def heal(self) -> None:
        """End partitions, delays, and errors that are ordered and not used."""
        self._groups = []
        self._all.heal()

    @verb
    def slow(self, broker: int, ms: int) -> None:
        """Let everything that a broker sends arrive so much later; 0 ends it."""
        self._all.slow(broker, ms)

    @verb
    def fail_next(
        self,
        api: str | ApiKey,
        error: str | ErrorCode,
        *,
        times: int = 1,
        broker: int | None = None,
    ) -> None:
        """Answer the next requests of clients with an error; they take no effect.

        fail_next("Produce", "NOT_LEADER_OR_FOLLOWER"), by Kafka's names. `broker`: only there;
        otherwise the next that any broker receives.
        """
        name = APIS[api].name if isinstance(api, ApiKey) else api
        code = error.name if isinstance(error, ErrorCode) else error
        if times < 1:
            raise KitError(f"times={times}: must be at least 1")
        self._all.fail_next(name, code, times=times, broker_id=broker)

    @verb
    def expire_session(self, broker: int) -> None:
        """End a broker's session with the coordination store: it is registered no longer.

        It registers again at once, with another broker epoch.
        """
        self._all.expire_session(broker)

    @verb
    def advance(self, **duration: float) -> None:
        """Advance the brokers' wall clock by the fields of a timedelta, such as `hours=25`.

        When this returns, the brokers have deleted what has become too old: records by
        retention, committed offsets, transactions. Sessions and requests do not time out.
        """
        ahead = timedelta(**duration)
        if ahead < timedelta():
            raise KitError(f"advance by {ahead}: the clock does not go back")
        self._ahead += ahead
        self._all.set_clock(int(self._ahead.total_seconds() * 1000))

    # -------------------------------------------------------------------- topics and records

    @verb
    def topic(
        self, name: str, partitions: int = 1, *, replicas: int | None = None, **configs: object
    ) -> str:
        """Create a topic; its name. Options are Kafka's with `_` for `.`: retention_ms=1000."""
        options = topic_options(configs)
        copies = min(3, self.brokers) if replicas is None else replicas
        self._ask(lambda clients: clients.create_topic(name, partitions, copies, options))
        return name

    @verb
    def produce(self, topic: str, *records: Expected, partition: int | None = None) -> list[int]:
        """Write values, or pairs of key and value, with acks=all; their offsets."""
        pairs = [
            (content(each[0]), content(each[1]))
            if isinstance(each, tuple)
            else (None, content(each))
            for each in records
        ]
        return self._ask(lambda clients: clients.produce(topic, pairs, partition))

    @verb
    def records(self, topic: str, *, isolation: str = _READ_COMMITTED) -> list[Found]:
        """All records of a topic, by partition and offset."""
        found = self._ask(lambda clients: clients.records(topic, isolation))
        return [Found(each.partition, each.offset, each.key, each.value) for each in found]

    @verb
    def leader(self, topic: str, partition: int = 0) -> int:
        """The broker that leads a partition; -1 if none does."""
        return self._partition(topic, partition).leader_id

    @verb
    def isr(self, topic: str, partition: int = 0) -> list[int]:
        """The in-sync replicas of a partition, sorted."""
        return sorted(self._partition(topic, partition).isr_nodes)

    def _partition(self, topic: str, partition: int) -> "MetadataResponsePartition":
        found = self._ask(lambda clients: clients.partitions(topic))
        if not 0 <= partition < len(found):
            raise KitError(f"topic {topic} has partitions 0 to {len(found) - 1}, not {partition}")
        return found[partition]

    @verb
    def controller(self) -> int:
        """The broker that is the active controller; -1 if none is."""
        return self._ask(lambda clients: clients.controller())

    # -------------------------------------------------------------- groups and transactions

    @verb
    def lag(self, topic: str, group: str | None = None) -> int:
        """The number of records in a topic that a group has not committed yet.

        Without a group: of the only one that has committed offsets there.

        Raises:
            KitError: none has, or several have.
        """
        if group is None:
            groups = self._ask(lambda clients: clients.groups_with(topic))
            if len(groups) != 1:
                raise KitError(
                    f"lag({topic!r}): "
                    + (f"name one of the groups {', '.join(groups)}" if groups
                       else "no group has committed offsets there")
                )  # fmt: skip
            group = groups[0]
        name = group
        found = self._ask(lambda clients: clients.committed(name, topic))
        return sum(each.end - max(0, each.offset) for each in found.values())

    @verb
    def committed(self, group: str, topic: str) -> dict[int, int]:
        """The committed offset of each partition; -1: there is none."""
        found = self._ask(lambda clients: clients.committed(group, topic))
        return {partition: each.offset for partition, each in found.items()}

    @verb
    def force_rebalance(self, group: str) -> None:
        """Let all members of a group join again, as when another one comes and goes."""
        self._ask(lambda clients: clients.force_rebalance(group))

    @verb
    def fence(self, transactional_id: str) -> None:
        """Fence the producer of a transactional id: its transaction is aborted."""
        self._ask(lambda clients: clients.fence(transactional_id))

    # -------------------------------------------------------------------------- assertions

    def wait_for(
        self, condition: Callable[[], T], *, timeout_s: float = TIMEOUT_S, message: str = ""
    ) -> T:
        """Call a condition until it is true (`odradek.testkit.wait_for`)."""
        __tracebackhide__ = True
        return wait_for(condition, timeout_s=timeout_s, message=message)

    @verb
    def assert_records(
        self,
        topic: str,
        expected: Iterable[Expected],
        *,
        in_order: bool | None = None,
        isolation: str = _READ_COMMITTED,
        timeout_s: float = TIMEOUT_S,
    ) -> None:
        """All records of a topic are these: values, or pairs of key and value.

        It waits until there are as many. The order counts if the topic has one partition.
        """
        __tracebackhide__ = True
        wanted = list(expected)
        if in_order is None:
            in_order = len(self._ask(lambda clients: clients.partitions(topic))) == 1
        found = self._records_by(topic, len(wanted), isolation, timeout_s)
        _fail_if(wrong_records(topic, found, wanted, in_order=in_order))

    @verb
    def assert_exactly_once(
        self, topic: str, expected: Iterable[Expected], *, timeout_s: float = TIMEOUT_S
    ) -> None:
        """Of committed transactions each of these is in a topic once, and nothing else.

        No transaction may be open.
        """
        __tracebackhide__ = True
        wanted = list(expected)
        found = self._records_by(topic, len(wanted), _READ_COMMITTED, timeout_s)
        _fail_if(not_exactly_once(topic, found, wanted))
        stable = self._ask(lambda clients: clients.end_offsets(topic, _READ_COMMITTED))
        ends = self._ask(lambda clients: clients.end_offsets(topic, "read_uncommitted"))
        _fail_if(
            "\n".join(
                f"a transaction is open in {topic}-{partition}: its first record is at offset "
                f"{stable[partition]}, and the partition ends at {end}"
                for partition, end in ends.items()
                if stable[partition] < end
            )
        )

    @verb
    def assert_committed(
        self,
        group: str,
        topic: str,
        expected: int | Mapping[int, int],
        *,
        timeout_s: float = TIMEOUT_S,
    ) -> None:
        """A group has committed these offsets: by partition, or a number for partition 0.

        It waits until it has.
        """
        __tracebackhide__ = True
        wanted = {0: expected} if isinstance(expected, int) else expected
        deadline_s = time.monotonic() + timeout_s
        while True:
            wrong = wrong_offsets(group, topic, self.committed(group, topic), wanted)
            if wrong is None or time.monotonic() >= deadline_s:
                _fail_if(wrong)
                return
            time.sleep(_PAUSE_S)

    def _records_by(self, topic: str, count: int, isolation: str, timeout_s: float) -> list[Found]:
        """The records, when there are so many or the time-out has passed."""
        deadline_s = time.monotonic() + timeout_s
        while True:
            found = self.records(topic, isolation=isolation)
            if len(found) >= count or time.monotonic() >= deadline_s:
                return found
            time.sleep(_PAUSE_S)

    # ------------------------------------------------------------------------------ inside

    def _ask(self, question: "Callable[[Clients], Coroutine[Any, Any, T]]") -> T:
        """Run a coroutine of a client that connects to brokers that run."""
        from odradek.testkit.clients import Clients  # noqa: PLC0415 - with the first question

        brokers = self._all
        up = [each for each in brokers.ids if brokers.state(each) == "running"]
        if not up:
            raise KitError("no broker runs: start one first")
        up = [each for each in up if each not in self._cut_off()] or up
        clients = Clients(",".join(map(brokers.address, up)))
        return brokers.run(question(clients))

    def _cut_off(self) -> set[Member]:
        """The brokers of a partition that are not asked: their metadata is not kept up to date.

        Asked are those that have the store or, if all have it, those of the largest group.
        """
        if not self._groups:
            return set()
        asked = max(
            self._groups,
            key=lambda group: (STORE in group, sum(isinstance(each, int) for each in group)),
        )
        return {member for group in self._groups if group is not asked for member in group}


def _fail_if(wrong: str | None) -> None:
    __tracebackhide__ = True
    if wrong:
        raise AssertionError(wrong)
