"""Passwords among the options of a broker in the coordination store: encrypted, as in Kafka."""

import logging
import os
from collections.abc import Mapping
from typing import Final

from odradek.config.broker import BrokerConfig, find
from odradek.coord.layout_config import broker_entity, decode_config, encode_config
from odradek.coord.store import BadVersionError, Store
from odradek.coord.znode import CorruptNodeError
from odradek.security.tls.password_encoder import PasswordEncoder
from odradek.security.tls.stores import TlsError

log = logging.getLogger(__name__)
_SECRET: Final = "password.encoder.secret"


class StoredPasswords:
    """Encrypts and decrypts the passwords of one broker's dynamic options."""

    def __init__(self, config: BrokerConfig) -> None:
        secret, former = config.values[_SECRET], config.values["password.encoder.old.secret"]
        self._encoder = (
            None
            if secret is None
            else PasswordEncoder(
                str(secret), None if former is None else str(former), draw=os.urandom
            )
        )
        self.has_former_secret = secret is not None and former is not None
        # Decrypting takes milliseconds, and all options are read again after each change.
        self._known: dict[str, str] = {}

    def decoded(self, stored: Mapping[str, str]) -> dict[str, str]:
        """The options with readable passwords; a password that cannot be read is left out."""
        plain = dict(stored)
        known, self._known = self._known, {}
        for name, text in stored.items():
            if not _is_password(name):
                continue
            try:
                self._known[text] = plain[name] = known.get(text) or self._decode(text)
            except TlsError as error:
                del plain[name]
                log.warning("the stored %s cannot be used: %s", name, error)
        return plain

    def encoded(self, settings: Mapping[str, str], stored: Mapping[str, str]) -> dict[str, str]:
        """The options as they are stored; `stored` are the former ones, of which `settings` come.

        Raises:
            TlsError: the package `cryptography` is not installed.
        """
        return {
            name: self._encode(text, stored.get(name)) if _is_password(name) else text
            for name, text in settings.items()
        }

    def reencoded(self, stored: Mapping[str, str]) -> dict[str, str] | None:
        """The options with the passwords of the former secret stored with the present one.

        None: there is no such password.
        """
        changed = {}
        for name, text in stored.items():
            if self._encoder is None or not _is_password(name):
                continue
            try:
                again = self._encoder.reencoded(text)
            except TlsError:  # `decoded` logs it
                continue
            if again is not None:
                changed[name] = again
        return {**stored, **changed} if changed else None

    def _decode(self, text: str) -> str:
        if self._encoder is None:
            raise TlsError(f"{_SECRET} is not set")
        return self._encoder.decode(text)

    def _encode(self, text: str, stored: str | None) -> str:
        if stored is not None and self._known.get(stored) == text:
            return stored
        if self._encoder is None:
            raise TlsError(f"{_SECRET} is not set")
        return self._encoder.encode(text)


async def reencode(store: Store, broker_id: int, passwords: StoredPasswords) -> None:
    """Store a broker's own passwords with its present secret, at its start.

    As Kafka does (`DynamicBrokerConfig.maybeReEncodePasswords`), so that the next start needs no
    `password.encoder.old.secret`. No notification is written: the passwords are the same.

    Raises:
        StoreError: the store cannot be read or written.
    """
    path = broker_entity(broker_id).path
    (node,) = await store.get_many([path])
    if node is None:
        return
    try:
        again = passwords.reencoded(decode_config(path, node[0]))
        if again is None:
            return
        await store.set_data(path, encode_config(again), node[1].version)
    except (CorruptNodeError, BadVersionError) as error:
        log.warning("the passwords at %s are not stored with the present secret: %s", path, error)
    else:
        log.info(
            "the passwords at %s are stored with %s: password.encoder.old.secret is not needed",
            path,
            _SECRET,
        )


def _is_password(name: str) -> bool:
    option = find(name)
    return option is not None and option.is_sensitive
