"""The SCRAM credentials of users, as they are in the coordination store.

They are options of users (`/config/users/NAME`), in the format of Apache Kafka, whose tools and
brokers change them too. This broker reads all of them at its start and follows the notifications
of changes (`broker/dynamic_config.py`), so a log-in reads nothing.
"""

import logging
from collections.abc import Mapping

from odradek.coord.layout_config import ConfigEntity
from odradek.security.sasl.scram import (
    SCRAM_HASHES,
    CredentialError,
    StoredCredential,
    parse_credential,
)

log = logging.getLogger(__name__)


class ScramCredentials:
    """The credentials of all users, by mechanism."""

    def __init__(self) -> None:
        self._texts: dict[str, Mapping[str, str]] = {}  # by user, then by mechanism

    def set(self, configs: Mapping[ConfigEntity, Mapping[str, str]], *, whole: bool) -> None:
        """Use the credentials among the options of these entities; `whole`: no others exist."""
        if whole:
            self._texts.clear()
        for entity, options in configs.items():
            ((kind, user), *more) = entity.levels
            if kind != "users" or user is None or more:
                continue  # quotas alone
            texts = {name: options[name] for name in SCRAM_HASHES if name in options}
            if texts:
                self._texts[user] = texts
            else:
                self._texts.pop(user, None)

    def credential(self, mechanism: str, user: str) -> StoredCredential | None:
        """A user's credential; None if there is none, or (with a log line) if it is invalid."""
        text = self._texts.get(user, {}).get(mechanism)
        if text is None:
            return None
        try:
            return parse_credential(mechanism, text)
        except CredentialError as error:
            log.error("user %r cannot log in: %s; set the password again", user, error)  # noqa: TRY400
            return None
