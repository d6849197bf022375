"""The client's side of GSSAPI (RFC 4752): logs in with a Kerberos ticket.

The tickets are those of `kinit`, or are requested with a keytab, as the login module says:

    com.sun.security.auth.module.Krb5LoginModule required useTicketCache=true;
    com.sun.security.auth.module.Krb5LoginModule required useKeyTab=true
        keyTab="/etc/alice.keytab" principal="alice@EXAMPLE.COM";
"""

import asyncio
from collections.abc import Awaitable, Callable
from functools import partial
from typing import Final

from odradek.client.settings import SettingsError
from odradek.net.gss import GssContext, initiator
from odradek.security.sasl.gssapi import NO_LAYER, GssError
from odradek.security.sasl.jaas import JaasError, LoginModule, parse_jaas

_MODULE: Final = "Krb5LoginModule"
_EXAMPLE: Final = f"com.sun.security.auth.module.{_MODULE} required useTicketCache=true;"
_STEPS_MAX: Final = 10  # Kerberos needs two


async def log_in_by_gssapi(
    jaas_config: str | None,
    service: str | None,
    host: str,
    send: Callable[[bytes], Awaitable[bytes]],
) -> None:
    """Log in to the service (`sasl.kerberos.service.name`) of a host.

    Raises:
        GssError: one side does not accept the other.
        GssUnavailableError: there is no ticket, or the package gssapi is not installed.
        SettingsError: the settings name no service or another login module.
    """
    module = _login_module(jaas_config)
    name = service or module.options.get("serviceName")
    if not name:
        raise SettingsError(
            "sasl.kerberos.service.name is not set: it is the first part of the brokers' "
            "principal, kafka in kafka/host@REALM"
        )
    work = partial(
        initiator, name, host, principal=module.options.get("principal"), store=_store(module)
    )
    await _exchange(await asyncio.to_thread(work), send)


async def _exchange(context: GssContext, send: Callable[[bytes], Awaitable[bytes]]) -> None:
    answer = b""
    for _ in range(_STEPS_MAX):
        token = await asyncio.to_thread(context.step, answer)
        answer = await send(token)
        if context.is_established:
            break
    offered = context.unwrap(answer)
    if not offered or not offered[0] & NO_LAYER[0]:
        raise GssError("the broker offers no exchange without a security layer")
    await send(context.wrap(NO_LAYER))


def _login_module(text: str | None) -> LoginModule:
    if text is None:
        raise SettingsError(f"sasl.jaas.config must be set: for example {_EXAMPLE}")
    try:
        module = parse_jaas(text)
    except JaasError as error:
        raise SettingsError(str(error)) from None
    if module.module.rpartition(".")[2] != _MODULE:
        raise SettingsError(f"sasl.jaas.config: {module.module}: GSSAPI needs {_EXAMPLE}")
    return module


def _store(module: LoginModule) -> dict[str, str]:
    """Where the tickets come from; {}: the system's ticket cache."""
    options = module.options
    if options.get("useKeyTab", "").lower() == "true":
        if "keyTab" not in options or "principal" not in options:
            raise SettingsError("sasl.jaas.config: useKeyTab=true needs keyTab and principal")
        # The tickets stay in memory, and are requested again before they expire.
        keytab = options["keyTab"].removeprefix("file:")
        cache = f"MEMORY:odradek {options['principal']} {keytab}"
        return {"client_keytab": keytab, "ccache": cache}
    return {"ccache": options["ticketCache"]} if "ticketCache" in options else {}
