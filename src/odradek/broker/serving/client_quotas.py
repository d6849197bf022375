"""The quotas that are set for users and client ids, enforced on this broker as in Kafka.

    producer_byte_rate        bytes of records a second
    consumer_byte_rate        bytes of records a second; a throttled fetch gets an empty response
    request_percentage        of the time of the event loop; a throttle time is one window at most
    controller_mutation_rate  partitions created and deleted in a second (KIP-599)

Each broker counts by itself. Requests between brokers are exempt, and so are followers. Clients
without a limit are not counted. What a request takes of the event loop is only measured while there
is a `request_percentage` (`times_requests`): the processor time from its first byte that is decoded
to its response, and what the event loop used before it to receive requests and send responses.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import partial
from itertools import islice
from typing import Final, TypeVar

from odradek.broker.serving.quotas import BYTES_MAX, NO_QUOTA, ClientLimit, MutationQuota
from odradek.broker.serving.session import Session
from odradek.model.clock import MonotonicMs
from odradek.model.errors import ApiError, ErrorCode
from odradek.net.connection import Connection
from odradek.quota.precedence import Entity, Limit
from odradek.quota.rate import burst
from odradek.quota.usage import BucketCount, RateCount, Usage, UsageCount
from odradek.wire.api_keys import APIS, ApiKey

PRODUCER: Final = "producer_byte_rate"
CONSUMER: Final = "consumer_byte_rate"
REQUEST: Final = "request_percentage"
MUTATION: Final = "controller_mutation_rate"
CLIENT_QUOTAS: Final = (PRODUCER, CONSUMER, REQUEST, MUTATION)

_OPTION_OF: Final[Mapping[int, str]] = {
    ApiKey.PRODUCE: PRODUCER,
    ApiKey.FETCH: CONSUMER,
    ApiKey.CREATE_TOPICS: MUTATION,
    ApiKey.DELETE_TOPICS: MUTATION,
    ApiKey.CREATE_PARTITIONS: MUTATION,
}
_EXEMPT: Final = frozenset(int(key) for key, api in APIS.items() if api.inter_broker)
_PERCENT_SECONDS_PER_NS: Final = 100 / 1e9
# The event loop's work around a request counts up to this multiple of the request itself, so that
# the broker's own work does not count for the client that sends the next request.
AROUND_MAX: Final = 2
_SHOWN_MAX: Final = 1_000  # clients in the metrics of one quota

Numbers = Iterable[tuple[tuple[str, str], float]]
_C = TypeVar("_C", bound=UsageCount)


class ClientQuotas:
    """The quotas of one broker's clients."""

    def __init__(
        self,
        *,
        monotonic_ms: Callable[[], MonotonicMs],
        processor_ns: Callable[[], int],
        windows: int,
        window_ms: int,
        mutation_windows: int,
        mutation_window_ms: int,
    ) -> None:
        """`processor_ns` returns the processor time that the event loop has used."""
        self._monotonic_ms = monotonic_ms
        self._processor_ns = processor_ns
        self._windows, self._window_ms = windows, window_ms
        rates = partial(RateCount, windows=windows, window_ms=window_ms)
        self._rates = {option: Usage(rates) for option in (PRODUCER, CONSUMER, REQUEST)}
        self._produced, self._fetched = self._rates[PRODUCER], self._rates[CONSUMER]
        self._requested = self._rates[REQUEST]
        self._mutated = Usage(
            partial(BucketCount, windows=mutation_windows, window_ms=mutation_window_ms)
        )
        self._limits: dict[str, dict[Entity, float]] = {option: {} for option in CLIENT_QUOTAS}
        self._is_unlimited = True  # then nothing is counted
        # The request that is being handled, since when it is not yet counted, what it took before.
        self._present: Session | None = None
        self._since_ns = self._took_ns = 0
        self._last_end_ns = 0  # of any request

    # ------------------------------------------------------------------------ limits

    @property
    def times_requests(self) -> bool:
        """Whether frames must pass `timed`."""
        return bool(self._requested)

    def set_limits(self, changed: Mapping[Entity, Mapping[str, float]], *, whole: bool) -> None:
        """Use other limits from now on: of these entities, or (`whole`) no others than these."""
        for option, limits in self._limits.items():
            if whole:
                limits.clear()
            for entity, rates in changed.items():
                if option in rates:
                    limits[entity] = rates[option]
                else:
                    limits.pop(entity, None)
            usage = self._mutated if option == MUTATION else self._rates[option]
            usage.set_limits(limits)
        self._is_unlimited = not any(self._limits.values())

    # ---------------------------------------------------------------------- `Quotas`

    def produced(self, session: Session, size_bytes: int) -> int:
        if self._is_unlimited:
            return 0
        throttle_ms = 0
        if self._produced:
            limit = _limit(self._produced, session)
            if limit is not None:
                monotonic_ms = self._monotonic_ms()
                count = self._produced.count(limit)
                throttle_ms = count.record(size_bytes, limit.rate, monotonic_ms)
        return max(throttle_ms, self.requested(session, ApiKey.PRODUCE))

    def fetched(self, session: Session, size_bytes: int) -> int:
        if self._is_unlimited:
            return 0
        throttle_ms = self.requested(session, ApiKey.FETCH)
        limit = _limit(self._fetched, session) if self._fetched else None
        if limit is None:
            return throttle_ms
        monotonic_ms = self._monotonic_ms()
        count = self._fetched.count(limit)
        # Kafka counts the bytes and takes them back, so that a batch above what all windows allow
        # is never delivered. Here it is delivered when nothing else was in the windows.
        is_alone = not count.rate.total(monotonic_ms)
        if count.record(size_bytes, limit.rate, monotonic_ms) and is_alone:
            count.throttle_ms = 0
        throttle_ms = max(throttle_ms, count.throttle_ms)
        if throttle_ms:
            count.rate.record(-size_bytes, monotonic_ms)
        return throttle_ms

    def fetch_bytes_max(self, session: Session) -> int:
        if self._is_unlimited:
            return BYTES_MAX
        limit = _limit(self._fetched, session) if self._fetched else None
        if limit is None:
            return BYTES_MAX
        allowed = burst(limit.rate, windows=self._windows, window_ms=self._window_ms)
        return max(1, min(int(allowed), BYTES_MAX))

    def requested(self, session: Session, api_key: int) -> int:
        if self._is_unlimited or not self._requested or api_key in _EXEMPT:
            return 0
        # ApiVersions before authentication counts for no user, as in Kafka, whose
        # SaslServerAuthenticator answers it.
        return 0 if session.authenticates else self._record_time(session)

    def limits(self, session: Session, api_key: int) -> list[ClientLimit]:
        options = {REQUEST, _OPTION_OF.get(api_key, REQUEST)}
        found = []
        for option in sorted(options):
            usage = self._mutated if option == MUTATION else self._rates[option]
            limit = _limit(usage, session) if usage else None
            if limit is not None:
                found.append(ClientLimit(option, limit.rate, *limit.share))
        return found

    def exempt(self, session: Session) -> None:
        if self._present is session:
            self._present = None

    def mutations(self, session: Session, *, strict: bool) -> MutationQuota:
        limit = _limit(self._mutated, session) if self._mutated else None
        if limit is None:
            return NO_QUOTA
        return _LimitedMutations(self._mutated, limit, self._monotonic_ms, strict=strict)

    # -------------------------------------------------------------------------- time

    def timed(
        self, frame: Callable[[Connection, memoryview], None]
    ) -> Callable[[Connection, memoryview], None]:
        """The same handler of frames, with the time that it takes counted."""

        def timed(connection: Connection, data: memoryview) -> None:
            session: Session | None = connection.session
            is_exempt = int.from_bytes(data[:2], "big") in _EXEMPT
            if is_exempt or (session is not None and session.authenticates):
                session = None
            self._present = session
            self._since_ns, self._took_ns = self._processor_ns(), 0
            around_ns = self._since_ns - self._last_end_ns
            try:
                frame(connection, data)
            finally:
                # What is left after the response, or before a request waits, throttles the next.
                if session is not None and self._present is session and self._requested:
                    self._record_time(session, around_ns)
                    # So the counting itself, an eighth of a small request, counts for the next one.
                    self._last_end_ns = self._since_ns
                else:
                    self._last_end_ns = self._processor_ns()
                self._present = None

        return timed

    def _record_time(self, session: Session, around_ns: int = 0) -> int:
        took_ns = 0
        if self._present is session:
            now_ns = self._processor_ns()
            took_ns, self._since_ns = now_ns - self._since_ns, now_ns
            self._took_ns += took_ns
            took_ns += min(around_ns, AROUND_MAX * self._took_ns)
        limit = _limit(self._requested, session)
        if limit is None:
            return 0
        monotonic_ms = self._monotonic_ms()
        count = self._requested.count(limit)
        throttle_ms = count.record(took_ns * _PERCENT_SECONDS_PER_NS, limit.rate, monotonic_ms)
        count.throttle_ms = min(throttle_ms, self._window_ms)
        return count.throttle_ms

    # ----------------------------------------------------------------------- metrics

    def rates(self, option: str) -> Numbers:
        """What clients use of a quota, by user and client id."""
        monotonic_ms = self._monotonic_ms()
        return [
            (share, count.rate.per_second(monotonic_ms)) for share, count in self._shown(option)
        ]

    def throttle_times(self, option: str) -> Numbers:
        """The latest throttle times, by user and client id."""
        return [(share, count.throttle_ms) for share, count in self._shown(option)]

    def tokens(self) -> Numbers:
        """The tokens left for changes to topics, by user and client id."""
        monotonic_ms = self._monotonic_ms()
        counts = self._first(self._mutated)
        return [(share, count.bucket.tokens(rate, monotonic_ms)) for share, rate, count in counts]

    def mutation_throttle_times(self) -> Numbers:
        """The latest throttle times of changes to topics, by user and client id."""
        return [(share, count.throttle_ms) for share, _, count in self._first(self._mutated)]

    def _shown(self, option: str) -> Iterator[tuple[tuple[str, str], RateCount]]:
        for share, _, count in self._first(self._rates[option]):
            yield share, count

    def _first(self, usage: "Usage[_C]") -> "Iterator[tuple[tuple[str, str], float, _C]]":
        usage.drop_spent(self._monotonic_ms())
        return islice(usage.counts(), _SHOWN_MAX)


class _LimitedMutations(MutationQuota):
    """The changes of one request, where its client has a limit."""

    def __init__(
        self,
        usage: Usage[BucketCount],
        limit: Limit,
        monotonic_ms: Callable[[], MonotonicMs],
        *,
        strict: bool,
    ) -> None:
        self._usage, self._limit, self._strict = usage, limit, strict
        self._monotonic_ms = monotonic_ms
        self._until_ms = 0

    def admit(self, partitions: int) -> None:
        monotonic_ms = self._monotonic_ms()
        count = self._usage.count(self._limit)
        admitted, throttle_ms = count.take(
            partitions, self._limit.rate, monotonic_ms, strict=self._strict
        )
        if throttle_ms:
            self._until_ms = monotonic_ms + throttle_ms
        if not admitted:
            raise ApiError(
                ErrorCode.THROTTLING_QUOTA_EXCEEDED, "The throttling quota has been exceeded."
            )

    @property
    def throttle_ms(self) -> int:
        return max(0, self._until_ms - self._monotonic_ms())


def _limit(usage: Usage[RateCount] | Usage[BucketCount], session: Session) -> Limit | None:
    user = session.principal.partition(":")[2]
    return usage.find(user, session.client_id or "")
