"""Parser for `sasl.jaas.config`: one login module in the syntax of JAAS.

    org.apache.kafka.common.security.plain.PlainLoginModule required
        username="alice" password="alice-secret";

A login module's class, a flag, options `key=value` with the value quoted or bare, a semicolon.
The class name is only compared, never loaded.
"""

import re
from typing import Final, NamedTuple

from odradek.client.settings import SettingsError

_FLAGS: Final = ("required", "requisite", "sufficient", "optional")
_TOKEN: Final = re.compile(
    r"""\s*(?:"((?:[^"\\]|\\.)*)"|'((?:[^'\\]|\\.)*)'|([=;])|([^\s=;"']+))""", re.DOTALL
)


class LoginModule(NamedTuple):
    """The login module's class name and its options."""

    module: str
    options: dict[str, str]


def parse_jaas(text: str) -> LoginModule:
    """Parse a `sasl.jaas.config`. Error messages contain no values, because passwords are among
    them.

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
            f"sasl.jaas.config: after {len(options)} options neither another "
            "key=value nor the final semicolon follows"
        )
    return LoginModule(tokens[0], options)


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
