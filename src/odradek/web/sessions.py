"""Who is logged in to the page: the cluster's own users, with their own passwords.

A user and a password are right if a broker accepts them. The token that a tab then has is kept in
memory only, here as its hash. It expires when it is not used, and a stream of changes is no use.
"""

import asyncio
import hashlib
import ipaddress
import logging
import secrets
from collections import OrderedDict, deque
from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import Final

from starlette.requests import Request

from odradek.client.security.protocol import AuthenticationError
from odradek.local.client_files import SaslUser
from odradek.model.clock import MonotonicMs
from odradek.model.errors import OdradekError
from odradek.net.clock import real_monotonic_ms
from odradek.web.facts.source import Source
from odradek.web.workspace import Workspace

IDLE_MS: Final = 30 * 60_000
SESSION_MS: Final = 12 * 3_600_000
SESSIONS_MAX: Final = 64
USERS_MAX: Final = 16  # each costs the brokers as much as a page of its own
TRIES: Final = 5  # of an address within TRIES_MS
TRIES_MS: Final = 5 * 60_000
ADDRESSES_MAX: Final = 10_000
LOG_INS_AT_ONCE: Final = 4
LOG_IN_S: Final = 10.0
SWEEP_S: Final = 10.0
MECHANISMS: Final = ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512")
TEXT_MAX: Final = 1_024  # characters of a user's name and of a password
audit = logging.getLogger("odradek.web.audit")


class LogInError(OdradekError):
    """A log-in is refused; `status` is that of the HTTP response."""

    def __init__(self, status: int, text: str) -> None:
        super().__init__(text)
        self.status = status


def why_no_log_in(properties: Mapping[str, str]) -> str:
    """Why users cannot log in with these client properties; "" if they can."""
    protocol = properties.get("security.protocol", "PLAINTEXT").upper()
    if protocol not in ("SASL_SSL", "SASL_PLAINTEXT"):
        return f"the cluster asks for no user (security.protocol={protocol})"
    mechanism = properties.get("sasl.mechanism", "GSSAPI")
    if mechanism not in MECHANISMS:
        return f"sasl.mechanism={mechanism}: a log-in has a password ({', '.join(MECHANISMS)})"
    return ""


class LogInTries:
    """Counts the tries of each address, also those that are under way. Pure.

    Addresses of one IPv6 /64 are one: a single host has all of them.
    """

    def __init__(self) -> None:
        self._tries: OrderedDict[str, deque[MonotonicMs]] = OrderedDict()

    def begin(self, address: str, monotonic_ms: MonotonicMs) -> int:
        """Count a try. Returns 0, or after how many ms the next one is allowed."""
        tries = self._tries.setdefault(_network(address), deque())
        while tries and monotonic_ms - tries[0] >= TRIES_MS:
            tries.popleft()
        if len(tries) >= TRIES:
            return TRIES_MS - (monotonic_ms - tries[0])
        tries.append(monotonic_ms)
        self._tries.move_to_end(_network(address))
        if len(self._tries) > ADDRESSES_MAX:
            self._tries.popitem(last=False)
        return 0

    def give_back(self, address: str) -> None:
        """The last try does not count: it was right, or no broker has answered."""
        tries = self._tries.get(_network(address))
        if tries:
            tries.pop()


def _network(address: str) -> str:
    try:
        parsed = ipaddress.ip_address(address.partition("%")[0])
    except ValueError:
        return address
    if isinstance(parsed, ipaddress.IPv4Address):
        return address
    if parsed.ipv4_mapped is not None:
        return str(parsed.ipv4_mapped)
    return str(ipaddress.ip_network((parsed, 64), strict=False))


class UserSession:
    """A user who is logged in with one tab or program."""

    def __init__(self, user: str, place: Workspace, monotonic_ms: MonotonicMs) -> None:
        self.user = user
        self.workspace = place
        self.began_ms = self.used_ms = monotonic_ms
        self.has_ended = False

    def is_over(self, monotonic_ms: MonotonicMs) -> bool:
        return (
            self.has_ended
            or monotonic_ms - self.used_ms >= IDLE_MS
            or monotonic_ms - self.began_ms >= SESSION_MS
        )


def session_of(request: Request) -> UserSession | None:
    """The session of a request; None where there is no log-in."""
    session: UserSession | None = getattr(request.state, "session", None)
    return session


class Sessions:
    """All sessions of one page, and the workspaces of their users.

    `make` makes the workspace of a user. Two sessions share one if they have the same user and the
    same password; a workspace is closed when no session uses it and it executes no plan.
    """

    def __init__(
        self,
        base: Source,
        make: Callable[[Source], Workspace],
        *,
        monotonic_ms: Callable[[], MonotonicMs] = real_monotonic_ms,
    ) -> None:
        self._base = base
        self._make = make
        self._monotonic_ms = monotonic_ms
        self._tries = LogInTries()
        self._at_once = asyncio.Semaphore(LOG_INS_AT_ONCE)
        self._sessions: dict[bytes, UserSession] = {}
        self.workspaces: dict[SaslUser, Workspace] = {}

    def find(self, token: str) -> UserSession | None:
        """The session of a token, which is used by this; None if there is none any more."""
        session = self._sessions.get(_digest(token))
        now_ms = self._monotonic_ms()
        if session is None or session.is_over(now_ms):
            return None
        session.used_ms = now_ms
        return session

    def goes_on(self, session: UserSession) -> bool:
        """Whether it is still valid; this is no use of it."""
        return not session.is_over(self._monotonic_ms())

    async def log_in(self, user: str, password: str, address: str) -> str:
        """The token of a new session, if a broker accepts the password.

        Raises:
            LogInError: it does not, or a limit is reached, or no broker answers.
        """
        if not 0 < len(user) <= TEXT_MAX or len(password) > TEXT_MAX:
            raise LogInError(400, "a user and a password are needed")
        if wait_ms := self._tries.begin(address, self._monotonic_ms()):
            audit.warning("%s: log-in as %.64r: too many tries", address, user)
            minutes = -(-wait_ms // 60_000)
            raise LogInError(429, f"too many tries from this address: wait {minutes} min")
        login = SaslUser(user, password, self._base.properties["sasl.mechanism"])
        try:
            source = await self._connected(login)
        except LogInError as error:
            if error.status != 401:
                self._tries.give_back(address)
            audit.warning("%s: log-in as %.64r: %s", address, user, error)
            raise
        self._tries.give_back(address)
        token = await self._enter(login, source)
        audit.warning("%s: user %.64r is logged in", address, user)
        return token

    async def _connected(self, login: SaslUser) -> Source:
        source = self._base.as_user(login)
        try:
            async with asyncio.timeout(LOG_IN_S), self._at_once:
                await source.cluster()
        except AuthenticationError:
            raise LogInError(401, "the user or the password is wrong") from None
        except (OdradekError, ConnectionError) as error:
            raise LogInError(503, f"no broker can be asked: {error}") from None
        except TimeoutError:
            raise LogInError(503, f"no broker answers within {LOG_IN_S:.0f} s") from None
        return source

    async def _enter(self, login: SaslUser, source: Source) -> str:
        await self.sweep()
        place = self.workspaces.get(login)
        is_full = len(self.workspaces) >= USERS_MAX and place is None
        if place is not None or is_full:
            await source.close()
        if is_full or len(self._sessions) >= SESSIONS_MAX:
            raise LogInError(503, "too many users are logged in: try again later")
        place = self.workspaces.get(login)
        if place is None:
            place = self.workspaces[login] = self._make(source)
        token = secrets.token_urlsafe(32)
        self._sessions[_digest(token)] = UserSession(login.name, place, self._monotonic_ms())
        return token

    async def log_out(self, token: str) -> None:
        session = self._sessions.get(_digest(token))
        if session is not None:
            session.has_ended = True
            await self.sweep()

    async def sweep(self) -> None:
        """Drop the sessions that are over, and the workspaces that nothing uses any more."""
        now_ms = self._monotonic_ms()
        for key, session in list(self._sessions.items()):
            if session.is_over(now_ms):
                session.has_ended = True
                del self._sessions[key]
        used = {id(session.workspace) for session in self._sessions.values()}
        for login, place in list(self.workspaces.items()):
            if id(place) not in used and not place.mover.status.is_running:
                del self.workspaces[login]
                await place.close()

    async def sweep_always(self) -> None:
        """Sweep until this task is cancelled."""
        while True:
            await asyncio.sleep(SWEEP_S)
            with suppress(OdradekError, ConnectionError):
                await self.sweep()

    async def close(self) -> None:
        for session in self._sessions.values():
            session.has_ended = True
        self._sessions.clear()
        while self.workspaces:
            await self.workspaces.popitem()[1].close()


def _digest(token: str) -> bytes:
    return hashlib.sha256(token.encode()).digest()
