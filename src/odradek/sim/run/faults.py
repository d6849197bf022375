"""Faults: a schedule drawn from the seed, and its execution.

A fault begins, lasts, and heals. Faults of one broker (it is killed, pauses, its disk fails) wait
for each other; those of the network, the store and the clocks overlap with them. The schedule is a
list, so that a failing one can be shrunk by leaving faults out.
"""

import asyncio
import errno
from collections.abc import Awaitable, Callable, Sequence
from contextlib import AsyncExitStack, suppress
from dataclasses import dataclass
from enum import Enum
from typing import Final

from odradek.coord import layout
from odradek.coord.store import Create, Delete, NodeExistsError, NoNodeError, SetData
from odradek.model.partition import Assignment, TopicPartition
from odradek.sim.run.backups import put_logs_back, put_store_back
from odradek.sim.run.disk_faults import RESTART_S, fail_moments, slow_disk, take_descriptors
from odradek.sim.run.store_faults import cut_store, lose_requests, slow_down
from odradek.sim.world.cluster import (
    LOG_DIRS,
    SESSION_TIMEOUT_MS,
    SimulatedBroker,
    SimulatedCluster,
)
from odradek.sim.world.disk import UNLIMITED, DiskFault
from odradek.sim.world.network import USUAL_DELAY_MS
from odradek.sim.world.old_formats import rewrite_in_old_formats

HOUR_MS: Final = 3_600_000
FOR_EVER: Final = 1 << 60
INTERNAL_TOPICS: Final = ("__consumer_offsets", "__transaction_state")
INTERNAL_PARTITIONS_MAX: Final = 6


class Kind(Enum):
    """The kinds of faults."""

    KILL = "kill -9"
    CRASH = "kill -9 within a write"
    POWER = "power loss"
    STOP = "clean stop"
    STOP_AND_POWER = "clean stop, then power loss"
    PAUSE = "pause"
    SLOW_DISK = "slow disk"
    DIR_FULL = "log dir full"
    DISK_FULL = "disk full"
    DISK_ERROR = "disk errors"
    FLUSH_ERROR = "flush errors"
    RESET = "connections reset"
    CUT = "links cut"
    SLOW_NETWORK = "slow network"
    EXPIRE = "store session expires"
    STORE_CUT = "store unreachable"
    STORE_TROUBLE = "store loses requests and answers"
    SLOW_STORE = "store answers late"
    CLOCK = "clock jumps"
    ISOLATE = "cut off from brokers and store, not from clients"
    NO_CONTROLLER_REQUESTS = "receives no requests of the controller"
    MOVE = "an administrator moves leadership"
    DEPOSE = "an administrator removes the controller's node"
    BLACKOUT = "power loss of all brokers at once"
    LATE_STOP_REPLICA = "a former controller's StopReplica arrives late"
    LOST_ISR_UPDATE = "the response to an ISR expansion is lost, and the follower falls behind"
    FLAP = "a link between two brokers is cut and healed repeatedly"
    SLOW_LINK = "what one broker sends another is delayed"
    LEADER_CHANGES = "leadership changes several times"
    LOAD_ERROR = "an internal topic cannot be read after a restart"
    ROLL = "the brokers are restarted in turn"
    LATE_UPDATE_METADATA = "the controller's requests to one broker are delayed"
    GROW_INTERNAL = "an administrator adds partitions to an internal topic"
    DISK_MOMENTS = "single operations of the disk fail"
    DESCRIPTORS = "hardly any descriptor is free, repeatedly"
    STORE_BACKUP = "the store is put back from a backup"
    LOGS_BACKUP = "log directories of a broker are put back from a backup"
    OLD_FORMATS = "clean stop; the logs are as an earlier Kafka wrote them"


# Hardly ever drawn at a time when they have an effect: they wait for that time themselves.
_CONTRIVED: Final = frozenset({Kind.LATE_STOP_REPLICA, Kind.LOST_ISR_UPDATE})
_PATIENCE_S: Final = 20.0
# Drawn in addition, for seeds with a trait.
_OF_TRAITS: Final = (Kind.SLOW_STORE, Kind.OLD_FORMATS)
# Faults of coordinators.
OF_COORDINATORS: Final = (Kind.LOAD_ERROR, Kind.ROLL, Kind.LATE_UPDATE_METADATA, Kind.GROW_INTERNAL)
# Faults of single operations of a disk that is sound otherwise.
OF_MOMENTS: Final = (Kind.DISK_MOMENTS, Kind.DESCRIPTORS)
# Faults of an administrator.
OF_BACKUPS: Final = (Kind.STORE_BACKUP, Kind.LOGS_BACKUP)
# Faults that need several brokers.
OF_SEVERAL: Final = _CONTRIVED | {
    *OF_BACKUPS,
    Kind.ROLL,
    Kind.LATE_UPDATE_METADATA,
    Kind.ISOLATE,
    Kind.NO_CONTROLLER_REQUESTS,
    Kind.MOVE,
    Kind.DEPOSE,
    Kind.FLAP,
    Kind.SLOW_LINK,
    Kind.LEADER_CHANGES,
}
# The default kinds. Without flushes before acknowledgements, no cluster survives a blackout.
USUAL: Final = tuple(
    kind
    for kind in Kind
    if kind not in _CONTRIVED.union(OF_COORDINATORS, OF_MOMENTS, OF_BACKUPS, _OF_TRAITS)
    and kind not in {Kind.BLACKOUT, Kind.FLAP, Kind.SLOW_LINK, Kind.LEADER_CHANGES}
)
# Faults after which every record is still there, as long as the log directories can be read.
LOSSLESS: Final = (
    Kind.KILL, Kind.CRASH, Kind.STOP, Kind.PAUSE, Kind.SLOW_DISK, Kind.RESET, Kind.CUT,
    Kind.SLOW_NETWORK, Kind.EXPIRE, Kind.STORE_CUT, Kind.STORE_TROUBLE,
)  # fmt: skip


def kinds_with_coordinators(brokers: int, *, durable: bool = False) -> tuple[Kind, ...]:
    """Faults after which everything acknowledged is still there, including coordinators' faults.

    With several brokers, one at a time may lose power. A single broker, or all at once, may if
    brokers acknowledge only flushed records (`durable`).
    """
    if brokers > 1:
        return (*USUAL, *OF_COORDINATORS, *([Kind.BLACKOUT] * 4 if durable else ()))
    powerless = (*[Kind.POWER] * 4, Kind.STOP_AND_POWER) if durable else ()
    return (*LOSSLESS, *OF_COORDINATORS, *powerless)


@dataclass(frozen=True, slots=True)
class Fault:
    """One fault with its time, duration and broker."""

    number: int
    kind: Kind
    at_s: float
    lasts_s: float
    broker: int
    detail: float  # between 0 and 1: all further choices derive from it

    def __str__(self) -> str:
        return (
            f"[{self.number}] {self.at_s:.3f} s: {self.kind.value}, broker {self.broker}, "
            f"{self.lasts_s:.3f} s, {self.detail:.3f}"
        )


class FaultPlayer:
    """Executes a schedule, and restarts brokers that have stopped by themselves."""

    def __init__(self, cluster: SimulatedCluster, schedule: Sequence[Fault]) -> None:
        self.played = 0
        self._cluster = cluster
        self._schedule = schedule
        self._owned = [asyncio.Lock() for _ in cluster.brokers]  # held by a fault while it lasts
        self._network_troubles = 0
        self._healed_s = 0.0
        self._keepers: list[asyncio.Task[None]] = []

    @property
    def healed_for_s(self) -> float:
        """For how long no fault has been active; 0 while one is."""
        quiet = not self._network_troubles and not any(lock.locked() for lock in self._owned)
        return self._cluster.loop.time() - self._healed_s if quiet else 0.0

    async def play(self) -> None:
        """Execute the schedule; returns when everything has healed."""
        self._keepers = [asyncio.create_task(self._keep(b)) for b in self._cluster.brokers]
        async with asyncio.TaskGroup() as group:
            for fault in self._schedule:
                group.create_task(self._play(fault))
        for broker in self._cluster.brokers:
            broker.spare()
            if not broker.is_up:
                broker.start()

    def stop(self) -> None:
        """Restart no brokers any more."""
        for keeper in self._keepers:
            keeper.cancel()

    async def _keep(self, broker: SimulatedBroker) -> None:
        """Restart a broker that has stopped by itself, as systemd does."""
        while True:
            await asyncio.sleep(0.5)
            if self._is_abandoned(broker):
                await asyncio.sleep(RESTART_S)
                if self._is_abandoned(broker):
                    broker.start()
                    self._healed_s = self._cluster.loop.time()

    def _is_abandoned(self, broker: SimulatedBroker) -> bool:
        return not (broker.is_up or self._owned[broker.id].locked())

    async def _play(self, fault: Fault) -> None:
        await asyncio.sleep(fault.at_s)
        await self.play_one(fault)

    async def play_one(self, fault: Fault) -> None:
        """Execute one fault now; returns when it has healed."""
        broker = self._cluster.brokers[fault.broker]
        alone, play = _PLAYS[fault.kind]
        if alone:
            # While the store is put back, no broker has a fault of its own.
            is_of_all = fault.kind is Kind.STORE_BACKUP
            owned = self._owned if is_of_all else [self._owned[broker.id]]
            async with AsyncExitStack() as locked:
                for lock in owned:
                    await locked.enter_async_context(lock)
                await self._run(fault, broker, play)
        else:
            self._network_troubles += 1
            await self._run(fault, broker, play)
            self._network_troubles -= 1
        self._healed_s = self._cluster.loop.time()

    async def _run(self, fault: Fault, broker: SimulatedBroker, play: "Play") -> None:
        self.played += 1
        self._cluster.trace(f"fault {fault} begins")
        await play(self._cluster, broker, fault)
        self._cluster.trace(f"fault {fault} has healed")


# ------------------------------------------------------------------------ one function a kind

Play = Callable[[SimulatedCluster, SimulatedBroker, Fault], Awaitable[None]]


async def _start_again(broker: SimulatedBroker, fault: Fault) -> None:
    await asyncio.sleep(RESTART_S + fault.lasts_s)
    if not broker.is_up:
        broker.start()
    if fault.detail < 0.3:  # again, early: a crash during start or recovery
        await asyncio.sleep(0)
        broker.crash_after(int(fault.detail * 100))
        await asyncio.sleep(RESTART_S)
        if not broker.is_up:
            broker.start()


async def _worst_wait_until(cluster: SimulatedCluster, fault: Fault) -> None:
    if fault.detail > 0.4:
        await cluster.next_promise(timeout_s=5.0)


async def _kill(cluster: SimulatedCluster, broker: SimulatedBroker, fault: Fault) -> None:
    await _worst_wait_until(cluster, fault)
    broker.kill()
    await _start_again(broker, fault)


async def _crash(cluster: SimulatedCluster, broker: SimulatedBroker, fault: Fault) -> None:
    del cluster
    broker.crash_after(int(fault.detail * 40))
    try:
        async with asyncio.timeout(2.0):
            await broker.ended()
    except TimeoutError:
        broker.kill()
    await _start_again(broker, fault)


def _may_lose(cluster: SimulatedCluster, broker: SimulatedBroker) -> bool:
    """Whether this broker may lose unflushed records.

    Replication tolerates one such loss at a time: the next may follow when the first broker is in
    sync again.
    """
    return len(cluster.brokers) == 1 or not cluster.lossy - {broker.id}


async def _lose_power(cluster: SimulatedCluster, broker: SimulatedBroker, fault: Fault) -> None:
    others = [other.name for other in cluster.brokers if other is not broker]
    if cluster.strays and others:  # what it sends now arrives after its next registration
        by_s = RESTART_S + fault.lasts_s + 2 * fault.detail
        cluster.network.hold_up(broker.name, others, by_s)
        await asyncio.sleep(fault.detail)
    await _worst_wait_until(cluster, fault)
    if _may_lose(cluster, broker):
        broker.lose_power()
    else:
        broker.kill()
    cluster.network.hold_up(broker.name, others, 0.0)
    await _start_again(broker, fault)


async def _black_out(cluster: SimulatedCluster, broker: SimulatedBroker, fault: Fault) -> None:
    del broker
    await _worst_wait_until(cluster, fault)
    for each in cluster.brokers:
        each.lose_power()
    await asyncio.sleep(RESTART_S + fault.lasts_s)
    for each in cluster.brokers:
        if not each.is_up:
            each.start()


async def _stop(cluster: SimulatedCluster, broker: SimulatedBroker, fault: Fault) -> None:
    del cluster
    if broker.is_up:
        await broker.stop()
    await _start_again(broker, fault)


async def _age(cluster: SimulatedCluster, broker: SimulatedBroker, fault: Fault) -> None:
    if broker.is_up:
        await broker.stop()
        if not broker.gave_up:
            rewrite_in_old_formats(broker.disk, cluster.randomness(f"formats {fault.number}"))
    await _start_again(broker, fault)


async def _stop_and_lose_power(
    cluster: SimulatedCluster, broker: SimulatedBroker, fault: Fault
) -> None:
    if broker.is_up:
        await broker.stop()
    if _may_lose(cluster, broker):  # it may have crashed while it stopped
        broker.lose_power()
    await _start_again(broker, fault)


async def _pause(cluster: SimulatedCluster, broker: SimulatedBroker, fault: Fault) -> None:
    del cluster
    broker.pause()
    await asyncio.sleep(fault.lasts_s)
    broker.resume()


def _failing(error: int, *operations: str, loses_pages: bool = False) -> Play:
    """A log dir fails for a while; then the broker is restarted, as Kafka requires.

    A failed flush may have lost pages without any indication: so the host loses power with the
    broker, and the loss becomes visible.
    """

    async def play(cluster: SimulatedCluster, broker: SimulatedBroker, fault: Fault) -> None:
        if loses_pages and not _may_lose(cluster, broker):
            return
        if loses_pages:
            cluster.lossy.add(broker.id)
            cluster.losing.add(broker.id)
        operation = operations[int(fault.detail * 1000) % len(operations)]
        path = "" if fault.detail > 0.9 else LOG_DIRS[int(fault.detail * 100) % len(LOG_DIRS)]
        skip = int(fault.detail * 10_000) % 20
        broker.disk.faults.append(
            DiskFault(operation, path, errno=error, after=skip, times=FOR_EVER)
        )
        await asyncio.sleep(fault.lasts_s)
        broker.disk.faults.clear()
        if loses_pages:
            broker.lose_power()
            cluster.losing.discard(broker.id)
        elif broker.is_up:
            await broker.stop()
        await _start_again(broker, fault)

    return play


async def _fail_loads(cluster: SimulatedCluster, broker: SimulatedBroker, fault: Fault) -> None:
    """Reads of an internal topic fail once or a few times while a coordinator loads it.

    The load follows a restart, or a change of leaders. The error is EMFILE, which is temporary, or
    EIO, which takes the log directory offline until a restart.
    """
    drawn = int(fault.detail * 1_000)
    error = errno.EIO if drawn % 3 == 0 else errno.EMFILE
    log = f"{INTERNAL_TOPICS[drawn % 2]}-{drawn // 7 % 2}/00000000000000000000.log"
    is_restarted = len(cluster.brokers) == 1 or drawn % 5 < 2
    if is_restarted:
        if broker.is_up:
            await broker.stop()
        await asyncio.sleep(RESTART_S)
    # The first reads open the log.
    skip = drawn % 4 if is_restarted else 0
    failing = DiskFault("read", log, errno=error, after=skip, times=1 + drawn % 3)
    broker.disk.faults.append(failing)
    if not broker.is_up:
        broker.start()
    elif not is_restarted:
        await _prefer_others(cluster, drawn, pause_s=0.5)
    await asyncio.sleep(4.0 + fault.lasts_s)
    broker.disk.faults.clear()
    # Outside of a coordinator, any read error takes the directory offline.
    if broker.is_up and broker.broker is not None and broker.broker.logs.has_offline_dir:
        await broker.stop()
    if not broker.is_up:
        broker.start()


async def _roll(cluster: SimulatedCluster, broker: SimulatedBroker, fault: Fault) -> None:
    """A rolling restart: one broker after the other, without waiting for in-sync replicas."""
    del broker
    for each in cluster.brokers:
        if each.is_up:
            await each.stop()
        await asyncio.sleep(RESTART_S)
        if not each.is_up:
            each.start()
        await asyncio.sleep(1.0 + fault.lasts_s / 4)


async def _grow_internal(cluster: SimulatedCluster, broker: SimulatedBroker, fault: Fault) -> None:
    """What `kafka-topics --alter --partitions` does to an internal topic."""
    del broker
    drawn = int(fault.detail * 1_000)
    topic = INTERNAL_TOPICS[drawn % len(INTERNAL_TOPICS)]
    path = layout.topic_path(topic)
    node = cluster.tree.find(path)
    if node is None:
        return
    known = layout.decode_topic(topic, node.data)
    first = known.assignments[0]
    if len(known.assignments) >= INTERNAL_PARTITIONS_MAX or first.adding or first.removing:
        return
    grown = dict(known.assignments)
    for _ in range(1 + drawn % 2):
        by = len(grown) % len(first.replicas)
        replicas = (*first.replicas[by:], *first.replicas[:by])
        grown[len(grown)] = Assignment(replicas=replicas)
    data = layout.encode_topic(layout.TopicNode(topic_id=known.topic_id, assignments=grown))
    _ask_by_node(cluster, SetData(path, data))
    await asyncio.sleep(fault.lasts_s)


async def _fill(cluster: SimulatedCluster, broker: SimulatedBroker, fault: Fault) -> None:
    """Both log dirs are on one full filesystem: a write is incomplete, later ones fail."""
    del cluster
    left_bytes = int(fault.detail * 20_000)
    broker.disk.capacity_bytes = UNLIMITED - broker.disk.usable_bytes("/") + left_bytes
    await asyncio.sleep(fault.lasts_s)
    broker.disk.capacity_bytes = UNLIMITED
    if broker.is_up:
        await broker.stop()
    await _start_again(broker, fault)


async def _reset(cluster: SimulatedCluster, broker: SimulatedBroker, fault: Fault) -> None:
    del broker
    cluster.network.reset_some(fault.detail)


async def _cut(cluster: SimulatedCluster, broker: SimulatedBroker, fault: Fault) -> None:
    others = [p.name for p in cluster.processes if not p.is_dead and p.name != broker.name]
    brokers = [b.name for b in cluster.brokers if b is not broker]
    if brokers:  # from all hosts, from the other brokers, or from some of them
        others = (others, brokers, brokers[:1], brokers[1:])[int(fault.detail * 1000) % 4]
    links = []
    for name in dict.fromkeys(others):
        if fault.detail < 0.7:
            links.append((name, broker.name))
        if fault.detail > 0.4:
            links.append((broker.name, name))
    for link in links:
        cluster.network.cut(*link)
    await asyncio.sleep(fault.lasts_s)
    cluster.network.heal(links)


async def _flap(cluster: SimulatedCluster, broker: SimulatedBroker, fault: Fault) -> None:
    """Cut and heal a link between two brokers repeatedly, in one direction or in both."""
    others = [other for other in cluster.brokers if other is not broker]
    other = others[int(fault.detail * 1000) % len(others)]
    links = [(broker.name, other.name), (other.name, broker.name)]
    if fault.detail < 0.6:
        del links[1:]
    for up_s in (0.3, 1.5, 0.3):
        for link in links:
            cluster.network.cut(*link)
        await asyncio.sleep(1.0 + fault.lasts_s / 2)
        cluster.network.heal(links)
        await asyncio.sleep(up_s)


async def _slow_link(cluster: SimulatedCluster, broker: SimulatedBroker, fault: Fault) -> None:
    """Delay a link between two brokers: a follower lags, but no broker is cut off."""
    others = [other for other in cluster.brokers if other is not broker]
    other = others[int(fault.detail * 1000) % len(others)]
    cluster.network.slow_down(broker.name, other.name, 0.2 + fault.detail)
    await asyncio.sleep(1.0 + fault.lasts_s)
    cluster.network.slow_down(broker.name, other.name, 0.0)


async def _isolate(cluster: SimulatedCluster, broker: SimulatedBroker, fault: Fault) -> None:
    """Cut a broker off from the others and the store; as a former leader it keeps serving."""
    store = broker.store
    links = [
        link
        for other in cluster.brokers
        if other is not broker
        for link in ((other.name, broker.name), (broker.name, other.name))
    ]
    for link in links:
        cluster.network.cut(*link)
    if store is not None:
        store.cut()
    await asyncio.sleep(fault.lasts_s + SESSION_TIMEOUT_MS / 1000)
    cluster.network.heal(links)
    if store is not None and broker.store is store:
        store.restore()


async def _lose_controller_requests(
    cluster: SimulatedCluster, broker: SimulatedBroker, fault: Fault
) -> None:
    """Cut the link from the controller to a broker, which keeps its roles."""
    controller = cluster.controller()
    if controller is not None and controller is not broker:
        link = (controller.name, broker.name)
        cluster.network.cut(*link)
        await asyncio.sleep(fault.lasts_s)
        cluster.network.heal([link])


async def _delay_controller_requests(
    cluster: SimulatedCluster, broker: SimulatedBroker, fault: Fault
) -> None:
    """Delay the controller's requests to one broker, LeaderAndIsr and UpdateMetadata included."""
    controller = cluster.controller()
    if controller is None:
        return
    others = [other for other in cluster.brokers if other is not controller]
    late = broker if broker in others else others[int(fault.detail * 1000) % len(others)]
    cluster.network.slow_down(controller.name, late.name, 0.3 + 2 * fault.detail)
    await asyncio.sleep(2.0 + fault.lasts_s)
    cluster.network.slow_down(controller.name, late.name, 0.0)


async def _move(cluster: SimulatedCluster, broker: SimulatedBroker, fault: Fault) -> None:
    """Change leaders while all replicas are in sync, through the znodes of the old tools."""
    del broker
    await _prefer_others(cluster, int(fault.detail * 1000), pause_s=0.1 + fault.detail)
    await asyncio.sleep(fault.lasts_s)


async def _change_leaders(cluster: SimulatedCluster, broker: SimulatedBroker, fault: Fault) -> None:
    """Change leaders several times, before all brokers can have received the change before."""
    del broker
    drawn = int(fault.detail * 10_000)
    for turn in range(3 + drawn % 3):
        await _prefer_others(cluster, drawn >> turn, pause_s=0.1)
        await asyncio.sleep(0.3 + fault.detail)


async def _prefer_others(cluster: SimulatedCluster, drawn: int, *, pause_s: float) -> None:
    """Rotate the replicas of all partitions, then elect the preferred leaders."""
    targets = {}
    for topic in cluster.tree.names(layout.TOPICS):
        node = cluster.tree.node(layout.topic_path(topic))
        for index, assignment in layout.decode_topic(topic, node.data).assignments.items():
            replicas = assignment.target
            by = 1 + (drawn + index) % max(1, len(replicas) - 1)
            targets[TopicPartition(topic, index)] = (*replicas[by:], *replicas[:by])
    moves = layout.encode_reassign_partitions(targets)
    _ask_by_node(cluster, Create(layout.REASSIGN_PARTITIONS, moves))
    await asyncio.sleep(pause_s)
    elections = layout.encode_partitions(targets)
    _ask_by_node(cluster, Create(layout.PREFERRED_REPLICA_ELECTION, elections))


def _ask_by_node(cluster: SimulatedCluster, wanted: Create | SetData | Delete) -> None:
    """Write to the store as a tool does; the node may exist, or be removed, already."""
    with suppress(NodeExistsError, NoNodeError):
        cluster.tree.write(lambda draft: draft.single(wanted, session=0))


async def _depose(cluster: SimulatedCluster, broker: SimulatedBroker, fault: Fault) -> None:
    """Delete the controller's node; the former controller is notified by its watch."""
    del broker, fault
    _ask_by_node(cluster, Delete(layout.CONTROLLER))


async def _stop_replica_late(
    cluster: SimulatedCluster, broker: SimulatedBroker, fault: Fault
) -> None:
    """Depose a controller during a topic deletion, and deliver its requests to one broker late.

    The former controller runs on; its store is unreachable for less than its session time-out.
    """
    del fault
    tree = cluster.tree
    if not await _wait_until(lambda: bool(tree.names(layout.DELETE_TOPICS))):
        return
    former = cluster.controller()
    if former is None or former is broker or former.store is None:
        return
    if any(cluster.network.is_cut(former.name, other.name) for other in cluster.brokers):
        return  # one at a time: else no other broker could be elected
    store, links = former.store, [(former.name, broker.name)]
    name = tree.names(layout.DELETE_TOPICS)[0]
    path = layout.topic_path(name)
    before = tree.find(path)
    cluster.network.cut(*links[0])
    await asyncio.sleep(0.2)  # the other replicas are deleted
    store.cut()
    _ask_by_node(cluster, Delete(layout.CONTROLLER))
    # Another controller is elected, and the topic is created again.
    cluster.missed_topic = name
    await _wait_until(
        lambda: (
            (node := tree.find(path)) is not None
            and (before is None or node.created_id != before.created_id)
        ),
        patience_s=SESSION_TIMEOUT_MS / 1000 - 2.0,
    )
    cluster.missed_topic = None
    await asyncio.sleep(0.5)
    cluster.network.heal(links)
    await asyncio.sleep(1.0)
    if former.store is store:
        store.restore()


async def _lose_isr_update(
    cluster: SimulatedCluster, broker: SimulatedBroker, fault: Fault
) -> None:
    """Lose the response to an ISR expansion, then cut the new member off from the leader."""
    joining: set[int] = set()
    others: set[int] = set()

    def asks() -> bool:
        running = broker.broker
        for partition in running.replicas if running is not None else ():
            if partition.leader is not None and partition.leader.isr.is_in_flight:
                isr = partition.leader.isr
                if len(isr.committed) > 1:  # min.insync.replicas also without the new one
                    joining.update(set(isr.proposed) - set(isr.committed))
                    others.update(isr.committed)
        return bool(joining)

    if not await _wait_until(asks):
        return
    controller = cluster.controller()
    if controller is None or controller.id in others:
        return  # the controller is a follower that could not fetch: nothing would be committed
    joined = cluster.brokers[min(joining)]
    links = [(controller.name, broker.name)]
    if joined is not controller:
        links += [(joined.name, broker.name), (broker.name, joined.name)]
    for link in links:
        cluster.network.cut(*link)
    await asyncio.sleep(3.0 + fault.lasts_s)
    broker.kill()  # `_keep` restarts it
    await asyncio.sleep(1.0)
    cluster.network.heal(links)


async def _wait_until(condition: Callable[[], bool], *, patience_s: float = _PATIENCE_S) -> bool:
    """Wait for a condition; False if it does not come true in time."""
    for _ in range(int(patience_s * 1000)):
        if condition():
            return True
        await asyncio.sleep(0.001)
    return False


async def _slow_network(cluster: SimulatedCluster, broker: SimulatedBroker, fault: Fault) -> None:
    del broker
    cluster.network.delay_ms = (1.0, 20 + 500 * fault.detail)
    await asyncio.sleep(fault.lasts_s)
    cluster.network.delay_ms = USUAL_DELAY_MS


async def _expire(cluster: SimulatedCluster, broker: SimulatedBroker, fault: Fault) -> None:
    del fault
    if broker.store is not None:
        cluster.tree.expire(broker.store.session_id)


async def _jump(cluster: SimulatedCluster, broker: SimulatedBroker, fault: Fault) -> None:
    del cluster
    broker.clock.skew_ms = int((fault.detail * 2 - 1) * HOUR_MS)
    await asyncio.sleep(fault.lasts_s)
    if fault.detail < 0.8:
        broker.clock.skew_ms = 0


async def _put_store_back(cluster: SimulatedCluster, broker: SimulatedBroker, fault: Fault) -> None:
    await put_store_back(cluster, broker, lasts_s=fault.lasts_s, detail=fault.detail)


async def _put_logs_back(cluster: SimulatedCluster, broker: SimulatedBroker, fault: Fault) -> None:
    await put_logs_back(cluster, broker, lasts_s=fault.lasts_s, detail=fault.detail)


# Whether the fault excludes others of its broker, and its function.
_PLAYS: Final[dict[Kind, tuple[bool, Play]]] = {
    Kind.KILL: (True, _kill),
    Kind.CRASH: (True, _crash),
    Kind.POWER: (True, _lose_power),
    Kind.STOP: (True, _stop),
    Kind.STOP_AND_POWER: (True, _stop_and_lose_power),
    Kind.PAUSE: (True, _pause),
    Kind.SLOW_DISK: (True, slow_disk),
    Kind.DIR_FULL: (True, _failing(errno.ENOSPC, "write", "create")),
    Kind.DISK_FULL: (True, _fill),
    Kind.DISK_ERROR: (True, _failing(errno.EIO, "write", "read", "rename", "list")),
    Kind.FLUSH_ERROR: (True, _failing(errno.EIO, "flush", "", loses_pages=True)),
    Kind.RESET: (False, _reset),
    Kind.CUT: (False, _cut),
    Kind.SLOW_NETWORK: (False, _slow_network),
    Kind.EXPIRE: (False, _expire),
    Kind.STORE_CUT: (False, lambda _, broker, fault: cut_store(broker, fault.lasts_s)),
    Kind.STORE_TROUBLE: (
        False,
        lambda cluster, _, fault: lose_requests(cluster, fault.lasts_s, fault.detail),
    ),
    Kind.SLOW_STORE: (
        False,
        lambda cluster, broker, fault: slow_down(cluster, broker, fault.lasts_s, fault.detail),
    ),
    Kind.CLOCK: (False, _jump),
    Kind.ISOLATE: (False, _isolate),
    Kind.NO_CONTROLLER_REQUESTS: (False, _lose_controller_requests),
    Kind.MOVE: (False, _move),
    Kind.DEPOSE: (False, _depose),
    Kind.LATE_STOP_REPLICA: (False, _stop_replica_late),
    Kind.LOST_ISR_UPDATE: (False, _lose_isr_update),
    Kind.BLACKOUT: (True, _black_out),
    Kind.FLAP: (False, _flap),
    Kind.SLOW_LINK: (False, _slow_link),
    Kind.LEADER_CHANGES: (False, _change_leaders),
    Kind.LOAD_ERROR: (True, _fail_loads),
    Kind.ROLL: (False, _roll),
    Kind.LATE_UPDATE_METADATA: (False, _delay_controller_requests),
    Kind.GROW_INTERNAL: (False, _grow_internal),
    Kind.DISK_MOMENTS: (True, fail_moments),
    Kind.DESCRIPTORS: (True, take_descriptors),
    Kind.STORE_BACKUP: (True, _put_store_back),
    Kind.LOGS_BACKUP: (True, _put_logs_back),
    Kind.OLD_FORMATS: (True, _age),
}
