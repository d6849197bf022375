"""User name and password of a client, from its `sasl.jaas.config`."""

from odradek.client.settings import SettingsError
from odradek.security.sasl.jaas import JaasError, parse_jaas


def credentials(text: str | None) -> tuple[str, str]:
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
        return module.options["username"], module.options["password"]
    except KeyError as missing:
        raise SettingsError(f"sasl.jaas.config: option {missing.args[0]} is missing") from None
