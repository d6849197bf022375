"""Config providers (KIP-421): values of options that are somewhere else.

    config.providers=file,env
    config.providers.file.class=org.apache.kafka.common.config.provider.FileConfigProvider
    config.providers.file.param.allowed.paths=/etc/kafka
    config.providers.env.class=org.apache.kafka.common.config.provider.EnvVarConfigProvider
    sasl.jaas.config=${file:/etc/kafka/secrets.properties:jaas}
    broker.rack=${env:ZONE}

A variable is `${provider:path:key}` or `${provider:key}`, anywhere in a value, and any number of
times. What it stands for is not searched for variables again. Kafka leaves a variable whose key
does not exist as it is, so that a password is `${file:...}`; here that is an error, as is a class
that does not exist. A variable of a provider that is not in `config.providers` stays as it is.
"""

import re
from collections.abc import Callable, Mapping
from posixpath import isabs, normpath
from typing import Final, NamedTuple, Protocol

from odradek.config.option import InvalidConfigError
from odradek.config.properties import parse

PROVIDERS: Final = "config.providers"
_PACKAGE: Final = "org.apache.kafka.common.config.provider."
_USUAL_NAMES: Final = ("file", "dir", "directory", "env")
_VARIABLE: Final = re.compile(r"\$\{([^}:]*):(?:([^}:]*):)?([^}]*)\}")


class Sources(Protocol):
    """Where values are kept."""

    def text(self, path: str) -> str:
        """The text of a file.

        Raises:
            OSError: it cannot be read; ValueError: it is not UTF-8.
        """

    def variable(self, name: str) -> str | None:
        """An environment variable; None if it is not set."""


_Find = Callable[[Sources, "_Provider", str, str], str]


class _Provider(NamedTuple):
    name: str
    find: _Find
    params: Mapping[str, str]


def resolve(properties: Mapping[str, str], sources: Sources) -> dict[str, str]:
    """The properties with the values of their variables, and without `config.providers` itself.

    Raises:
        InvalidConfigError: names the option, the variable and the rule, and never a value.
    """
    providers = {provider.name: provider for provider in _providers(properties)}
    found = {}
    for option, text in properties.items():
        if option != PROVIDERS and not option.startswith(f"{PROVIDERS}."):
            found[option] = _resolved(option, text, providers, sources) if "${" in text else text
    return found


def left(properties: Mapping[str, str]) -> list[str]:
    """The options in which a variable of the usual names is left: there is no such provider."""
    return [
        option
        for option, text in properties.items()
        if any(match[1] in _USUAL_NAMES for match in _VARIABLE.finditer(text))
    ]


def _providers(properties: Mapping[str, str]) -> list[_Provider]:
    found = []
    for name in filter(None, map(str.strip, properties.get(PROVIDERS, "").split(","))):
        key = f"{PROVIDERS}.{name}.class"
        written = properties.get(key, "").strip()
        find = _CLASSES.get(written.removeprefix(_PACKAGE))
        if find is None:
            known = ", ".join(_PACKAGE + each for each in _CLASSES)
            raise InvalidConfigError(f"{key}={written}: must be one of {known}")
        prefix = f"{PROVIDERS}.{name}.param."
        params = {k.removeprefix(prefix): v for k, v in properties.items() if k.startswith(prefix)}
        found.append(_Provider(name, find, params))
    return found


def _resolved(option: str, text: str, providers: Mapping[str, _Provider], sources: Sources) -> str:
    def value(match: re.Match[str]) -> str:
        provider = providers.get(match[1])
        if provider is None:
            return match[0]
        try:
            return provider.find(sources, provider, match[2] or "", match[3])
        except InvalidConfigError as error:
            raise InvalidConfigError(f"{option}: {match[0]}: {error}") from None

    return _VARIABLE.sub(value, text)


def _file(sources: Sources, provider: _Provider, path: str, key: str) -> str:
    if not path:
        raise InvalidConfigError(f"must have the form ${{{provider.name}:FILE:KEY}}")
    _check_allowed(provider, path)
    text = _read(sources, path)
    try:
        found = parse(text)
    except InvalidConfigError as error:
        raise InvalidConfigError(f"{path}: {error}") from None
    if key not in found:
        raise InvalidConfigError(f"{path} has no property {key!r}")
    return found[key]


def _directory(sources: Sources, provider: _Provider, path: str, key: str) -> str:
    if not path or not key or "/" in key or key in (".", ".."):
        raise InvalidConfigError(f"must have the form ${{{provider.name}:DIRECTORY:FILE NAME}}")
    _check_allowed(provider, path)
    return _read(sources, f"{path.rstrip('/')}/{key}")


def _environment(sources: Sources, provider: _Provider, path: str, key: str) -> str:
    if path:
        raise InvalidConfigError(f"must have the form ${{{provider.name}:NAME}}, without a path")
    pattern = provider.params.get("allowlist.pattern", ".*")
    try:
        is_allowed = re.fullmatch(pattern, key) is not None
    except re.error as error:
        where = f"{PROVIDERS}.{provider.name}.param.allowlist.pattern"
        raise InvalidConfigError(f"{where}={pattern}: {error}") from None
    if not is_allowed:
        raise InvalidConfigError(f"allowlist.pattern={pattern} does not allow this variable")
    value = sources.variable(key)
    if value is None:
        raise InvalidConfigError(f"the environment variable {key} is not set")
    return value


def _check_allowed(provider: _Provider, path: str) -> None:
    """`allowed.paths`: the path is one of them, or below one, without regard to links."""
    text = provider.params.get("allowed.paths", "").strip()
    if not text:
        return
    asked = normpath(path)
    for allowed in map(str.strip, text.split(",")):
        if not isabs(allowed):
            where = f"{PROVIDERS}.{provider.name}.param.allowed.paths"
            raise InvalidConfigError(f"{where}={text}: {allowed!r} must be an absolute path")
        top = normpath(allowed)
        if asked == top or asked.startswith(top.rstrip("/") + "/"):
            return
    raise InvalidConfigError(f"{path} is not below allowed.paths={text}")


def _read(sources: Sources, path: str) -> str:
    try:
        return sources.text(path)
    except OSError as error:
        raise InvalidConfigError(f"{path}: {error.strerror}") from None
    except ValueError:
        raise InvalidConfigError(f"{path}: must be UTF-8") from None


_CLASSES: Final[Mapping[str, _Find]] = {
    "FileConfigProvider": _file,
    "DirectoryConfigProvider": _directory,
    "EnvVarConfigProvider": _environment,
}
