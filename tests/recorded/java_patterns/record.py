"""Record what `java.util.regex` finds with the patterns below, in matches.json beside this file.

    .venv/bin/python tests/recorded/java_patterns/record.py

Needs Java 11 or newer. With a number as argument, so many drawn patterns are compared with ours
instead, and the differences are printed.
"""

import json
import pathlib
import random
import subprocess
import sys
import tempfile
from collections.abc import Sequence

from odradek.model.java_pattern import JavaPatternError, compile_java_pattern

HERE = pathlib.Path(__file__).parent

TEXTS = (
    "", "a", "b", "ab", "aa", "abc", "A", "aB", "x", "-", "]", "&", "a-b", "a.b", "m.x-1",
    "m.x-2", "orders", "pay.in", "1", "12", "_", " ", "a b", "a\n", "a\r\n", "\n", "\r",
    "a\u0085", "\u2028", "\u00e4", "\u0663", "\t", "\x0b", "\x1b", "aa1", "ab\nab", "^", "a{2}",
    "\\", "\u017f",
)  # fmt: skip

PATTERNS = (
    "a", "a|b", "orders|pay.*", ".*", ".", "a.", "^a", "a$", "^a$", "a\\Z", "a\\z", "\\Aa", "$",
    "\\R", "m\\.x-[0-9&&[^2]]", "[a-z&&[^x]]", "[a-z&&[^x]]+", "[abc&&ab]", "[a-c[x-z]]",
    "[^a-c[x-z]]", "[^a&&[ab]]", "[a&&[b]]", "[[a]]", "[^[a]]", "[a-z&&[a-m]&&[^b]]", "[&]",
    "[a&b]", "[a&&&b]", "[]a]", "[]", "[^]a]", "[-a]", "[a-]", "[a-c-e]", "[a\\-b]", "[\\d_]",
    "[^\\d]", "[\\D&&\\w]", "[a\\Q]-\\Eb]", "[\\]]", "[\\p{Alpha}-]", "[.]", "[ ab]", "[#]",
    "[^\n]", "[\\x61-\\x63]", "\\d", "\\D", "\\w", "\\W", "\\s", "\\S", "\\h", "\\H", "\\v",
    "\\V", "\\t", "\\e", "\\cA", "\\a", "\\x41", "\\x{41}", "\\u0041", "\\0101", "\\012", "\\-",
    "\\_", "\\y", "\\j", "\\", "\\x4", "\\u41", "\\p{Alpha}", "\\p{Lower}", "\\P{Lower}",
    "\\p{Upper}", "\\p{ASCII}", "\\p{Alnum}", "\\p{Digit}", "\\p{Punct}", "\\p{Graph}",
    "\\p{Print}", "\\p{Blank}", "\\p{Cntrl}", "\\p{XDigit}", "\\p{Space}", "\\p{L}", "\\pL",
    "\\p{IsGreek}", "\\p{IsAlphabetic}", "\\p{javaLowerCase}", "\\p{Nothing}", "\\Qa.b\\E",
    "\\Qa.b", "\\Q\\E", "\\Qa\\E+", "\\Qab\\E*", "\\E", "a*", "a+", "a?", "a*?", "a++", "a?+b",
    "a{2}", "a{1,}", "a{1,2}", "a{,2}", "a{2}{3}", "a**", "a{", "a{x}", "{", "}", "a}", "*a",
    "+", "?", "|", "a|", "|a", "()", "(a)(b)", "(a)\\1", "(a)\\11", "(a)\\2", "\\1", "\\1(a)",
    "(?<n>a)\\k<n>", "(?<n>a)\\k<m>", "(?<n>a)(?<n>b)", "(?<n1>a)b", "(?<1n>a)", "(?P<n>a)",
    "(?:a)b", "(?>a|ab)c", "(?=a)ab", "(?!a)b", "(?<=a)b", "(?<!a)b", "(?<=a|bc)b", "(?<=a*)b",
    "(?i)a", "(?i)ab|x", "a(?i)b", "(?i:a)b", "a(?i)b|c", "(a(?i)b)c", "(?i)[a-c]", "(?i)[^a]",
    "(?i)\\p{Lower}", "(?i)\\x61", "(?-i)a", "(?i)a(?-i)b", "(?i)(a)\\1", "(?is).", "(?s).",
    "(?s)a.", "(?m)^a$", "(?x)a b", "(?d).", "(?u)a", "(?i)\u00e4", "(?i)s", "(?U)\\w", "(?iu)s",
    "(?y)a", "(?#a)b", "(?", "(", ")", "(a", "a)", "[", "[a", "[b-a]", "[a-\\d]", "[a-[b]]",
    "[a&&]", "[&&a]", "[a&&b&&]", "\\N{DIGIT ONE}", "\\X", "\\G", "\\Ga", "\\ba", "\\Bb", "a\\b",
    "a\n", " a", "a b", "#", "a#b", "^*", "^+a", "$*", "(?=a)*", "\u00e4", "\\\u00e4",
    "[\u00e0-\u00ff]", "[^a\u0085]", "..", "a$\n", "$.", "(a|b)*", "(?:a|b){2,3}", "((a)(b))\\3",
    "\\d{2}", "(?i:[A-C&&[^b]])", "[a-c&&[b-d]&&[c-e]]", "[^a-c&&[b-d]]", "[[a-b][x]]",
    "[a[^b]]", "[^a[^b]]",
)  # fmt: skip

PIECES = (
    "a", "b", "ab", "x", "1", "-", "&&", "[", "]", "[^", "[a-c]", "[^x]", "^", "$", ".", "|",
    "(", ")", "(?:", "*", "+", "?", "{2}", "{1,}", "\\d", "\\w", "\\S", "\\p{Alpha}", "\\Q",
    "\\E", "(?i)", "(?s)", "(?=", "(?!", "\\1", "\\.", "\\n", "\\z", "\\Z", " ", "a-c", "(?i:",
    "(?<=", "++", "\\x61", "\\h", "\\R", "&", "A",
)  # fmt: skip


def units(text: str) -> str:
    """UTF-16 units as hexadecimal numbers."""
    encoded = text.encode("utf-16-be")
    return " ".join(encoded[at : at + 2].hex() for at in range(0, len(encoded), 2))


def java_matches(patterns: Sequence[str]) -> list[str]:
    """A character for each text: 2 if it matches, 1 if it is found in it, else 0; or `refused`."""
    with tempfile.TemporaryDirectory() as directory:
        files = [pathlib.Path(directory) / name for name in ("patterns", "texts")]
        for file, lines in zip(files, (patterns, TEXTS), strict=True):
            file.write_text("".join(f"{units(line)}\n" for line in lines))
        command = ["java", str(HERE / "Matches.java"), *map(str, files)]
        return subprocess.run(command, capture_output=True, check=True, text=True).stdout.split()


def our_matches(pattern: str) -> str:
    """As `java_matches`."""
    try:
        compiled = compile_java_pattern(pattern)
    except JavaPatternError:
        return "refused"
    return "".join(
        "2" if compiled.fullmatch(text) else "1" if compiled.search(text) else "0" for text in TEXTS
    )


def _compare(count: int) -> None:
    patterns = ["".join(random.choices(PIECES, k=random.randint(1, 7))) for _ in range(count)]
    refused = 0
    for pattern, theirs in zip(patterns, java_matches(patterns), strict=True):
        ours = our_matches(pattern)
        refused += ours == "refused" != theirs
        if ours not in ("refused", theirs):
            sys.stdout.write(f"{pattern!r}\n  Java {theirs}\n  ours {ours}\n")
    sys.stdout.write(f"{count} patterns; ours refuses {refused} that Java accepts\n")


if __name__ == "__main__":
    if len(sys.argv) > 1:
        _compare(int(sys.argv[1]))
    else:
        recorded = dict(zip(PATTERNS, java_matches(PATTERNS), strict=True))
        (HERE / "matches.json").write_text(json.dumps(recorded, indent=0) + "\n")
