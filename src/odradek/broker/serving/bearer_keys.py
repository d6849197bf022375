"""The keys by which bearer tokens are verified: a key set in a file or at an https URL.

A broker does not start without keys. While it runs it reads them again every
`sasl.oauthbearer.jwks.endpoint.refresh.ms`, and, at most once a minute, when a token names a key
that it does not have. If that fails it tries again, with pauses that double from
`...retry.backoff.ms` to `...retry.backoff.max.ms`, and uses the keys that it has.

Keys are read in a thread of their own, which does not delay the end of the process. Tokens are
verified in the worker's.
"""

import asyncio
import logging
import pathlib
from collections.abc import Awaitable, Callable
from typing import Final, NamedTuple
from urllib.parse import unquote, urlsplit

from odradek.model.clock import Clock
from odradek.model.errors import OdradekError
from odradek.net.https import BYTES_MAX, fetch, in_thread
from odradek.security.sasl.bearer_tokens import UNKNOWN_KEY, ClaimRules, JwksError, JwksTokens
from odradek.security.sasl.oauthbearer import BearerToken, TokenRefused

log = logging.getLogger(__name__)
EARLY_MS: Final = 60_000  # between two readings because of unknown keys
_TOTAL_S: Final = 30.0


class KeysError(OdradekError):
    """The key set cannot be read, or has no key that can be used."""


class KeySource(NamedTuple):
    """Where the keys are, and how often they are read (`sasl.oauthbearer.jwks.endpoint.*`)."""

    url: str
    refresh_ms: int
    backoff_ms: int
    backoff_ms_max: int


class BearerKeys:
    """A validator of tokens (`oauthbearer.Validate`) whose keys follow their source."""

    def __init__(
        self,
        source: KeySource,
        rules: ClaimRules,
        *,
        clock: Clock,
        loop: asyncio.AbstractEventLoop,
        read: Callable[[str], Awaitable[str]],
    ) -> None:
        """`read` returns the text at a URL, and raises KeysError if it cannot."""
        self._source = source
        self._rules = rules
        self._clock = clock
        self._loop = loop
        self._read = read
        self._tokens: JwksTokens | None = None  # None: not loaded yet
        self._unknown = asyncio.Event()  # a token has named an unknown key

    def __call__(self, token: str) -> BearerToken | TokenRefused:
        """Check a token, in whatever thread."""
        if self._tokens is None:
            return TokenRefused("no keys are loaded")
        found = self._tokens(token)
        if isinstance(found, TokenRefused) and found.reason == UNKNOWN_KEY:
            self._loop.call_soon_threadsafe(self._unknown.set)
        return found

    async def load(self) -> None:
        """Read the keys.

        Raises:
            KeysError: they cannot be read, or none can be used.
        """
        text = await self._read(self._source.url)
        try:
            self._tokens = JwksTokens(text, self._rules, self._clock.wall_ms)
        except JwksError as error:
            raise KeysError(f"{self._source.url}: {error}") from None

    async def run(self) -> None:
        """Read the keys again, for ever."""
        read_ms = self._clock.monotonic_ms()
        while True:
            try:
                async with asyncio.timeout(self._source.refresh_ms / 1000):
                    await self._unknown.wait()
                    left_ms = read_ms + EARLY_MS - self._clock.monotonic_ms()
                    await asyncio.sleep(max(left_ms, 0) / 1000)
            except TimeoutError:
                pass
            await self._read_again()
            self._unknown.clear()
            read_ms = self._clock.monotonic_ms()

    async def _read_again(self) -> None:
        pause_ms, failed = self._source.backoff_ms, False
        while True:
            try:
                await self.load()
            except KeysError as error:
                if not failed:
                    log.warning(
                        "the keys of bearer tokens cannot be read: %s; the former ones are used, "
                        "and it is tried again at least every %d ms",
                        error,
                        self._source.backoff_ms_max,
                    )
                failed = True
                await asyncio.sleep(max(pause_ms, 1) / 1000)
                pause_ms = min(pause_ms * 2, self._source.backoff_ms_max)
            else:
                if failed:
                    log.info("the keys of bearer tokens were read from %s", self._source.url)
                return


def read_url(url: str) -> str:
    """The text of a key set at a `file:` or `https:` URL.

    Raises:
        KeysError: it cannot be read.
    """
    parts = urlsplit(url)
    try:
        if parts.scheme == "file":
            with pathlib.Path(unquote(parts.path)).open("rb") as file:
                data = file.read(BYTES_MAX + 1)
            if len(data) > BYTES_MAX:
                raise KeysError(f"{url}: more than {BYTES_MAX} bytes")
        elif parts.scheme == "https":
            data = fetch(url)
        else:
            raise KeysError(
                f"{url}: must be a file: or https: URL, because whoever can change the keys on "
                "their way can log in as everybody"
            )
    except (OSError, ValueError) as error:
        raise KeysError(f"{url}: {error}") from None
    return data.decode(errors="replace")


class ThreadReader:
    """Reads URLs in a thread, one at a time."""

    def __init__(self, read: Callable[[str], str] = read_url, *, total_s: float = _TOTAL_S) -> None:
        self._read = read
        self._total_s = total_s
        self._is_reading = False

    async def __call__(self, url: str) -> str:
        """The text at a URL.

        Raises:
            KeysError: it cannot be read, or not in time.
        """
        if self._is_reading:
            raise KeysError(f"{url}: the former attempt has not ended")

        def work() -> str:
            try:
                return self._read(url)
            finally:
                self._is_reading = False

        self._is_reading = True
        try:
            async with asyncio.timeout(self._total_s):
                return await in_thread(work, name="keys")
        except TimeoutError:
            raise KeysError(f"{url}: not read within {self._total_s:g} s") from None
