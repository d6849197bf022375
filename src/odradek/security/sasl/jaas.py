"""Parser for `sasl.jaas.config`: one login module in the syntax of JAAS.

    org.apache.kafka.common.security.plain.PlainLoginModule required
        username="alice" password="alice-secret";

A login module's class, a flag, options `key=value` with the value quoted or bare, a semicolon.
The class name is only compared, never loaded.
"""

import re
from typing import Final, NamedTuple

from odradek.model.errors import OdradekError

_FLAGS: Final = ("required", "requisite", "sufficient", "optional")
_TOKEN: Final = re.compile(
    r"""\s*(?:"((?:[^"\\]|\\.)*)"|'((?:[^'\\]|\\.)*)'|([=;])|([^\s=;"']+))""", re.DOTALL
)


class JaasError(OdradekError):
    """A `sasl.jaas.config` that cannot be parsed. Its text contains no values of options."""


class LoginModule(NamedTuple):
    """The login module's class name and its options."""

    module: str
    options: dict[str, str]


def parse_jaas(text: str) -> LoginModule:
    """Parse a `sasl.jaas.config`. Error messages contain no values, because passwords are among
    them.

    Raises:
        JaasError: not one login module with options and a semicolon at its end.
    """
    tokens = _tokens(text)
    if len(tokens) < 3 or tokens[1].lower() not in _FLAGS:
        raise JaasError(
            "sasl.jaas.config: must be a login module, a flag "
            f"({', '.join(_FLAGS)}), options and a semicolon"
        )
    options = {}
    position = 2
    while position + 2 < len(tokens) and tokens[position + 1] == "=":
        options[tokens[position]] = tokens[position + 2]
        position += 3
    if tokens[position:] != [";"]:
        raise JaasError(
            f"sasl.jaas.config: after {len(options)} options neither another "
            "key=value nor the final semicolon follows"
        )
    return LoginModule(tokens[0], options)


def _tokens(text: str) -> list[str]:
    tokens, position = [], 0
    end = len(text.rstrip())
    while position < end:
        match = _TOKEN.match(text, position)
        if match is None:
            raise JaasError(f"sasl.jaas.config: a quote is not closed, at {position}")
        quoted = match[1] if match[1] is not None else match[2]
        if quoted is not None:
            tokens.append(re.sub(r"\\(.)", r"\1", quoted, flags=re.DOTALL))
        else:
            tokens.append(match[3] or match[4])
        position = match.end()
    return tokens
