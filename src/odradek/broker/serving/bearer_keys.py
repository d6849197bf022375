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
import ssl
import threading
import urllib.request
from collections.abc import Awaitable, Callable
from contextlib import suppress
from http.client import HTTPException
from typing import Any, Final, NamedTuple
from urllib.error import HTTPError
from urllib.parse import unquote, urlsplit

from odradek.model.clock import Clock
from odradek.model.errors import OdradekError
from odradek.security.sasl.bearer_tokens import UNKNOWN_KEY, ClaimRules, JwksError, JwksTokens
from odradek.security.sasl.oauthbearer import BearerToken, TokenRefused

log = logging.getLogger(__name__)
EARLY_MS: Final = 60_000  # between two readings because of unknown keys
_BYTES_MAX: Final = 1 << 20
_TIMEOUT_S: Final = 10.0  # without a byte
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


class _NoRedirect(urllib.request.HTTPRedirectHandler):
    def redirect_request(self, *_: Any) -> None:
        """Refuse: the keys are at the URL that is configured, or nowhere."""


def read_url(url: str) -> str:
    """The text of a key set at a `file:` or `https:` URL.

    Raises:
        KeysError: it cannot be read.
    """
    parts = urlsplit(url)
    try:
        if parts.scheme == "file":
            with pathlib.Path(unquote(parts.path)).open("rb") as file:
                data = file.read(_BYTES_MAX + 1)
        elif parts.scheme == "https":
            tls = urllib.request.HTTPSHandler(context=ssl.create_default_context())
            opener = urllib.request.build_opener(_NoRedirect, tls)
            with opener.open(url, timeout=_TIMEOUT_S) as response:
                data = response.read(_BYTES_MAX + 1)
        else:
            raise KeysError(
                f"{url}: must be a file: or https: URL, because whoever can change the keys on "
                "their way can log in as everybody"
            )
    except HTTPError as error:
        error.close()  # it keeps the connection
        raise KeysError(f"{url}: {error}") from None
    except (OSError, ValueError, HTTPException) as error:
        raise KeysError(f"{url}: {error}") from None
    if len(data) > _BYTES_MAX:
        raise KeysError(f"{url}: more than {_BYTES_MAX} bytes")
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
        loop = asyncio.get_running_loop()
        future: asyncio.Future[str | KeysError] = loop.create_future()

        def end(outcome: str | KeysError) -> None:
            self._is_reading = False
            if not future.done():
                future.set_result(outcome)

        def work() -> None:
            try:
                outcome: str | KeysError = self._read(url)
            except KeysError as error:
                outcome = error
            with suppress(RuntimeError):  # the loop is closed: the broker has stopped
                loop.call_soon_threadsafe(end, outcome)

        self._is_reading = True
        threading.Thread(target=work, name="keys", daemon=True).start()
        try:
            async with asyncio.timeout(self._total_s):
                outcome = await future
        except TimeoutError:
            raise KeysError(f"{url}: not read within {self._total_s:g} s") from None
        if isinstance(outcome, KeysError):
            raise outcome
        return outcome
