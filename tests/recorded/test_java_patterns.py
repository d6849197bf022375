"""Patterns in Java's syntax compared with what `java.util.regex` of Java 17 finds.

`java_patterns/record.py` recorded `java_patterns/matches.json`, and compares drawn patterns too.
"""

import json
import pathlib

import pytest
from tests.recorded.java_patterns.record import TEXTS, our_matches

from odradek.model.java_pattern import JavaPatternError, compile_java_pattern

MATCHES = json.loads((pathlib.Path(__file__).parent / "java_patterns" / "matches.json").read_text())
# Java accepts them, and ours refuses them: Python has no equal, or their meaning is an accident.
WITHOUT_EQUAL = frozenset(
    (
        "\\R", "[a&&&b]", "[a&&]", "[&&a]", "[a&&b&&]", "\\p{L}", "\\pL", "\\p{IsGreek}",
        "\\p{IsAlphabetic}", "\\p{javaLowerCase}", "a{2}{3}", "(a)\\2", "\\1", "\\1(a)",
        "(?<=a|bc)b", "(?<=a*)b", "(?m)^a$", "(?x)a b", "(?d).", "(?u)a", "(?U)\\w", "(?iu)s",
        "\\N{DIGIT ONE}", "\\X", "\\G", "\\Ga",
    )
)  # fmt: skip


@pytest.mark.parametrize("pattern", sorted(MATCHES.keys() - WITHOUT_EQUAL))
def test_a_pattern_finds_what_java_finds(pattern: str) -> None:
    assert our_matches(pattern) == MATCHES[pattern]


@pytest.mark.parametrize("pattern", sorted(WITHOUT_EQUAL))
def test_a_pattern_without_an_equal_is_refused(pattern: str) -> None:
    assert len(MATCHES[pattern]) == len(TEXTS)
    with pytest.raises(JavaPatternError):
        compile_java_pattern(pattern)


def test_a_refusal_says_what_is_not_supported_and_where() -> None:
    with pytest.raises(JavaPatternError, match="flags other than i and s.*position 3") as refused:
        compile_java_pattern("a(?m)b")
    assert refused.value.pos == 3
