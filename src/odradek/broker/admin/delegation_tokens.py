"""Delegation tokens: creating, renewing, expiring, describing them, and finding them at a login.

They are stored in Kafka's znodes (`odradek.coord.layout_security`), so that brokers of Odradek and
of Apache Kafka in one cluster share them. Each broker has all tokens in memory, and follows the
notifications of their changes. A token that has expired is refused from then on, and removed later,
by the controller.

Kafka's brokers write a token unconditionally; ours derive each change from the stored token, so
that two changes at the same time are both applied.
"""

import logging
from collections.abc import Callable, Collection, Mapping
from functools import lru_cache, partial
from typing import Final

from odradek.broker.cluster.store_update import NoticeFollower, children, update
from odradek.broker.serving.session import ANONYMOUS, Session
from odradek.coord.layout_security import (
    TOKEN_CHANGE_PREFIX,
    TOKEN_CHANGES,
    TOKENS,
    decode_token,
    encode_token,
    token_path,
)
from odradek.coord.store import Create, Store
from odradek.coord.znode import CorruptNodeError
from odradek.model.clock import Clock, WallMs
from odradek.model.errors import ApiError, ErrorCode
from odradek.security.delegation_tokens import (
    DelegationToken,
    TokenOptions,
    WantedToken,
    created,
    expired,
    hmac_of,
    renewed,
    scram_credential,
)
from odradek.security.sasl.scram import TokenCredential

log = logging.getLogger(__name__)
_DERIVED_MAX: Final = 10_000  # credentials, of about 500 bytes

# From the stored token to the changed one (None: it is removed), or a refusal.
_TokenChange = Callable[[DelegationToken], DelegationToken | ErrorCode | None]


def check_allowed(session: Session) -> None:
    """Refuse requests about tokens on connections that do not authenticate the client by itself.

    Raises:
        ApiError: DELEGATION_TOKEN_REQUEST_NOT_ALLOWED.
    """
    is_anonymous = session.security_protocol == "PLAINTEXT" or (
        session.security_protocol == "SSL" and session.principal == ANONYMOUS
    )
    if is_anonymous or session.is_delegation_token:
        raise ApiError(ErrorCode.DELEGATION_TOKEN_REQUEST_NOT_ALLOWED)


def enabled(tokens: "DelegationTokens | None") -> "DelegationTokens":
    """The tokens of a broker that has the secret.

    Raises:
        ApiError: DELEGATION_TOKEN_AUTH_DISABLED.
    """
    if tokens is None:
        raise ApiError(ErrorCode.DELEGATION_TOKEN_AUTH_DISABLED)
    return tokens


class DelegationTokens(NoticeFollower):
    """The delegation tokens of the cluster, on one broker."""

    def __init__(
        self,
        store: Store,
        clock: Clock,
        *,
        options: TokenOptions,
        draw_id: Callable[[], str],
        is_controller: Callable[[], bool],
    ) -> None:
        """`draw_id` draws the id of a new token; only the controller removes expired ones."""
        super().__init__(store, clock, parents=(TOKEN_CHANGES,), name_prefix=TOKEN_CHANGE_PREFIX)
        self._options = options
        self._secret = options.secret
        self._draw_id = draw_id
        self._is_controller = is_controller
        self._tokens: dict[str, DelegationToken] = {}
        self._ids: dict[bytes, str] = {}  # by HMAC
        self._derived = lru_cache(_DERIVED_MAX)(partial(scram_credential, options.secret))

    # ------------------------------------------------------------------------- at a login

    def credential(self, mechanism: str, token_id: str) -> TokenCredential | None:
        """What a client that logs in with this token has to prove; None: there is no such token.

        The token may have expired. Takes milliseconds at the first time; any thread may call it.
        """
        token = self._tokens.get(token_id)
        if token is None:
            return None
        return TokenCredential(token.owner, self._derived(mechanism, token_id), token.expires_ms)

    # --------------------------------------------------------------------------- requests

    def hmac_of(self, token: DelegationToken) -> bytes:
        return hmac_of(self._secret, token.token_id)

    def all(self) -> Collection[DelegationToken]:
        """All tokens, with those that have expired and are not removed yet."""
        return self._tokens.values()

    async def create(self, wanted: WantedToken) -> DelegationToken:
        """Store a new token.

        Raises:
            StoreError: the store failed; the token may be stored.
        """
        token = created(self._draw_id(), wanted, self._options, self._clock.wall_ms())
        await self._write(token.token_id, lambda _: encode_token(token))
        self._put(token)
        log.info("delegation token %s created for %s", token.token_id, token.owner)
        return token

    async def renew(self, mac: bytes, requester: str, period_ms: int) -> int:
        """Let a token expire later. Returns when it expires.

        Raises:
            ApiError: the reason why not.
            StoreError: the store failed; it may be renewed.
        """
        wall_ms = self._clock.wall_ms()
        return await self._set_end(
            mac, lambda token: renewed(token, requester, period_ms, self._options, wall_ms), wall_ms
        )

    async def expire(self, mac: bytes, requester: str, period_ms: int) -> int:
        """Let a token expire after a period, or remove it. Returns when it expires.

        Raises:
            ApiError: the reason why not.
            StoreError: the store failed; it may be done.
        """
        wall_ms = self._clock.wall_ms()
        return await self._set_end(
            mac, lambda token: expired(token, requester, period_ms, wall_ms), wall_ms
        )

    async def remove_expired(self) -> None:
        """Remove the tokens that have expired, if this broker is the controller.

        Raises:
            StoreError: the store failed; the others are removed the next time.
        """
        wall_ms = self._clock.wall_ms()
        tokens = self._tokens.values() if self._is_controller() else ()
        for token in [token for token in tokens if token.has_expired(wall_ms)]:
            # The stored token may have been renewed meanwhile.
            try:
                left = await self._change(
                    token.token_id, lambda stored: None if stored.has_expired(wall_ms) else stored
                )
            except ApiError:
                continue  # another broker removed it, or keeps changing it
            if left is None:
                log.info("delegation token %s of %s has expired", token.token_id, token.owner)

    # --------------------------------------------------------------------------- the store

    async def _set_end(self, mac: bytes, change: _TokenChange, wall_ms: WallMs) -> int:
        token_id = self._ids.get(mac)
        if token_id is None:
            raise ApiError(ErrorCode.DELEGATION_TOKEN_NOT_FOUND)
        token = await self._change(token_id, change)
        expires_ms = wall_ms if token is None else token.expires_ms
        log.info("delegation token %s expires in %d ms", token_id, expires_ms - wall_ms)
        return expires_ms

    async def _change(self, token_id: str, change: _TokenChange) -> DelegationToken | None:
        """Change a stored token, here and in the store; returns it, or None: it is removed."""
        outcome: DelegationToken | None = None

        def changed(data: bytes | None) -> bytes | None:
            nonlocal outcome
            if data is None:
                raise ApiError(ErrorCode.DELEGATION_TOKEN_NOT_FOUND)
            stored = decode_token(token_path(token_id), data)
            token = change(stored)
            if isinstance(token, ErrorCode):
                raise ApiError(token)
            outcome = token
            if token == stored:
                return data
            return None if token is None else encode_token(token)

        await self._write(token_id, changed)
        self._apply(token_id, outcome)
        return outcome

    async def _write(self, token_id: str, change: Callable[[bytes | None], bytes | None]) -> None:
        notice = Create(
            f"{TOKEN_CHANGES}/{TOKEN_CHANGE_PREFIX}", token_id.encode(), sequential=True
        )
        await update(self._store, token_path(token_id), change, notice)

    async def _read_all(self) -> None:
        found = await self._read(await children(self._store, TOKENS))
        for token_id in self._tokens.keys() - found.keys():
            self._apply(token_id, None)
        for token_id, token in found.items():
            self._apply(token_id, token)

    async def _read_changed(self, notices: Mapping[str, bytes | None]) -> None:
        changed = {(data or b"").decode("utf-8", "replace") for data in notices.values()}
        # A name that is no token's must not become a path.
        valid = [token_id for token_id in changed - {"", ".", ".."} if "/" not in token_id]
        for token_id, token in (await self._read(valid)).items():
            self._apply(token_id, token)

    async def _read(self, token_ids: Collection[str]) -> dict[str, DelegationToken | None]:
        """The stored tokens; None for what is not stored, or cannot be decoded."""
        nodes = await self._store.get_many([token_path(token_id) for token_id in token_ids])
        found: dict[str, DelegationToken | None] = {}
        for token_id, node in zip(token_ids, nodes, strict=True):
            found[token_id] = None
            if node is not None:
                try:
                    found[token_id] = decode_token(token_path(token_id), node[0])
                except CorruptNodeError:
                    log.exception("delegation token %s is refused: delete its node", token_id)
        return found

    # -------------------------------------------------------------------------- in memory

    def _apply(self, token_id: str, token: DelegationToken | None) -> None:
        if token is not None:
            self._put(token)
        elif token_id in self._tokens:
            del self._tokens[token_id]
            del self._ids[hmac_of(self._secret, token_id)]

    def _put(self, token: DelegationToken) -> None:
        self._tokens[token.token_id] = token
        self._ids[self.hmac_of(token)] = token.token_id
