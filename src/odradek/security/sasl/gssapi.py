"""The server's side of GSSAPI (RFC 4752): Kerberos.

    client  token of the GSS-API        until the context is established
    server  token of the GSS-API
    client  (empty)                     if the server's was the last one
    server  wrapped: security layers that it offers (none), size 0
    client  wrapped: the layer that it chooses, size, authorization id

A security layer would encrypt each message; TLS does that (SASL_SSL). Kafka's clients choose none.
"""

from collections.abc import Callable
from typing import Final, Protocol

from odradek.model.errors import OdradekError
from odradek.security.sasl.kerberos_names import KerberosNameError
from odradek.security.sasl.plain import OTHER_AUTHORIZATION_ID
from odradek.security.sasl.step import Challenge, Done, Failed, Step, quoted

NO_LAYER: Final = b"\x01\x00\x00\x00"
_CHOICE_BYTES: Final = 4


class GssError(OdradekError):
    """The library refuses a token; the text is its reason, without secrets."""


class SecurityContext(Protocol):
    """One side of a context of the GSS-API. Its methods raise `GssError`."""

    @property
    def is_established(self) -> bool:
        """Whether each side has authenticated the other."""

    def peer(self) -> str:
        """The principal of the other side: `alice@REALM`."""

    def step(self, token: bytes) -> bytes:
        """Handle a token of the other side; the one for it, or empty."""

    def wrap(self, message: bytes) -> bytes:
        """Protect a message's integrity."""

    def unwrap(self, message: bytes) -> bytes:
        """The inverse of `wrap`."""


class GssapiServer:
    """The server's side of one GSSAPI exchange."""

    def __init__(self, context: SecurityContext, short_name: Callable[[str], str]) -> None:
        """`short_name` gives the user's name of a principal, or raises `KerberosNameError`."""
        self._context = context
        self._short_name = short_name
        self._waits_for_nothing = False  # the client's next message is empty
        self._has_offered = False

    def step(self, token: bytes) -> Step:
        try:
            if self._has_offered:
                return self._chosen(self._context.unwrap(token))
            if self._waits_for_nothing:
                return Failed("a GSSAPI token after the last one") if token else self._offer()
            answer = self._context.step(token)
            if self._context.is_established and not answer:
                return self._offer()
            self._waits_for_nothing = self._context.is_established
            return Challenge(answer)
        except (GssError, KerberosNameError) as error:
            return Failed(f"GSSAPI: {error}")

    def _offer(self) -> Step:
        self._has_offered = True
        return Challenge(self._context.wrap(NO_LAYER))

    def _chosen(self, choice: bytes) -> Step:
        if len(choice) < _CHOICE_BYTES or choice[0] != NO_LAYER[0]:
            return Failed("the client chose a security layer that was not offered")
        principal = self._context.peer()
        name = self._short_name(principal)
        authorization_id = choice[_CHOICE_BYTES:].decode(errors="replace")
        if authorization_id not in ("", principal, name):
            return Failed(
                f"{quoted(principal)} requested the authorization id {quoted(authorization_id)}",
                OTHER_AUTHORIZATION_ID,
            )
        return Done(f"User:{name}")
