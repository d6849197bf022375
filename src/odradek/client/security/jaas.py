"""User name and password of a client, from its `sasl.jaas.config`."""

from typing import NamedTuple

from odradek.client.settings import SettingsError
from odradek.security.sasl.jaas import JaasError, parse_jaas


class Credentials(NamedTuple):
    """With what a client logs in."""

    user: str
    password: str
    is_token: bool  # they are the id and the HMAC of a delegation token


def credentials(text: str | None) -> Credentials:
    """User name and password from a `sasl.jaas.config`.

    Raises:
        SettingsError: they are missing, or the login module is not supported.
    """
    if text is None:
        raise SettingsError(
            "sasl.jaas.config must be set: for example "
            'org.apache.kafka.common.security.plain.PlainLoginModule required username="..." '
            'password="...";'
        )
    try:
        module = parse_jaas(text)
    except JaasError as error:
        raise SettingsError(str(error)) from None
    short = module.module.rpartition(".")[2]
    if short not in ("PlainLoginModule", "ScramLoginModule"):
        raise SettingsError(
            f"sasl.jaas.config: {module.module}: this client has PlainLoginModule and "
            "ScramLoginModule"
        )
    try:
        user, password = module.options["username"], module.options["password"]
    except KeyError as missing:
        raise SettingsError(f"sasl.jaas.config: option {missing.args[0]} is missing") from None
    is_token = module.options.get("tokenauth", "").lower() == "true"
    return Credentials(user, password, is_token and short == "ScramLoginModule")
