"""Which replicas move: as few bytes as possible, by a small integer programme.

The goal is an assignment in which every broker that may hold replicas has its share, no two
replicas of a partition are in one rack if there are enough racks (else the racks have equally
many, or one more), and as few bytes as possible are copied. In this order:

    1  the replicas (or bytes) above and below the brokers' shares are as few as the racks allow
    2  the bytes copied are as few as that allows
    3  leaders: every broker is the preferred leader of its share, with as few changes as possible

In a drain, and where a replication factor changes, in-sync replicas are kept with priority over all
of that: a reassignment completes when all of its replicas are in sync, and one that keeps replicas
that are behind may never complete. `odradek.plan.move_risks` reports the remaining risks.

For the solver (HiGHS) each existing replica may stay or be removed, and each partition may get new
ones in each rack; the broker within the rack is left open, so that there are some 60,000 unknowns
for 10,000 partitions and not 300,000. Then the new replicas are assigned to the brokers that are
below their share. Every plan is a solution of that smaller problem, so the solver's bound holds for
all plans: `bound_bytes`.
"""

from collections import defaultdict
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from importlib import import_module
from itertools import chain, pairwise
from math import ceil
from typing import Any, Final, NamedTuple

from odradek.model.errors import OdradekError
from odradek.model.extras import install
from odradek.model.partition import TopicPartition
from odradek.plan.cluster import ClusterPicture

Assignment = dict[TopicPartition, tuple[int, ...]]

_TIME_LIMIT_S: Final = 15.0
_WHOLE: Final = 0.5
# The cost of copying an empty replica, in units: it is not moved without need.
_EMPTY: Final = 1e-5
# The tolerated deviation from the shares, of all bytes: an exact balance would move everything.
_BYTES_TOLERANCE: Final = 0.02


class PlanError(OdradekError):
    """There is no such plan; the text has the reason and what would help."""


class MissingTopicError(PlanError):
    """A plan names a topic that the cluster does not have."""

    def __init__(self, topics: Sequence[str]) -> None:
        super().__init__(f"there is no topic {', '.join(topics)}")
        self.topics = tuple(topics)


class Task(NamedTuple):
    """The goal of a plan."""

    brokers: tuple[int, ...]  # those that may hold replicas in the end
    replication_factors: Mapping[TopicPartition, int]
    keeps: bool  # replicas on these brokers stay where they are, unless there are too many
    by_bytes: bool = False  # shares are bytes, not replicas


@dataclass(frozen=True, slots=True)
class MovementPlan:
    """A plan: the assignment before and after, and measures of its quality."""

    before: Assignment
    after: Assignment
    sizes: Mapping[TopicPartition, int]
    moved_bytes: int
    bound_bytes: float  # no plan with the best balance copies less
    imbalance: float  # the sum of the deviations from the shares
    imbalance_bound: float

    @property
    def changed(self) -> list[TopicPartition]:
        """The partitions whose replicas or their order change."""
        return sorted(p for p in self.after if self.after[p] != self.before[p])

    @property
    def moved(self) -> list[TopicPartition]:
        """The partitions that get a new replica."""
        return [p for p in self.changed if set(self.after[p]) - set(self.before[p])]

    @property
    def gap(self) -> float:
        """The fraction by which a plan with the best balance could copy less, at most."""
        if not self.moved_bytes:
            return 0.0
        return max(0.0, 1 - self.bound_bytes / self.moved_bytes)

    def arriving_bytes(self) -> dict[int, int]:
        found: dict[int, int] = defaultdict(int)
        for partition in self.moved:
            for broker in set(self.after[partition]) - set(self.before[partition]):
                found[broker] += self.sizes.get(partition, 0)
        return dict(found)


def rebalance(picture: ClusterPicture, *, by_bytes: bool = False) -> MovementPlan:
    """Balance the replicas: every broker gets its share.

    Raises:
        PlanError: there is no such plan, or no solver is installed.
    """
    factors = {partition: len(held.brokers) for partition, held in picture.partitions.items()}
    return _solve(picture, Task(tuple(sorted(picture.racks)), factors, keeps=False,
                                by_bytes=by_bytes))  # fmt: skip


def drain(picture: ClusterPicture, brokers: Sequence[int]) -> MovementPlan:
    """Remove all replicas from some brokers; those of the others stay.

    Raises:
        PlanError: too few brokers would be left, or no solver is installed.
    """
    left = tuple(sorted(set(picture.racks) - set(brokers)))
    factors = {partition: len(held.brokers) for partition, held in picture.partitions.items()}
    return _solve(picture, Task(left, factors, keeps=True))


def change_replication_factor(
    picture: ClusterPicture, topics: Sequence[str], factor: int
) -> MovementPlan:
    """Change the replication factor of topics; existing replicas stay if possible.

    Raises:
        MissingTopicError: there is no such topic. PlanError: there are fewer brokers than
        `factor`, or no solver is installed.
    """
    missing = sorted(set(topics) - {partition.topic for partition in picture.partitions})
    if missing:
        raise MissingTopicError(missing)
    if factor < 1:
        raise PlanError(f"replication factor {factor}: it has to be 1 or more")
    factors = {
        partition: factor if partition.topic in topics else len(held.brokers)
        for partition, held in picture.partitions.items()
    }
    return _solve(picture, Task(tuple(sorted(picture.racks)), factors, keeps=True))


# ------------------------------------------------------------------------------------ the problem


def _solve(picture: ClusterPicture, task: Task) -> MovementPlan:
    before = {partition: held.brokers for partition, held in picture.partitions.items()}
    sizes = {partition: held.size_bytes for partition, held in picture.partitions.items()}
    most = max(task.replication_factors.values(), default=0)
    if most > len(task.brokers):
        raise PlanError(
            f"replication factor {most} needs as many brokers; there would be {len(task.brokers)}"
        )
    if not before:
        return MovementPlan({}, {}, {}, 0, 0.0, 0.0, 0.0)
    problem = _Problem(picture, task)
    deviation = problem.minimise_deviation()
    bound_units = problem.minimise_movement(deviation)
    replicas = _deal(picture, task, problem)
    changed = {p for p, held in replicas.items() if held != set(before[p])}
    after = _order(before, replicas, task.brokers, changed if task.keeps else replicas.keys())
    moved = sum(len(set(after[p]) - set(before[p])) * sizes[p] for p in after)
    return MovementPlan(
        before,
        after,
        sizes,
        moved,
        bound_units * problem.unit,
        problem.imbalance_of(after),
        deviation * (problem.unit if task.by_bytes else 1.0),
    )


def _solver() -> tuple[Any, Any]:
    """Scipy's solver and sparse matrices: an extra, imported at its first use."""
    try:
        return import_module("scipy.optimize"), import_module("scipy.sparse")
    except ImportError:
        raise PlanError(
            f"moving replicas is planned by scipy, and it is not installed: {install('plan')}"
        ) from None


class _Problem:
    """The integer programme and its solution."""

    def __init__(self, picture: ClusterPicture, task: Task) -> None:
        self._optimize, self._sparse = _solver()
        self._picture = picture
        self._task = task
        self.partitions = sorted(picture.partitions)
        self.racks = sorted({picture.rack_of(broker) for broker in task.brokers})
        self._rack_brokers = {
            rack: [b for b in task.brokers if picture.rack_of(b) == rack] for rack in self.racks
        }
        # The unit of cost, in bytes: a thousandth of the largest partition.
        largest = max((held.size_bytes for held in picture.partitions.values()), default=0)
        self.unit = max(1.0, largest / 1000)
        self._lower: list[float] = []
        self._upper: list[float] = []
        self._cost: list[float] = []
        self._whole: list[int] = []
        self._rows: list[int] = []
        self._columns: list[int] = []
        self._values: list[float] = []
        self._row_lower: list[float] = []
        self._row_upper: list[float] = []
        self.stay: dict[tuple[TopicPartition, int], int] = {}
        self.arrive: dict[tuple[TopicPartition, str], int] = {}
        self.inflow: dict[int, int] = {}
        self._deviations: list[int] = []
        self._declare()
        self._solution: Any = None

    def _variable(self, lower: float, upper: float, cost: float, *, whole: bool) -> int:
        self._lower.append(lower)
        self._upper.append(upper)
        self._cost.append(cost)
        self._whole.append(int(whole))
        return len(self._cost) - 1

    def _row(self, terms: Sequence[tuple[int, float]], lower: float, upper: float) -> None:
        row = len(self._row_lower)
        for column, value in terms:
            self._rows.append(row)
            self._columns.append(column)
            self._values.append(value)
        self._row_lower.append(lower)
        self._row_upper.append(upper)

    def weight(self, partition: TopicPartition) -> float:
        """The weight of a replica in a broker's share."""
        size = self._picture.partitions[partition].size_bytes
        return size / self.unit if self._task.by_bytes else 1.0

    def _declare(self) -> None:
        held_by: dict[int, list[tuple[int, float]]] = {b: [] for b in self._task.brokers}
        arriving: dict[str, list[tuple[int, float]]] = {rack: [] for rack in self.racks}
        for partition in self.partitions:
            self._declare_partition(partition, held_by, arriving)
        for broker in self._task.brokers:
            self.inflow[broker] = self._variable(0, float("inf"), 0, whole=False)
        for rack, terms in arriving.items():
            room = [(self.inflow[b], -1.0) for b in self._rack_brokers[rack]]
            self._row([*terms, *room], 0, 0)
        self._declare_shares(held_by)

    def _declare_partition(
        self,
        partition: TopicPartition,
        held_by: dict[int, list[tuple[int, float]]],
        arriving: dict[str, list[tuple[int, float]]],
    ) -> None:
        task, held = self._task, self._picture.partitions[partition]
        factor, weight = task.replication_factors[partition], self.weight(partition)
        cost = held.size_bytes / self.unit + _EMPTY
        by_rack: dict[str, list[tuple[int, float]]] = {rack: [] for rack in self.racks}
        whole: list[tuple[int, float]] = []
        for broker in dict.fromkeys(held.brokers):
            if broker in held_by:
                column = self._variable(0, 1, 0, whole=True)
                self.stay[partition, broker] = column
                whole.append((column, 1.0))
                by_rack[self._picture.rack_of(broker)].append((column, 1.0))
                held_by[broker].append((column, weight))
        for rack in self.racks:
            room = len(self._rack_brokers[rack])
            column = self._variable(0, room, cost, whole=True)
            self.arrive[partition, rack] = column
            whole.append((column, 1.0))
            by_rack[rack].append((column, 1.0))
            arriving[rack].append((column, weight))
        self._row(whole, factor, factor)
        most = ceil(factor / len(self.racks))
        least = factor // len(self.racks)
        if min(map(len, self._rack_brokers.values())) < most:
            least, most = 0, self._rack_room(factor)
        for rack in self.racks:
            self._row(by_rack[rack], least, min(most, len(self._rack_brokers[rack])))
        if task.keeps:
            self._keep(partition, held.in_sync, least, most)
            self._keep(partition, held.brokers, least, most)

    def _keep(
        self, partition: TopicPartition, brokers: Sequence[int], least: int, most: int
    ) -> None:
        """Keep as many replicas on these brokers as the racks and the factor allow.

        First as many in-sync ones, then as many of all: the second does not reduce the first,
        because the sets that can stay form a matroid.
        """
        columns: dict[str, list[int]] = {rack: [] for rack in self.racks}
        for broker in dict.fromkeys(brokers):
            column = self.stay.get((partition, broker))
            if column is not None:
                columns[self._picture.rack_of(broker)].append(column)
        there = [len(those) for those in columns.values()]
        # Each rack keeps `least` in any case; the rest is kept where there are more.
        first = sum(min(least, count) for count in there)
        more = sum(max(0, min(most, count) - least) for count in there)
        free = self._task.replication_factors[partition] - least * len(self.racks)
        stay = first + min(more, free)
        if stay == sum(there):
            for column in chain.from_iterable(columns.values()):
                self._lower[column] = 1
        else:
            self._row([(c, 1.0) for c in chain.from_iterable(columns.values())], stay, float("inf"))

    def _rack_room(self, factor: int) -> int:
        """The most replicas a rack gets; above the even share if other racks have few brokers."""
        most = 1
        while sum(min(most, len(b)) for b in self._rack_brokers.values()) < factor:
            most += 1
        return most

    def _declare_shares(self, held_by: Mapping[int, Sequence[tuple[int, float]]]) -> None:
        lower, upper = self._share()
        for broker, terms in held_by.items():
            over = self._variable(0, float("inf"), 0, whole=False)
            under = self._variable(0, float("inf"), 0, whole=False)
            self._deviations += [over, under]
            self._row([*terms, (self.inflow[broker], 1.0), (over, -1.0)], -float("inf"), upper)
            self._row([*terms, (self.inflow[broker], 1.0), (under, 1.0)], lower, float("inf"))

    # ---- solving

    def minimise_deviation(self) -> float:
        """The least possible sum of the brokers' deviations from their shares."""
        cost = [0.0] * len(self._cost)
        for column in self._deviations:
            cost[column] = 1.0
        return float(self._run(cost, whole=False).fun)

    def minimise_movement(self, deviation: float) -> float:
        """Minimise the cost of copies for this balance. Returns a lower bound for all plans."""
        slack = 1e-6 * max(1.0, deviation)
        if self._task.by_bytes:
            slack = max(slack, _BYTES_TOLERANCE * self._share_total())
        self._row([(column, 1.0) for column in self._deviations], 0, deviation + slack)
        relaxed = self._run(self._cost, whole=False)
        self._solution = relaxed.x
        empty = _EMPTY * sum(self._task.replication_factors.values())
        # Stopped by its time limit, the solver has a solution but no proven bound.
        bound = max(0.0, float(relaxed.fun) - empty) if relaxed.status == 0 else 0.0
        # With bytes so few replicas are fractional that rounding is as good as searching.
        if not self._task.by_bytes and not self._is_whole():
            # With whole replicas the balance of the relaxation may be impossible.
            for more in (0.0, 1.0, float(len(self._task.brokers))):
                result = self._run(self._cost, whole=True, deviation_slack=more)
                if result.x is not None:
                    self._solution = result.x
                    break
        return bound

    def imbalance_of(self, assignment: Assignment) -> float:
        """The sum of the brokers' deviations from their shares."""
        loads = dict.fromkeys(self._task.brokers, 0.0)
        for partition, brokers in assignment.items():
            for broker in brokers:
                loads[broker] += self.weight(partition)
        lower, upper = self._share()
        deviation = sum(max(0.0, load - upper, lower - load) for load in loads.values())
        return deviation * (self.unit if self._task.by_bytes else 1.0)

    def _share(self) -> tuple[float, float]:
        share = self._share_total() / len(self._task.brokers)
        return (share, share) if self._task.by_bytes else (share // 1, ceil(share))

    def _share_total(self) -> float:
        return sum(self._task.replication_factors[p] * self.weight(p) for p in self.partitions)

    def _is_whole(self) -> bool:
        values = self._solution
        return all(
            abs(values[column] - round(values[column])) < 1e-6
            for column, whole in enumerate(self._whole)
            if whole
        )

    def _run(self, cost: Sequence[float], *, whole: bool, deviation_slack: float = 0.0) -> Any:
        optimize, sparse = self._optimize, self._sparse
        upper = list(self._row_upper)
        if deviation_slack:
            upper[-1] += deviation_slack
        shape = (len(self._row_lower), len(self._cost))
        matrix = sparse.csr_matrix((self._values, (self._rows, self._columns)), shape=shape)
        result = optimize.milp(
            cost,
            constraints=optimize.LinearConstraint(matrix, self._row_lower, upper),
            bounds=optimize.Bounds(self._lower, self._upper),
            integrality=self._whole if whole else None,
            options={"time_limit": _TIME_LIMIT_S, "mip_rel_gap": 0.005},
        )
        if result.x is None and not whole:
            raise PlanError(f"the solver found no plan: {result.message}")
        return result

    # ---- what was found

    def stays(self, partition: TopicPartition, broker: int) -> float:
        """The fraction of a replica that stays, from 0 to 1."""
        column = self.stay.get((partition, broker))
        return 0.0 if column is None else float(self._solution[column])

    def arrivals(self, partition: TopicPartition, rack: str) -> float:
        """The number of new replicas of a partition in a rack, possibly fractional."""
        return float(self._solution[self.arrive[partition, rack]])


# ------------------------------------------------------------------ assignment of new replicas


def _deal(picture: ClusterPicture, task: Task, problem: _Problem) -> dict[TopicPartition, set[int]]:
    """The brokers of each partition: whole replicas, each on one broker."""
    placed: dict[TopicPartition, set[int]] = {}
    loads: dict[int, float] = dict.fromkeys(task.brokers, 0.0)
    wanted: list[tuple[TopicPartition, str]] = []
    arrived: dict[int, list[TopicPartition]] = {broker: [] for broker in task.brokers}
    for partition in problem.partitions:
        stays, arrivals = _rounded(picture, task, problem, partition)
        placed[partition] = stays
        for broker in stays:
            loads[broker] += problem.weight(partition)
        wanted += [(partition, rack) for rack in arrivals]
    # The largest first, each to the broker of its rack with the lowest load.
    in_rack = defaultdict(list)
    for broker in task.brokers:
        in_rack[picture.rack_of(broker)].append(broker)
    wanted.sort(key=lambda w: (-problem.weight(w[0]), w))
    for partition, rack in wanted:
        held = placed[partition]
        free = [broker for broker in in_rack[rack] if broker not in held]
        assert free, (partition, rack)
        broker = min(free, key=lambda b: (loads[b], b))
        held.add(broker)
        loads[broker] += problem.weight(partition)
        arrived[broker].append(partition)
    for brokers in in_rack.values():
        _even_out(brokers, placed, loads, arrived, problem)
    return placed


def _even_out(
    brokers: Sequence[int],
    placed: Mapping[TopicPartition, set[int]],
    loads: dict[int, float],
    arrived: Mapping[int, list[TopicPartition]],
    problem: _Problem,
) -> None:
    """Improve the balance of new replicas within a rack; free, because they are copied anyway."""
    for _ in range(sum(map(len, arrived.values()))):
        full = max(brokers, key=lambda b: loads[b])
        better = [
            (loads[other] + problem.weight(partition), partition, other)
            for partition in arrived[full]
            for other in brokers
            if other not in placed[partition]
            and loads[other] + problem.weight(partition) < loads[full]
        ]
        if not better:
            return
        _, partition, other = min(better)
        arrived[full].remove(partition)
        arrived[other].append(partition)
        placed[partition].remove(full)
        placed[partition].add(other)
        loads[full] -= problem.weight(partition)
        loads[other] += problem.weight(partition)


def _rounded(
    picture: ClusterPicture, task: Task, problem: _Problem, partition: TopicPartition
) -> tuple[set[int], list[str]]:
    """Round the solver's fractions: which replicas stay, and which racks get new ones."""
    factor = task.replication_factors[partition]
    held = dict.fromkeys(picture.partitions[partition].brokers)
    stays = {broker for broker in held if problem.stays(partition, broker) > _WHOLE}
    wanted: dict[str, float] = {rack: problem.arrivals(partition, rack) for rack in problem.racks}
    arrivals = [rack for rack, amount in wanted.items() for _ in range(round(amount))]
    while len(stays) + len(arrivals) > factor:
        if arrivals:
            arrivals.remove(min(arrivals, key=lambda rack: wanted[rack]))
        else:
            in_sync = picture.partitions[partition].in_sync
            stays.discard(min(stays, key=lambda b: (b in in_sync, problem.stays(partition, b))))
    counts: dict[str, int] = defaultdict(int)
    for rack in [*(picture.rack_of(broker) for broker in stays), *arrivals]:
        counts[rack] += 1
    room: dict[str, int] = defaultdict(int)
    for broker in task.brokers:
        room[picture.rack_of(broker)] += 1
    while len(stays) + len(arrivals) < factor:
        # Rounding lost a replica: add it in the rack with the fewest, preferring one that exists.
        rack = min(
            (r for r in problem.racks if counts[r] < room[r]),
            key=lambda r: (counts[r], -wanted[r], r),
        )
        counts[rack] += 1
        there = [
            b for b in held if b in task.brokers and b not in stays and picture.rack_of(b) == rack
        ]
        if there:
            stays.add(max(there, key=lambda b: problem.stays(partition, b)))
        else:
            arrivals.append(rack)
    return stays, arrivals


# --------------------------------------------------------------------------------------- the order


def _order(
    before: Assignment,
    placed: Mapping[TopicPartition, set[int]],
    brokers: Sequence[int],
    ordered: Collection[TopicPartition],
) -> Assignment:
    """Order the replicas so that each broker leads its share, those not in `ordered` as before."""
    after: Assignment = {}
    for partition, held in placed.items():
        kept = [broker for broker in before[partition] if broker in held]
        # A new replica gets the place of the one it replaces, so that leadership stays spread.
        after[partition] = (*kept, *sorted(held - set(kept)))
    whole = after
    after = {p: order if p in ordered else order[:1] for p, order in whole.items()}
    leads: dict[int, list[TopicPartition]] = {broker: [] for broker in brokers}
    for partition, order in after.items():
        leads[order[0]].append(partition)
    share, extra = divmod(len(after), max(1, len(brokers)))
    most = share + (extra > 0)
    for broker in sorted(brokers, key=lambda b: -len(leads[b])):
        while len(leads[broker]) > most and _give_away(broker, leads, after, most):
            pass
    for broker in sorted(brokers, key=lambda b: len(leads[b])):
        while len(leads[broker]) < share and _fetch(broker, leads, after, share):
            pass
    return {p: after[p] if p in ordered else order for p, order in whole.items()}


def _give_away(
    broker: int, leads: dict[int, list[TopicPartition]], after: Assignment, most: int
) -> bool:
    """Move one leadership away, by a chain of brokers to one that is below its share."""
    return _shift(broker, leads, after, lambda other: len(leads[other]) < most)


def _fetch(
    broker: int, leads: dict[int, list[TopicPartition]], after: Assignment, share: int
) -> bool:
    """Move one leadership here, by a chain from a broker above its share."""
    for other in sorted(leads, key=lambda b: -len(leads[b])):
        if len(leads[other]) <= share:
            return False
        if _shift(other, leads, after, lambda candidate: candidate == broker):
            return True
    return False


def _shift(
    source: int,
    leads: dict[int, list[TopicPartition]],
    after: Assignment,
    is_end: Any,
) -> bool:
    """Move leaderships along the shortest chain from `source` to a broker that `is_end`."""
    came: dict[int, tuple[int, TopicPartition]] = {}
    queue = [source]
    for broker in queue:
        for partition in leads[broker]:
            for other in after[partition][1:]:
                if other == source or other in came:
                    continue
                came[other] = (broker, partition)
                if is_end(other):
                    _pass_on(other, source, came, leads, after)
                    return True
                queue.append(other)
    return False


def _pass_on(
    end: int,
    source: int,
    came: Mapping[int, tuple[int, TopicPartition]],
    leads: dict[int, list[TopicPartition]],
    after: Assignment,
) -> None:
    chain = [end]
    while chain[-1] != source:
        chain.append(came[chain[-1]][0])
    for to, giver in pairwise(chain):
        partition = came[to][1]
        leads[giver].remove(partition)
        leads[to].append(partition)
        order = after[partition]
        after[partition] = (to, *(broker for broker in order if broker != to))
