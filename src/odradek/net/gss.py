"""Contexts of the GSS-API: Kerberos, by the package `gssapi` and the system's MIT Kerberos.

All of it blocks: an acceptor reads its keytab, an initiator asks the KDC for tickets. So each step
runs outside of the event loop.
"""

from collections.abc import Callable
from typing import Any, Final

from odradek.model.errors import OdradekError
from odradek.model.extras import install
from odradek.security.sasl.gssapi import GssError

_INSTALL: Final = (
    "GSSAPI needs the package gssapi and the headers of MIT Kerberos "
    f"(apt-get install libkrb5-dev): {install('gssapi')}"
)


class GssUnavailableError(OdradekError):
    """The package is not installed, or there is no such key or ticket."""


class GssContext:
    """One side of a context; see `odradek.security.sasl.gssapi.SecurityContext`."""

    def __init__(self, library: Any, context: Any) -> None:
        self._error = library.exceptions.GSSError
        self._context = context

    @property
    def is_established(self) -> bool:
        return bool(self._context.complete)

    def peer(self) -> str:
        """The principal of the client."""
        return str(self._context.initiator_name)

    def step(self, token: bytes) -> bytes:
        return self._called(lambda: self._context.step(token or None) or b"")

    def wrap(self, message: bytes) -> bytes:
        return self._called(lambda: self._context.wrap(message, False).message)

    def unwrap(self, message: bytes) -> bytes:
        return self._called(lambda: self._context.unwrap(message).message)

    def _called(self, call: Callable[[], bytes]) -> bytes:
        try:
            return call()
        except self._error as error:
            raise GssError(_text(error)) from None


def acceptor(principal: str, keytab: str) -> Callable[[], GssContext]:
    """Begins contexts for a service, whose key is in a keytab.

    Raises:
        GssUnavailableError: it is not, or the package is not installed.
    """
    gssapi = _library()
    credentials = _credentials(gssapi, principal, "accept", {"keytab": keytab})
    return lambda: GssContext(gssapi, gssapi.SecurityContext(creds=credentials, usage="accept"))


def initiator(
    service: str, host: str, *, principal: str | None, store: dict[str, str]
) -> GssContext:
    """A context with the service of a host, from the tickets or the keytab in `store`.

    Raises:
        GssUnavailableError: there are no tickets, or the package is not installed.
    """
    gssapi = _library()
    credentials = _credentials(gssapi, principal, "initiate", store)
    flags = gssapi.RequirementFlag.mutual_authentication | gssapi.RequirementFlag.integrity
    name = gssapi.Name(f"{service}@{host}", gssapi.NameType.hostbased_service)
    return GssContext(
        gssapi,
        gssapi.SecurityContext(
            name=name, creds=credentials, usage="initiate", flags=flags,
            mech=gssapi.MechType.kerberos,
        ),
    )  # fmt: skip


def _library() -> Any:
    try:
        import gssapi  # noqa: PLC0415 - an extra
    except (ImportError, OSError):
        raise GssUnavailableError(_INSTALL) from None
    return gssapi


def _credentials(gssapi: Any, principal: str | None, usage: str, store: dict[str, str]) -> Any:
    try:
        name = None
        if principal is not None:
            name = gssapi.Name(principal, gssapi.NameType.kerberos_principal)
        return gssapi.Credentials(name=name, usage=usage, store=store or None)
    except gssapi.exceptions.GSSError as error:
        raise GssUnavailableError(f"{principal or 'no principal'}: {_text(error)}") from None


def _text(error: Any) -> str:
    return " ".join(str(error.gen_message()).split())
