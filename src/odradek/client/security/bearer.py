"""The bearer token with which a client logs in by OAUTHBEARER, and when it is requested again.

`sasl.oauthbearer.token.endpoint.url` is a file, which another program renews, or the https URL of
an identity provider, which gets the `clientId`, `clientSecret` and `scope` of the login module.
Without it the token is made of the login module's claims and has no signature: for tests.
"""

import asyncio
import pathlib
from collections.abc import Callable
from typing import Final
from urllib.parse import unquote, urlsplit

from odradek.client.settings import Security, SettingsError
from odradek.model.clock import WallMs
from odradek.net.clock import RealClock
from odradek.net.https import fetch, in_thread
from odradek.security.sasl.bearer_login import (
    BearerLoginError,
    checked,
    expires_ms,
    is_unsecured,
    token_in,
    token_request,
    unsecured_token,
)
from odradek.security.sasl.jaas import JaasError, parse_jaas

URL: Final = "sasl.oauthbearer.token.endpoint.url"
_MODULE: Final = "OAuthBearerLoginModule"
_LIFETIME_SHARE: Final = 0.8  # as Kafka's sasl.login.refresh.window.factor


class BearerTokens:
    """The token of one client; a request serves all log-ins during 80 % of the token's lifetime."""

    def __init__(self, wall_ms: Callable[[], WallMs]) -> None:
        self._wall_ms = wall_ms
        self._lock = asyncio.Lock()
        self._kept: tuple[Security, str, float] | None = None

    async def token(self, security: Security) -> str:
        """A token for these settings.

        Raises:
            SettingsError: there is none. The text has no credentials.
        """
        async with self._lock:
            if self._kept is not None:
                kept_for, token, until_ms = self._kept
                if kept_for == security and self._wall_ms() < until_ms:
                    return token
            begun_ms = self._wall_ms()
            token = await new_token(security)
            self._kept = None
            end_ms = expires_ms(token)
            if end_ms is not None and urlsplit(security.token_url or "").scheme == "https":
                until_ms = begun_ms + (end_ms - begun_ms) * _LIFETIME_SHARE
                self._kept = security, token, until_ms
            return token


async def new_token(security: Security) -> str:
    """Read, request or make a token.

    Raises:
        SettingsError: there is none.
    """
    url = security.token_url
    try:
        options = login_options(security.jaas_config)
        if url is None and is_unsecured(options):
            return unsecured_token(options, RealClock().wall_ms())
        scheme = urlsplit(url or "").scheme
        if scheme == "https":
            return await in_thread(lambda: _requested(str(url), options), name="token")
        return bearer_token(url)
    except (BearerLoginError, JaasError) as error:
        raise SettingsError(f"OAUTHBEARER: {error}") from None


def login_options(jaas_config: str | None) -> dict[str, str]:
    """The options of the login module; {}: it is not set.

    Raises:
        BearerLoginError: it is the login module of another mechanism.
        JaasError: it cannot be parsed.
    """
    if jaas_config is None:
        return {}
    module = parse_jaas(jaas_config)
    if module.module.rpartition(".")[2] != _MODULE:
        raise BearerLoginError(f"sasl.jaas.config: {module.module}: use {_MODULE}")
    return module.options


def _requested(url: str, options: dict[str, str]) -> str:
    request = token_request(options)
    try:
        return token_in(fetch(url, body=request.body, headers=request.headers))
    except (BearerLoginError, OSError, ValueError) as error:
        raise SettingsError(f"{URL}={url}: {error}") from None


def bearer_token(url: str | None) -> str:
    """The token in the file that `sasl.oauthbearer.token.endpoint.url` names.

    Raises:
        SettingsError: it is not set, is another URL than of a file, or the file has no token.
    """
    parts = urlsplit(url or "")
    if parts.scheme != "file" or parts.netloc not in ("", "localhost"):
        raise SettingsError(
            f"{URL}={url}: must be file:///PATH, where another program puts the token, or the "
            "https: URL of an identity provider"
        )
    try:
        return checked(pathlib.Path(unquote(parts.path)).read_text(encoding="ascii"))
    except (OSError, UnicodeDecodeError) as error:
        raise SettingsError(f"{URL}={url}: {error}") from None
    except BearerLoginError as error:
        raise SettingsError(f"{URL}={url}: in the file, {error}") from None
