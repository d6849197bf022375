"""One line of JAAS, the language in which Java's properties say user and password.

    org.apache.kafka.common.security.plain.PlainLoginModule required
        username="alice" password="alice-secret";

A login module's class, a flag, options `key=value` with the value in quotes or bare, a semicolon.
The class is only compared, never loaded.
"""

import re
from typing import Final, NamedTuple

from odradek.client.settings import SettingsError

_FLAGS: Final = ("required", "requisite", "sufficient", "optional")
_TOKEN: Final = re.compile(
    r"""\s*(?:"((?:[^"\\]|\\.)*)"|'((?:[^'\\]|\\.)*)'|([=;])|([^\s=;"']+))""", re.DOTALL
)


class LoginModule(NamedTuple):
    """What one line says."""

    module: str
    options: dict[str, str]


def parse_jaas(text: str) -> LoginModule:
    """Read a `sasl.jaas.config`. No message repeats a value: passwords stand there.

    Raises:
        SettingsError: not one login module with options and a semicolon at its end.
    """
    tokens = _tokens(text)
    if len(tokens) < 3 or tokens[1].lower() not in _FLAGS:
        raise SettingsError(
            "sasl.jaas.config: must be a login module, a flag "
            f"({', '.join(_FLAGS)}), options and a semicolon"
        )
    options = {}
    position = 2
    while position + 2 < len(tokens) and tokens[position + 1] == "=":
        options[tokens[position]] = tokens[position + 2]
        position += 3
    if tokens[position:] != [";"]:
        raise SettingsError(
            f"sasl.jaas.config: after {len(options)} options there is neither another "
            "key=value nor the semicolon that ends it"
        )
    return LoginModule(tokens[0], options)


def credentials(text: str | None) -> tuple[str, str]:
    """User name and password out of a `sasl.jaas.config`.

    Raises:
        SettingsError: they are not in there.
    """
    if text is None:
        raise SettingsError(
            "sasl.jaas.config must be set: for example "
            'org.apache.kafka.common.security.plain.PlainLoginModule required username="..." '
            'password="...";'
        )
    module = parse_jaas(text)
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


def _tokens(text: str) -> list[str]:
    tokens, position = [], 0
    end = len(text.rstrip())
    while position < end:
        match = _TOKEN.match(text, position)
        if match is None:
            raise SettingsError(f"sasl.jaas.config: a quote is not closed, at {position}")
        quoted = match[1] if match[1] is not None else match[2]
        if quoted is not None:
            tokens.append(re.sub(r"\\(.)", r"\1", quoted, flags=re.DOTALL))
        else:
            tokens.append(match[3] or match[4])
        position = match.end()
    return tokens
