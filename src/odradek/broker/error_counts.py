"""How often clients got errors and were throttled, by client, API and what the request names.

Counted are errors only: a request that succeeds passes no code of this module. Errors that belong
to the course of the protocol are not counted: a client repeats such a request by itself, and they
would hide the others. Denied permissions are among the refusals (`odradek.broker.incidents`), with
the permission that is missing.

Memory is bounded. A client may invent names and client ids without end: then those of its host are
dropped that were counted longest ago, and those of other hosts stay.
"""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import asdict, dataclass
from typing import Any, Final, Generic, NamedTuple, Protocol, TypeVar

from odradek.model.clock import WallMs
from odradek.model.errors import ErrorCode
from odradek.wire.api_keys import APIS

KEPT_MAX: Final = 512
KEPT_OF_A_HOST_MAX: Final = 256
TEXT_MAX: Final = 200
# A client repeats these requests by itself, or sends the next one of the protocol.
_OF_THE_PROTOCOL: Final = frozenset(
    {
        ErrorCode.NONE,
        ErrorCode.MEMBER_ID_REQUIRED,
        ErrorCode.REBALANCE_IN_PROGRESS,
        ErrorCode.CONCURRENT_TRANSACTIONS,
        ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
        ErrorCode.COORDINATOR_NOT_AVAILABLE,
        ErrorCode.NOT_COORDINATOR,
        ErrorCode.LEADER_NOT_AVAILABLE,
        ErrorCode.FETCH_SESSION_ID_NOT_FOUND,
        ErrorCode.INVALID_FETCH_SESSION_EPOCH,
        ErrorCode.FETCH_SESSION_TOPIC_ID_ERROR,
    }
)
_DENIED: Final = "_AUTHORIZATION_FAILED"
_UNCOUNTED: Final = frozenset(
    int(code) for code in ErrorCode if code in _OF_THE_PROTOCOL or code.name.endswith(_DENIED)
)


class CountedClient(Protocol):
    """Who got an error: a session, as far as it is counted."""

    client_host: str
    client_id: str | None


class Subject(NamedTuple):
    """What a request is about, as far as it names it."""

    topic: str = ""
    group: str = ""
    instance_id: str = ""
    transactional_id: str = ""


NO_SUBJECT: Final = Subject()


class ErrorKey(NamedTuple):
    """An error of an API, and who got it."""

    host: str
    client_id: str
    api_key: int
    error: int
    subject: Subject


class ThrottleKey(NamedTuple):
    """A client that was throttled by a quota. `user` and `client` are what the quota is set for."""

    host: str
    client_id: str
    option: str
    user: str  # "": the quota is not one of users
    client: str


@dataclass(slots=True)
class Times:
    """How often, and when first and last (wall clock)."""

    first_ms: int
    last_ms: int
    count: int = 0


@dataclass(slots=True)
class ThrottleTimes(Times):
    """How often and how long, and the latest limit."""

    total_ms: int = 0
    rate: float = 0.0


class _OfAHost(Protocol):
    @property
    def host(self) -> str: ...


K = TypeVar("K", bound=_OfAHost)
T = TypeVar("T", bound=Times)


class LatestCounts(Generic[K, T]):
    """Counts in bounded memory, the latest ones."""

    def __init__(self, make: type[T], wall_ms: Callable[[], WallMs]) -> None:
        self._make = make
        self._wall_ms = wall_ms
        self._counts: dict[K, T] = {}  # the latest one is at the end
        self._of_host: dict[str, dict[K, None]] = {}  # in the same order

    def __len__(self) -> int:
        return len(self._counts)

    def count(self, key: K) -> T:
        """Count once more. Returns what is counted of this key."""
        wall_ms = self._wall_ms()
        known = self._counts.pop(key, None)
        if known is None:
            self._make_room(key)
            known = self._make(wall_ms, wall_ms)
        of_host = self._of_host.setdefault(key.host, {})
        of_host.pop(key, None)
        of_host[key] = None
        self._counts[key] = known
        known.last_ms = wall_ms
        known.count += 1
        return known

    def latest_first(self) -> Iterator[tuple[K, T]]:
        return reversed(self._counts.items())

    def _make_room(self, key: K) -> None:
        own = self._of_host.get(key.host, {})
        if len(own) >= KEPT_OF_A_HOST_MAX:
            self._drop(next(iter(own)))
        elif len(self._counts) >= KEPT_MAX:
            self._drop(next(iter(self._counts)))

    def _drop(self, key: K) -> None:
        del self._counts[key]
        of_host = self._of_host[key.host]
        del of_host[key]
        if not of_host:
            del self._of_host[key.host]


class ErrorCounts:
    """The errors and throttle times of one broker's clients, since its start."""

    def __init__(self, wall_ms: Callable[[], WallMs]) -> None:
        self.errors: LatestCounts[ErrorKey, Times] = LatestCounts(Times, wall_ms)
        self.throttles: LatestCounts[ThrottleKey, ThrottleTimes] = LatestCounts(
            ThrottleTimes, wall_ms
        )

    def count(self, session: CountedClient, api_key: int, error: int, subject: Subject) -> None:
        """A client got this error."""
        if error not in _UNCOUNTED:
            cut = Subject(*(text[:TEXT_MAX] for text in subject))
            client_id = (session.client_id or "")[:TEXT_MAX]
            self.errors.count(ErrorKey(session.client_host, client_id, api_key, error, cut))

    def throttled(
        self,
        session: CountedClient,
        throttle_ms: int,
        option: str,
        rate: float,
        user: str,
        client: str,
    ) -> None:
        """A client has to wait, because a quota of `rate` was exceeded."""
        key = ThrottleKey(
            session.client_host,
            (session.client_id or "")[:TEXT_MAX],
            option,
            user[:TEXT_MAX],
            client[:TEXT_MAX],
        )
        times = self.throttles.count(key)
        times.total_ms += throttle_ms
        times.rate = rate

    def errors_as_json(self) -> list[Mapping[str, Any]]:
        """The errors, the latest first."""
        return [
            {
                "api": APIS[key.api_key].name,
                "error": ErrorCode(key.error).name,
                "client_id": key.client_id,
                "host": key.host,
                **key.subject._asdict(),
                **asdict(times),
            }
            for key, times in self.errors.latest_first()
        ]

    def throttles_as_json(self) -> list[Mapping[str, Any]]:
        """The throttled clients, the latest first."""
        return [{**key._asdict(), **asdict(times)} for key, times in self.throttles.latest_first()]
