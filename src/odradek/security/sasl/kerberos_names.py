"""From a Kerberos principal (`alice/host@REALM`) to a user's name, by
`sasl.kerberos.principal.to.local.rules` (Kafka: `KerberosShortNamer`).

    DEFAULT                                    the first component, of a principal of our realm
    RULE:[2:$1.$2](.*@OTHER)s/@OTHER//g/L      of two components: a format, a pattern that it has
                                               to match, a replacement, lower case (U: upper)
"""

import re
from typing import Final, NamedTuple

from odradek.model.errors import OdradekError
from odradek.model.java_pattern import JavaPatternError, compile_java_pattern

_PRINCIPAL: Final = re.compile(r"([^/@]+)(?:/([^/@]+))?(?:@([^/@]+))?")
_RULE: Final = re.compile(
    r"RULE:\[(?P<count>\d+):(?P<format>[^\]]*)\](?:\((?P<match>[^)]*)\))?"
    r"(?:s/(?P<pattern>[^/]*)/(?P<replacement>[^/]*)/(?P<all>g)?)?/?(?P<case>[LU])?"
)
_PARAMETER: Final = re.compile(r"\$(\d)")


class KerberosNameError(OdradekError):
    """A rule that cannot be parsed, or a principal for which no rule gives a name."""


class NameRule(NamedTuple):
    """One rule; `components` is 0 for DEFAULT."""

    components: int
    format: str = ""
    match: re.Pattern[str] | None = None
    pattern: re.Pattern[str] | None = None
    replacement: str = ""
    replaces_all: bool = False
    case: str | None = None

    def apply(self, parts: tuple[str, ...], realm: str) -> str | None:
        """The name of a principal; its realm is the first part. None: another rule decides."""
        if not self.components:
            return parts[1] if parts[0] == realm else None
        if len(parts) - 1 != self.components:
            return None
        name = _PARAMETER.sub(lambda found: parts[int(found[1])], self.format)
        if self.match is not None and not self.match.fullmatch(name):
            return None
        if self.pattern is not None:
            times = 0 if self.replaces_all else 1
            name = self.pattern.sub(self._replaced, name, count=times)
        if self.case is not None:
            name = name.lower() if self.case == "L" else name.upper()
        return name

    def _replaced(self, found: re.Match[str]) -> str:
        """The replacement, with `$1` for the first group as in Java."""
        return _PARAMETER.sub(lambda group: found[int(group[1])] or "", self.replacement)


def parse_rules(texts: tuple[str, ...]) -> list[NameRule]:
    """The rules, in their order.

    Raises:
        KerberosNameError: one cannot be parsed.
    """
    return [_parsed(text.strip()) for text in texts]


def short_name(principal: str, rules: list[NameRule], realm: str) -> str:
    """The user's name of a principal.

    Raises:
        KerberosNameError: no rule gives a simple name.
    """
    found = _PRINCIPAL.fullmatch(principal)
    if found is None:
        raise KerberosNameError(f"{principal!r} is not a Kerberos principal")
    service, host, of_realm = found.groups()
    if of_realm is None and host is None:
        return service
    parts = (of_realm or "", service) if host is None else (of_realm or "", service, host)
    for rule in rules:
        name = rule.apply(parts, realm)
        if name is None:
            continue
        if not name or "/" in name or "@" in name:
            raise KerberosNameError(f"{name!r} of {principal!r} is not a simple name")
        return name
    raise KerberosNameError(
        f"no rule of sasl.kerberos.principal.to.local.rules applies to {principal!r}"
    )


def _parsed(text: str) -> NameRule:
    if text == "DEFAULT":
        return NameRule(0)
    found = _RULE.fullmatch(text)
    numbers = [] if found is None else [int(n) for n in _PARAMETER.findall(found["format"])]
    if (
        found is None
        or found["count"] not in ("1", "2")
        or max(numbers, default=0) > int(found["count"])
    ):
        raise KerberosNameError(
            f"{text!r}: must be DEFAULT or RULE:[1 or 2:format](match)s/pattern/replacement/g/L"
        )
    try:
        match, pattern = (
            None if found[name] is None else compile_java_pattern(found[name])
            for name in ("match", "pattern")
        )
    except JavaPatternError as error:
        raise KerberosNameError(f"{text!r}: {error}") from None
    groups = [int(number) for number in _PARAMETER.findall(found["replacement"] or "")]
    if pattern is not None and max(groups, default=0) > pattern.groups:
        raise KerberosNameError(f"{text!r}: the replacement has ${max(groups)}, which is no group")
    return NameRule(
        int(found["count"]),
        found["format"],
        match,
        pattern,
        found["replacement"] or "",
        replaces_all=found["all"] is not None,
        case=found["case"],
    )
