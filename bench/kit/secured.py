"""Connections with TLS and SCRAM for load generators, and a storm of log-ins.

    python -m kit.secured ADDRESS SECURITY LOGINS AT_ONCE

SECURITY is JSON: `ca` (a file), `user`, `password`, `mechanism` (SCRAM-SHA-256 or -512). The storm
makes that many connections, each with a TLS handshake of its own (no session is resumed) and a
log-in, and prints how long it took.
"""

import functools
import hashlib
import json
import resource
import secrets
import socket
import ssl
import struct
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from typing import Any
from unittest import mock

from kit import raw
from odradek.client.security.scram import ScramExchange

_HANDSHAKE, _AUTHENTICATE = 17, 36


def connect(address: str, security: dict[str, str], context: ssl.SSLContext) -> ssl.SSLSocket:
    """A connection with TLS on which the user has logged in."""
    plain = raw.connect(address)
    connection = context.wrap_socket(plain, server_hostname=address.rpartition(":")[0])
    _log_in(connection, security)
    return connection


def context_of(security: dict[str, str]) -> ssl.SSLContext:
    return ssl.create_default_context(cafile=security["ca"])


def _log_in(connection: socket.socket, security: dict[str, str]) -> None:
    mechanism = security["mechanism"]
    answer = raw.call(connection, raw.frame(_HANDSHAKE, 1, raw.text(mechanism)))
    _expect_no_error(answer.number("h"), "SaslHandshake")
    nonce = secrets.token_urlsafe(18)
    exchange = ScramExchange(mechanism, security["user"], security["password"], nonce=nonce)
    challenge = _token(connection, exchange.first())
    exchange.verify(_token(connection, exchange.final(challenge)))


def _token(connection: socket.socket, token: bytes) -> bytes:
    sent = struct.pack(">i", len(token)) + token
    answer = raw.call(connection, raw.frame(_AUTHENTICATE, 0, sent))
    _expect_no_error(answer.number("h"), answer.text())
    return bytes(answer.number("b") & 255 for _ in range(answer.number("i")))


def _expect_no_error(error_code: int, what: str) -> None:
    if error_code:
        raise RuntimeError(f"{what}: error {error_code}")


def storm(address: str, security: dict[str, str], logins: int, at_once: int) -> dict[str, float]:
    """Log in that often, and close each connection. Returns the figures."""
    context = context_of(security)

    def one(_: int) -> None:
        connect(address, security, context).close()

    begun_s = time.perf_counter()
    with ThreadPoolExecutor(at_once) as pool:
        list(pool.map(one, range(logins)))
    elapsed_s = time.perf_counter() - begun_s
    used = resource.getrusage(resource.RUSAGE_SELF)
    return {
        "logins_per_s": logins / elapsed_s,
        "client_cpu_s": used.ru_utime + used.ru_stime,
    }


def main() -> None:
    address, security, logins, at_once = sys.argv[1:]
    # The salt of a user is the same each time: the generator salts its password once.
    salted: Any = functools.cache(hashlib.pbkdf2_hmac)
    with mock.patch("odradek.client.security.scram.hashlib.pbkdf2_hmac", salted):
        print(json.dumps(storm(address, json.loads(security), int(logins), int(at_once))))


if __name__ == "__main__":
    main()
