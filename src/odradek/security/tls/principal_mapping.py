r"""`ssl.principal.mapping.rules`: from the subject of a certificate to the name of a principal.

    RULE:^CN=(.*?),OU=ServiceUsers.*$/$1/L, DEFAULT

Rules are separated by commas, and the first one whose pattern matches the whole name decides. In
the replacement `$1` is a group of the pattern; `L` or `U` makes the result lower or upper case.
`DEFAULT` is the name itself. A slash within a pattern or a replacement is written `\/`. This is
Kafka's `SslPrincipalMapper`; the patterns have Java's syntax (see `model.java_pattern`).
"""

import re
from collections.abc import Sequence
from typing import Final, NamedTuple

from odradek.model.java_pattern import JavaPatternError, compile_java_pattern
from odradek.security.tls.stores import TlsError

_OPTION: Final = "ssl.principal.mapping.rules"
_RULE: Final = re.compile(
    r"RULE:(?P<pattern>(?:[^\\/]|\\.)*)/(?P<replacement>(?:[^\\/]|\\.)*)/(?P<case>[LU]?)"
)
_REFERENCE: Final = re.compile(r"\\(?P<literal>.)|\$(?P<number>[0-9]+)|\$\{(?P<name>[^}]*)\}|\$|\\")


class _Rule(NamedTuple):
    pattern: re.Pattern[str] | None  # None: DEFAULT
    replacement: str
    case: str

    def apply(self, name: str) -> str | None:
        """The principal's name; None if the rule does not match."""
        if self.pattern is None:
            return name
        if self.pattern.fullmatch(name) is None:
            return None
        mapped = self.pattern.sub(self._expand, name)
        return {"L": mapped.lower, "U": mapped.upper}.get(self.case, lambda: mapped)()

    def _expand(self, match: re.Match[str]) -> str:
        return _REFERENCE.sub(lambda reference: _referred(match, reference), self.replacement)


class PrincipalMapping:
    """The rules of one listener."""

    def __init__(self, rules: str) -> None:
        """Parse the rules.

        Raises:
            TlsError: one of them is not a rule.
        """
        self._rules: Sequence[_Rule] = tuple(_parse(rules))

    def name_of(self, subject: str) -> str:
        """The name of the principal of a client whose certificate has this subject.

        Raises:
            TlsError: no rule matches, or the replacement of the matching one is invalid.
        """
        for rule in self._rules:
            try:
                name = rule.apply(subject)
            except (IndexError, ValueError) as error:
                raise TlsError(f"{_OPTION}: the name {subject}: {error}") from None
            if name is not None:
                return name
        raise TlsError(f"{_OPTION}: no rule matches the name {subject}")


def _parse(text: str) -> list[_Rule]:
    rules = []
    at = 0
    while at < len(text):
        if text[at].isspace():
            at += 1
            continue
        match = _RULE.match(text, at)
        begin = at if match is None else match.end()
        comma = text.find(",", begin)
        end = len(text) if comma < 0 else comma
        rest = text[begin:end].strip()
        if match is None and rest == "DEFAULT":
            rules.append(_Rule(None, "", ""))
        elif rest:
            raise TlsError(
                f"{_OPTION}: {text[at:end].strip()!r} is not a rule: DEFAULT, or "
                "RULE:pattern/replacement/ with L or U behind it"
            )
        elif match is not None:
            rules.append(_rule(match))
        at = end + 1
    return rules


def _rule(match: re.Match[str]) -> _Rule:
    try:
        pattern = compile_java_pattern(match["pattern"])
    except JavaPatternError as error:
        raise TlsError(f"{_OPTION}: {match['pattern']!r} is not a pattern: {error}") from None
    return _Rule(pattern, match["replacement"], match["case"])


def _referred(match: re.Match[str], reference: re.Match[str]) -> str:
    """The text for a reference in a replacement, as Java's `Matcher.appendReplacement` has it."""
    if reference["literal"] is not None:
        return reference["literal"]
    if reference["name"] is not None:
        return match[reference["name"]] or ""
    digits = reference["number"]
    if digits is None:
        raise ValueError(f"{match.re.pattern!r}: its replacement ends with {reference[0]!r}")
    groups = match.re.groups
    taken = len(digits)
    while taken > 1 and int(digits[:taken]) > groups:
        taken -= 1
    number = int(digits[:taken])
    if number <= groups:
        return (match[number] or "") + digits[taken:]
    if groups:  # Kafka keeps a reference to a group that is not there as it is
        return reference[0]
    raise IndexError(f"{match.re.pattern!r} has no group {number}")
