"""PLAIN: user name and password in one message (RFC 4616).

    alice NUL alice NUL secret      authorization id (may be empty), user name, password

The users are the options `user_NAME="password"` of the listener's `sasl.jaas.config`, as in
Kafka's `PlainLoginModule`.
"""

import hashlib
import hmac
from collections.abc import Mapping
from typing import Final

from odradek.security.sasl.jaas import LoginModule
from odradek.security.sasl.step import Done, Failed, Step, quoted

_USER_OPTION: Final = "user_"
# Kafka's texts for the client.
_WRONG: Final = "Authentication failed: Invalid username or password"
OTHER_AUTHORIZATION_ID: Final = (
    "Authentication failed: Client requested an authorization id that is different from username"
)


def plain_users(module: LoginModule) -> dict[str, str]:
    """The passwords of the users in a login module's options."""
    return {
        name.removeprefix(_USER_OPTION): password
        for name, password in module.options.items()
        if name.startswith(_USER_OPTION)
    }


class PlainServer:
    """The server's side of one PLAIN exchange."""

    def __init__(self, users: Mapping[str, str]) -> None:
        self._users = users

    def step(self, token: bytes) -> Step:
        try:
            fields = bytes(token).decode().split("\0")
        except UnicodeDecodeError:
            return Failed("the PLAIN message is not UTF-8")
        if len(fields) != 3:
            return Failed(f"the PLAIN message has {len(fields)} fields instead of 3")
        authorization_id, user, password = fields
        if not user or not password:
            return Failed("the PLAIN message has an empty user name or an empty password")
        expected = self._users.get(user, "")
        # An unknown user costs the same comparison as a wrong password.
        if not _is_same(password, expected) or not expected:
            return Failed(f"wrong user name or password for {quoted(user)}", _WRONG)
        if authorization_id not in ("", user):
            return Failed(
                f"user {quoted(user)} requested the authorization id {quoted(authorization_id)}",
                OTHER_AUTHORIZATION_ID,
            )
        return Done(f"User:{user}")


def _is_same(text: str, other: str) -> bool:
    """Compare in a time that depends neither on what is equal nor on the expected length."""
    digests = (hashlib.sha256(each.encode()).digest() for each in (text, other))
    return hmac.compare_digest(*digests)
