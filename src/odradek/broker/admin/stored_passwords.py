"""Passwords among the options of a broker in the coordination store: encrypted, as in Kafka."""

import logging
import os
from collections.abc import Mapping
from typing import Final

from odradek.config.broker import BrokerConfig, find
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


def _is_password(name: str) -> bool:
    option = find(name)
    return option is not None and option.is_sensitive
