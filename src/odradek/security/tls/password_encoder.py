"""Passwords in dynamic options, encrypted as Kafka's `EncryptingPasswordEncoder` stores them.

    keyFactoryAlgorithm:PBKDF2WithHmacSHA512,cipherAlgorithm:AES/CBC/PKCS5Padding,keyLength:128,
    salt:...,iterations:4096,initializationVector:...,encryptedPassword:...,passwordLength:9

The key is derived from `password.encoder.secret`. Needs the package `cryptography`.
"""

import base64
import hashlib
import re
from collections.abc import Callable
from typing import Any, Final

from odradek.model.extras import install
from odradek.security.tls.stores import TlsError

_CIPHER: Final = "AES/CBC/PKCS5Padding"
_KEY_FACTORY: Final = "PBKDF2WithHmacSHA512"
_HASH: Final = re.compile(r"PBKDF2WithHmac(SHA(?:1|256|384|512))")
_SALT_BYTES: Final = 256
_KEY_BITS: Final = 128
_BLOCK_BYTES: Final = 16
_ITERATIONS: Final = 4_096
_ITERATIONS_MAX: Final = 1_000_000


class PasswordEncoder:
    """Encrypts with one secret, and decrypts with it or a former one."""

    def __init__(
        self, secret: str, former_secret: str | None = None, *, draw: Callable[[int], bytes]
    ) -> None:
        """`draw` returns as many unpredictable bytes."""
        self._secrets = [secret] if former_secret is None else [secret, former_secret]
        self._draw = draw

    def encode(self, password: str) -> str:
        """A password as it is stored.

        Raises:
            TlsError: the package `cryptography` is not installed.
        """
        salt, vector = self._draw(_SALT_BYTES), self._draw(_BLOCK_BYTES)
        key = _key(self._secrets[0], _KEY_FACTORY, salt, _ITERATIONS, _KEY_BITS)
        text = password.encode()
        padding = _BLOCK_BYTES - len(text) % _BLOCK_BYTES
        encryptor = _cipher(key, vector).encryptor()
        encrypted = encryptor.update(text + bytes([padding]) * padding) + encryptor.finalize()
        fields = {
            "keyFactoryAlgorithm": _KEY_FACTORY,
            "cipherAlgorithm": _CIPHER,
            "keyLength": str(_KEY_BITS),
            "salt": _base64(salt),
            "iterations": str(_ITERATIONS),
            "initializationVector": _base64(vector),
            "encryptedPassword": _base64(encrypted),
            "passwordLength": str(len(password)),
        }
        return ",".join(f"{name}:{value}" for name, value in fields.items())

    def decode(self, stored: str) -> str:
        """A stored password.

        Raises:
            TlsError: it was stored with another secret, or in another form.
        """
        return self._decoded(stored)[1]

    def reencoded(self, stored: str) -> str | None:
        """A password that was stored with the former secret, as it is stored with the present one.

        None: it is stored with the present one.

        Raises:
            TlsError: it was stored with another secret, or in another form.
        """
        secret, password = self._decoded(stored)
        return None if secret == self._secrets[0] else self.encode(password)

    def _decoded(self, stored: str) -> tuple[str, str]:
        """The secret with which a password was stored, and the password."""
        try:
            fields = dict(part.split(":", 1) for part in stored.split(","))
            if fields["cipherAlgorithm"] != _CIPHER:
                raise TlsError(f"the cipher {fields['cipherAlgorithm']} is not available here")
            for secret in self._secrets:
                password = _decrypted(secret, fields)
                if password is not None:
                    return secret, password
        except (KeyError, ValueError):
            raise TlsError("it is not a password in the form in which Kafka stores it") from None
        raise TlsError("password.encoder.secret is not the secret with which it was stored")


def _decrypted(secret: str, fields: dict[str, str]) -> str | None:
    iterations = int(fields["iterations"])
    if not 0 < iterations <= _ITERATIONS_MAX:
        raise ValueError(iterations)
    salt = base64.b64decode(fields["salt"], validate=True)
    key = _key(secret, fields["keyFactoryAlgorithm"], salt, iterations, int(fields["keyLength"]))
    vector = base64.b64decode(fields["initializationVector"], validate=True)
    decryptor = _cipher(key, vector).decryptor()
    encrypted = base64.b64decode(fields["encryptedPassword"], validate=True)
    padded = decryptor.update(encrypted) + decryptor.finalize()
    padding = padded[-1]
    if not 0 < padding <= _BLOCK_BYTES or padded[-padding:] != bytes([padding]) * padding:
        return None
    try:
        password = padded[:-padding].decode()
    except UnicodeDecodeError:
        return None
    return password if len(password) == int(fields["passwordLength"]) else None


def _key(secret: str, factory: str, salt: bytes, iterations: int, bits: int) -> bytes:
    match = _HASH.fullmatch(factory)
    if match is None:
        raise TlsError(f"the key factory {factory} is not available here")
    name = match[1].lower()
    return hashlib.pbkdf2_hmac(name, secret.encode(), salt, iterations, dklen=bits // 8)


def _cipher(key: bytes, vector: bytes) -> Any:
    try:
        from cryptography.hazmat.primitives.ciphers import (  # noqa: PLC0415  an extra
            Cipher,
            algorithms,
            modes,
        )
    except ImportError:
        raise TlsError(
            f"encrypted passwords need the package cryptography: {install('pkcs12')}"
        ) from None
    return Cipher(algorithms.AES(key), modes.CBC(vector))


def _base64(data: bytes) -> str:
    return base64.b64encode(data).decode()
