"""Counts what each client is given, and compares it with the quotas: a witness beside the brokers.

Requests and responses are read from the wire, at the broker's end of each connection. What a
request costs of the processor is drawn here, charged to the broker's clock, and counted. None of
the brokers' own counts is used, and the precedence of quotas is written down once more.

No more than the quota. R is a limit in a second, there are n windows of m seconds. Kafka's average
is over all windows but one at least, and over what is left of the oldest sample at most, so that a
request is accepted while `R (n + 1) m` or less was used. The request that exceeds it counts, and
its connection is muted until the average is R again: one request for each connection of the clients
that share the limit. When samples leave the windows, they may do that once more. So, over every
span of T seconds in which the limit does not change and the process of the broker lives:

    produced     <=  R T + R (n + 1) m + k a (1 + T / n m)     a: largest request, k: connections
    fetched      <=  R T + R (n + 1) m + b (1 + T / n m)       b: of one answer above R (n - 1) m
    processor    <=  R T + R (n + 1) m + k a (1 + T / m)       muted for one window at most

It holds for all spans if it holds for a bucket that leaks at the rate of the right side and never
overflows. The first request of a connection is not counted: what muted its client was lost with the
earlier connection. For fetches all of them are: bytes above the quota are not sent.

No less than the quota. A response with a throttle time t has to have a reason: in the last n + 1
windows its clients used U with `U / R - (n - 1) m >= t`. For fetches, U includes what the request
asks for; for the processor, U is three times the cost of the requests, because the work around a
request counts up to two times the request itself.
"""

import random
from collections import Counter, deque
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, Final

from odradek.broker.serving.client_quotas import ClientQuotas
from odradek.broker.serving.request_loop import RequestLoop
from odradek.quota.precedence import Entity, Part
from odradek.sim.world.cluster import SimulatedBroker, SimulatedCluster
from odradek.sim.world.network import WireEnd
from odradek.sim.world.process import running_process
from odradek.wire.api_keys import APIS, ApiKey, request_class, response_class
from odradek.wire.codec import decoder
from odradek.wire.header import RequestHeader, decode_request_header, decode_response_header

WINDOWS: Final = (4, 11)  # quota.window.num; its default is 11
WINDOW_S: Final = 1.0
USER: Final = "ANONYMOUS"  # of all clients: listeners have no authentication
PRODUCER: Final = "producer_byte_rate"
CONSUMER: Final = "consumer_byte_rate"
REQUEST: Final = "request_percentage"
OPTIONS: Final = (PRODUCER, CONSUMER, REQUEST)
# The cost of a request in milliseconds, and of the broker's own work before some.
_COST_MS: Final = (0.2, 3.0)
_OWN_MS: Final = (5.0, 50.0)
_OWN_SHARE: Final = 0.1
_AROUND: Final = 3.0  # what may be counted of a request, in terms of its cost
_MS_OF_PERCENT: Final = 10.0  # one percent of a second
_LOST_S: Final = 60.0  # for so long an unanswered request may have been counted
_ROUNDING_MS: Final = 2.0

Limits = Mapping[Entity, Mapping[str, float]]


@dataclass(slots=True)
class FoundLimit:
    """The limit that holds for a client: what it was set for, and who shares it ("": all)."""

    entity: Entity
    rate: float
    share: tuple[str, str]


def limit_for(limits: Limits, option: str, client: str) -> FoundLimit | None:
    """The most specific limit of a client, of Kafka's eight levels."""
    for user in (USER, Part.DEFAULT, Part.ABSENT):
        for name in (client, Part.DEFAULT, Part.ABSENT):
            entity = Entity(user, name)
            rate = limits.get(entity, {}).get(option)
            if rate is not None:
                by_user = "" if user is Part.ABSENT else USER
                by_client = "" if name is Part.ABSENT else client
                if option == REQUEST:
                    rate *= _MS_OF_PERCENT
                return FoundLimit(entity, rate, (by_user, by_client))
    return None


@dataclass(slots=True)
class Bucket:
    """What the clients of one limit were given in the present span, less what it permits."""

    entity: Entity
    rate: float
    began_s: float
    at_s: float
    level: float = 0.0
    total: float = 0.0
    excess: float = 0.0  # the largest request, or what an answer had above all windows but one
    connections: int = 1

    def take(
        self, amount: float, at_s: float, *, windows: int, window_s: float, again_s: float
    ) -> str:
        """Count an amount. Returns what the limit does not permit, or nothing.

        `again_s` is after how many seconds the limit may be exceeded by one request once more.
        """
        over = self.excess * self.connections
        leaked = (self.rate + over / again_s) * (at_s - self.at_s)
        self.level = max(0.0, self.level - leaked) + amount
        self.total += amount
        self.at_s = at_s
        permitted = self.rate * (windows + 1) * window_s + over
        if self.level <= permitted * (1 + 1e-9) + 1e-6:
            return ""
        return (
            f"{self.total:.0f} in {at_s - self.began_s:.1f} s; {self.rate:g} a second are allowed, "
            f"and {permitted:.0f} at once, which is exceeded by {self.level - permitted:.0f}"
        )


@dataclass(slots=True)
class _Use:
    """An amount that a client has used, or may have."""

    arrived_s: float
    amount: float
    answered_s: float | None


@dataclass(slots=True)
class _Unanswered:
    header: RequestHeader
    use: _Use | None
    partitions: dict[tuple[object, int], int] = field(default_factory=dict)  # bytes of records


@dataclass(slots=True)
class _Wire:
    """One connection, seen at its broker's end."""

    broker: SimulatedBroker
    process: int
    received: bytearray = field(default_factory=bytearray)
    sent: bytearray = field(default_factory=bytearray)
    client: str | None = None
    asked: dict[int, _Unanswered] = field(default_factory=dict)
    used: set[str] = field(default_factory=set)  # quotas that its first request counted for


class QuotaChecker:
    """Counts for all clients of one simulation."""

    def __init__(
        self, cluster: SimulatedCluster, violated: Callable[[str], None], *, windows: int
    ) -> None:
        self.happened = Counter[str]()
        self._cluster = cluster
        self._violated = violated
        self._windows = windows
        self._costs = cluster.randomness("processor")
        self._brokers = {broker.name: broker for broker in cluster.brokers}
        self._limits: dict[str, dict[Entity, dict[str, float]]] = {n: {} for n in self._brokers}
        self._wires: dict[WireEnd, _Wire] = {}
        self._of_connection: dict[Any, _Wire] = {}
        # By broker, its process, and what is limited.
        self._buckets: dict[tuple[str, int, str, tuple[str, str]], Bucket] = {}
        self._uses: dict[tuple[str, int, str, str], deque[_Use]] = {}

    @contextmanager
    def watching(self) -> Iterator[None]:
        """Read the wires, charge the processors, and learn of limits within the block."""
        loops: Any = RequestLoop
        quotas_of_brokers: Any = ClientQuotas
        frame, set_limits = loops.frame, quotas_of_brokers.set_limits
        checker = self

        def framed(loop: RequestLoop, connection: Any, data: memoryview) -> None:
            process = running_process()
            broker = None if process is None else checker._brokers.get(process.name)
            if broker is not None:
                checker._charge(broker, connection)
            frame(loop, connection, data)

        def limited(
            quotas: ClientQuotas, changed: Mapping[Entity, Mapping[str, float]], *, whole: bool
        ) -> None:
            set_limits(quotas, changed, whole=whole)
            process = running_process()
            if process is not None and process.name in checker._brokers:
                checker.limits_set(process.name, changed, whole=whole)

        loops.frame = framed
        quotas_of_brokers.set_limits = limited
        self._cluster.network.wiretap = self
        try:
            yield
        finally:
            loops.frame = frame
            quotas_of_brokers.set_limits = set_limits
            self._cluster.network.wiretap = None

    def end(self, known: Limits, unsure: set[Entity]) -> None:
        """Every running broker has the limits that the administrator has set."""
        wanted = {entity: dict(rates) for entity, rates in known.items() if rates}
        for broker in self._cluster.brokers:
            if broker.broker is None:
                continue
            limits = {entity: dict(r) for entity, r in self._limits[broker.name].items() if r}
            for entity in sorted(wanted.keys() | limits.keys(), key=str):
                if entity not in unsure and wanted.get(entity) != limits.get(entity):
                    self._violated(
                        f"{broker.name} has the quotas {limits.get(entity)} of {entity}; set are "
                        f"{wanted.get(entity)}"
                    )

    # ------------------------------------------------------------------------- limits

    def limits_set(
        self, name: str, changed: Mapping[Entity, Mapping[str, float]], *, whole: bool
    ) -> None:
        limits = self._limits[name]
        if whole:
            limits.clear()
        for entity, rates in changed.items():
            limits[entity] = {key: rate for key, rate in rates.items() if key in OPTIONS}
        for key, bucket in list(self._buckets.items()):
            broker, _, option, _ = key
            if broker == name and option not in limits.get(bucket.entity, {}):
                del self._buckets[key]

    # -------------------------------------------------------------------------- costs

    def _charge(self, broker: SimulatedBroker, connection: Any) -> None:
        """The request that is about to be handled takes a while of the processor."""
        cost_ms = self._costs.uniform(*_COST_MS)
        broker.processor_ns += int(cost_ms * 1e6)
        wire = self._of_connection.get(connection)
        if wire is None or wire.client is None:  # of another broker
            return
        use = self._use(broker, REQUEST, wire.client, cost_ms)
        use.answered_s = use.arrived_s
        self._given(wire, wire.client, REQUEST, cost_ms)

    # --------------------------------------------------------------------- a `Wiretap`

    def received(self, end: WireEnd, data: bytes) -> None:
        """Bytes are handed to a process, which has done something else before."""
        broker = self._brokers.get(end.name)
        if broker is None or end.peer_name in self._brokers:
            return
        if self._costs.random() < _OWN_SHARE:
            broker.processor_ns += int(self._costs.uniform(*_OWN_MS) * 1e6)
        wire = self._wires.get(end)
        if wire is None:
            wire = self._wires[end] = _Wire(broker, broker.starts)
            self._of_connection[end.protocol] = wire
        for frame in _frames(wire.received, data):
            header, position = decode_request_header(frame)
            wire.client = header.client_id
            asked = wire.asked[header.correlation_id] = _Unanswered(header, None)
            if header.client_id is None or header.api_version not in APIS[header.api_key].accepted:
                continue
            if header.api_key == ApiKey.PRODUCE:
                request: Any = _decode_request(header, frame, position)
                for topic in request.topic_data:
                    for each in topic.partition_data:
                        asked.partitions[topic.name, each.index] = len(each.records or b"")
                amount = sum(asked.partitions.values())
                asked.use = self._use(wire.broker, PRODUCER, header.client_id, amount)
            elif header.api_key == ApiKey.FETCH:
                request = _decode_request(header, frame, position)
                asked.use = self._use(wire.broker, CONSUMER, header.client_id, request.max_bytes)

    def sent(self, end: WireEnd, data: bytes) -> None:
        """A process sends bytes."""
        wire = self._wires.get(end)
        if wire is None:
            return
        for frame in _frames(wire.sent, data):
            asked = wire.asked.pop(int.from_bytes(frame[:4], "big", signed=True), None)
            if asked is None:
                continue
            header = asked.header
            version = header.api_version
            if version not in APIS[header.api_key].accepted:
                continue
            _, position = decode_response_header(frame, 0, header.api_key, version)
            decode = decoder(response_class(header.api_key), version)
            response: Any = decode(frame, position)[0]
            self._answered(wire, asked, response)

    def _answered(self, wire: _Wire, asked: _Unanswered, response: Any) -> None:
        header, client = asked.header, asked.header.client_id
        if client is None:
            return
        throttle_ms = getattr(response, "throttle_time_ms", 0)
        wanted = 0.0
        if header.api_key == ApiKey.PRODUCE and asked.use is not None:
            asked.use.answered_s = self._now_s()
            accepted = sum(
                asked.partitions.get((topic.name, each.index), 0)
                for topic in response.responses
                for each in topic.partition_responses
                if not each.error_code
            )
            self._given(wire, client, PRODUCER, accepted)
        elif header.api_key == ApiKey.FETCH and asked.use is not None:
            # What it asked for was counted and taken back, if it did not get it.
            wanted = asked.use.amount if throttle_ms else 0.0
            asked.use.answered_s = self._now_s()
            asked.use.amount = sum(
                len(each.records or b"")
                for topic in response.responses
                for each in topic.partitions
            )
            self._given(wire, client, CONSUMER, asked.use.amount)
        if throttle_ms:
            self.happened["throttled responses"] += 1
            self._justify(wire, client, header.api_key, throttle_ms, wanted)

    # ---------------------------------------------------------------------- no more

    def _given(self, wire: _Wire, client: str, option: str, amount: float) -> None:
        found = limit_for(self._limits[wire.broker.name], option, client)
        if found is None or wire.process != wire.broker.starts:
            return
        self.happened[f"limited by {option}"] += 1
        is_first = option not in wire.used
        wire.used.add(option)
        now_s = self._now_s()
        key = wire.broker.name, wire.process, option, found.share
        bucket = self._buckets.get(key)
        if bucket is None or (bucket.rate, bucket.entity) != (found.rate, found.entity):
            bucket = self._buckets[key] = Bucket(found.entity, found.rate, now_s, now_s)
        again_s = WINDOW_S if option == REQUEST else self._windows * WINDOW_S
        if option == CONSUMER:
            at_once = found.rate * (self._windows - 1) * WINDOW_S
            bucket.excess = max(bucket.excess, amount - at_once)
        else:
            bucket.excess = max(bucket.excess, amount)
            sharing = sum(self._shares(other, wire, found) for other in self._live())
            bucket.connections = max(bucket.connections, sharing)
            if is_first:
                return
        wrong = bucket.take(
            amount, now_s, windows=self._windows, window_s=WINDOW_S, again_s=again_s
        )
        if wrong:
            self._violated(f"{wire.broker.name} gave {client} more than its {option}: {wrong}")
            del self._buckets[key]

    @staticmethod
    def _shares(other: _Wire, wire: _Wire, found: FoundLimit) -> bool:
        return other.broker is wire.broker and found.share[1] in ("", other.client)

    def _live(self) -> Iterator[_Wire]:
        for end, wire in list(self._wires.items()):
            if end.is_gone:
                del self._wires[end]
            else:
                yield wire

    # ---------------------------------------------------------------------- no less

    def _justify(
        self, wire: _Wire, client: str, api_key: int, throttle_ms: int, wanted: float
    ) -> None:
        reasons = {REQUEST: _AROUND}
        if api_key == ApiKey.PRODUCE:
            reasons[PRODUCER] = 1.0
        if api_key == ApiKey.FETCH:
            reasons[CONSUMER] = 1.0
        least_s = (self._windows - 1) * WINDOW_S
        told = []
        for option, factor in reasons.items():
            found = limit_for(self._limits[wire.broker.name], option, client)
            if found is None:
                continue
            used = self._used(wire, option, found) * factor
            if option == CONSUMER:
                if not used:
                    continue  # a batch above the quota is delivered if nothing else was
                used += min(wanted, found.rate * least_s)
            justified_ms = (used / found.rate - least_s) * 1000 + _ROUNDING_MS
            if throttle_ms <= justified_ms:
                return
            told.append(f"{used:.0f} of {option} {found.rate:g} justify {justified_ms:.0f} ms")
        self._violated(
            f"{wire.broker.name} throttles {client} by {throttle_ms} ms after a request of API "
            f"{api_key}: {'; '.join(told) or 'it has no quota'}"
        )

    def _used(self, wire: _Wire, option: str, found: FoundLimit) -> float:
        """The most that the clients of a limit can have used in the windows."""
        now_s, total = self._now_s(), 0.0
        since_s = now_s - (self._windows + 1) * WINDOW_S - 0.01
        for (broker, process, what, client), uses in self._uses.items():
            if (broker, process, what) != (wire.broker.name, wire.process, option):
                continue
            if found.share[1] not in ("", client):
                continue
            for use in uses:
                if use.answered_s is None:
                    total += use.amount if use.arrived_s > now_s - _LOST_S else 0.0
                elif use.answered_s >= since_s:
                    total += use.amount
        return total

    def _use(self, broker: SimulatedBroker, option: str, client: str, amount: float) -> _Use:
        now_s = self._now_s()
        uses = self._uses.setdefault((broker.name, broker.starts, option, client), deque())
        while uses and uses[0].arrived_s < now_s - _LOST_S:
            uses.popleft()
        use = _Use(now_s, amount, None)
        uses.append(use)
        return use

    def _now_s(self) -> float:
        return self._cluster.loop.time()


def draw_windows(chance: random.Random) -> int:
    """`quota.window.num` of a seed."""
    return chance.choice(WINDOWS)


def _frames(buffer: bytearray, data: bytes) -> Iterator[memoryview]:
    """The frames that are complete with the next bytes of a stream."""
    buffer += data
    while len(buffer) >= 4:
        end = 4 + int.from_bytes(buffer[:4], "big")
        if len(buffer) < end:
            return
        frame = memoryview(bytes(buffer[4:end]))
        del buffer[:end]
        yield frame


def _decode_request(header: RequestHeader, frame: memoryview, position: int) -> Any:
    return decoder(request_class(header.api_key), header.api_version)(frame, position)[0]
