r"""Regular expressions in Java's syntax, which Kafka's options have, as patterns of Python.

Users write `subscribePattern`, `--include` or `ssl.principal.mapping.rules` for
`java.util.regex.Pattern`. Python accepts most of them and means something else by some:
`[a-z&&[^x]]` has no `x` in Java and matches nothing in Python. A pattern with an equal is
translated; one without, such as `\p{IsGreek}` or `(?m)`, is refused.

`\b` is the one known difference: in Java 17 it knows all letters, from Java 19 on those of ASCII
only, and so does Python's here.
"""

import re
from collections.abc import Iterable
from typing import Final, NoReturn

_LINE_ENDS: Final = r"\n\r\x85\u2028\u2029"
_ANY: Final = "(?s:.)"
_ALL_ENDS: Final = rf"(?:\r\n|[{_LINE_ENDS}])"
# Members of a Python class, in Java's meaning without UNICODE_CHARACTER_CLASS.
_CLASSES: Final = {
    "d": "0-9",
    "w": "a-zA-Z0-9_",
    "s": r" \t\n\x0b\f\r",
    "h": r" \t\xa0\u1680\u180e\u2000-\u200a\u202f\u205f\u3000",
    "v": r"\n\x0b\f\r\x85\u2028\u2029",
}
_PROPERTIES: Final = {
    "Lower": "a-z",
    "Upper": "A-Z",
    "ASCII": r"\x00-\x7f",
    "Alpha": "a-zA-Z",
    "Digit": "0-9",
    "Alnum": "a-zA-Z0-9",
    "Punct": r"!-/:-@\[-`{-~",
    "Graph": "!-~",
    "Print": " -~",
    "Blank": r" \t",
    "Cntrl": r"\x00-\x1f\x7f",
    "XDigit": "0-9a-fA-F",
    "Space": r" \t\n\x0b\f\r",
}
_CONTROLS: Final = {"t": "\t", "n": "\n", "r": "\r", "f": "\f", "a": "\a", "e": "\x1b"}
_PLAIN_GROUPS: Final = ("(?:", "(?>", "(?=", "(?!", "(?<=", "(?<!")


class JavaPatternError(re.error):
    """The text is no pattern of Java, or one without an equal in Python; `msg` says which."""


def compile_java_pattern(pattern: str) -> re.Pattern[str]:
    """Compile a pattern of `java.util.regex.Pattern`, as its `compile` does without flags.

    Raises:
        JavaPatternError: see there.
    """
    if pattern.isascii() and pattern.replace("_", "").replace("-", "").isalnum():
        return re.compile(pattern, re.ASCII)
    translated = _JavaReader(pattern).whole()
    try:
        return re.compile(translated, re.ASCII)
    except (re.error, OverflowError, RecursionError) as error:
        raise JavaPatternError(f"{error}, as {translated!r}", pattern, 0) from None


class _JavaReader:
    """Reads one pattern; each method reads what its name says and returns the text for Python."""

    def __init__(self, pattern: str) -> None:
        self._pattern = pattern
        self._at = 0
        self._groups = 0
        self._names: set[str] = set()
        self._flags: frozenset[str] = frozenset()  # of `i` and `s`, those set at this place

    def whole(self) -> str:
        read = self._branches()
        if self._at < len(self._pattern):
            self._refuse("a ) without its (")
        return read

    def _refuse(self, why: str) -> NoReturn:
        raise JavaPatternError(why, self._pattern, min(self._at, len(self._pattern)))

    def _take(self, text: str) -> bool:
        if not self._pattern.startswith(text, self._at):
            return False
        self._at += len(text)
        return True

    def _next(self, missing: str) -> str:
        if self._at >= len(self._pattern):
            self._refuse(missing)
        self._at += 1
        return self._pattern[self._at - 1]

    def _until(self, end: str) -> str:
        stop = self._pattern.find(end, self._at)
        if stop < 0:
            self._refuse(f"the {end} is missing")
        text = self._pattern[self._at : stop]
        self._at = stop + len(end)
        return text

    # -------------------------------------------------------------- sequences, groups, quantifiers

    def _branches(self) -> str:
        # A flag that is set within a group holds for the group's later branches too.
        before = self._flags
        read: list[str] = []
        while self._at < len(self._pattern) and self._pattern[self._at] != ")":
            if self._take("|"):
                read.append("|")
            else:
                read.append(self._quantified())
        self._flags = before
        return "".join(read)

    def _quantified(self) -> str:
        begin = self._at
        if self._take(r"\Q"):
            stop = self._pattern.find(r"\E", self._at)
            quoted = self._pattern[self._at :] if stop < 0 else self._until(r"\E")
            self._at = len(self._pattern) if stop < 0 else self._at
            characters = [self._literal(character) for character in quoted]
            if not characters:
                return ""
            return "".join(characters[:-1]) + self._repeated(characters[-1])
        atom = self._atom()
        if not atom and self._pattern[begin : begin + 2] == "(?":
            return ""  # flags for what follows
        return self._repeated(atom)

    def _repeated(self, atom: str) -> str:
        found = re.compile(r"(?:[*+?]|\{[0-9]+(?:,[0-9]*)?\})[?+]?").match(self._pattern, self._at)
        if found is None:
            return atom
        self._at = found.end()
        if self._at < len(self._pattern) and self._pattern[self._at] in "*+?{":
            self._refuse("a quantifier after a quantifier")
        return f"(?:{atom}){found[0]}"

    def _atom(self) -> str:  # noqa: PLR0911 - one line for each kind
        if self._pattern.startswith("(", self._at):
            return self._group()
        character = self._next("")
        if character == "\\":
            return self._escape()
        if character == "[":
            return self._set()
        if character == ".":
            return _ANY if "s" in self._flags else f"[^{_LINE_ENDS}]"
        if character == "^":
            return r"\A"
        if character == "$":
            return self._before_last_line_end()
        if character in "*+?{":
            self._at -= 1
            self._refuse("a quantifier with nothing before it")
        return self._literal(character)

    def _before_last_line_end(self) -> str:
        # Between \r and \n is no end of a line.
        return rf"(?:(?!(?<=\r)\n)(?={_ALL_ENDS}?\Z))"

    def _literal(self, character: str) -> str:
        if "i" in self._flags and character.isascii() and character.isalpha():
            return f"[{character.lower()}{character.upper()}]"
        return re.escape(character)

    def _group(self) -> str:
        for opening in _PLAIN_GROUPS:
            if self._take(opening):
                return self._closed(opening)
        if self._take("(?<"):
            name = self._until(">")
            if not re.fullmatch("[a-zA-Z][a-zA-Z0-9]*", name) or name in self._names:
                self._refuse(f"{name!r} is no name of a group, or the second of this name")
            self._names.add(name)
            self._groups += 1
            return self._closed(f"(?P<{name}>")
        if self._take("(?"):
            return self._flag_group()
        self._at += 1
        self._groups += 1
        return self._closed("(")

    def _closed(self, opening: str) -> str:
        read = self._branches()
        if not self._take(")"):
            self._refuse("the ) of a group is missing")
        return f"{opening}{read})"

    def _flag_group(self) -> str:
        found = re.compile("([a-zA-Z]*)(?:-([a-zA-Z]*))?([:)])").match(self._pattern, self._at)
        if found is None:
            self._refuse("no group of Java begins so")
        given, withdrawn = set(found[1]), set(found[2] or "")
        if not given <= {"i", "s"}:
            self._refuse(f"flags other than i and s are not supported: {found[0]!r}")
        if not withdrawn <= set("idmsuxU"):
            self._refuse(f"there is no such flag: {found[0]!r}")
        self._at = found.end()
        before, self._flags = self._flags, (self._flags | given) - withdrawn
        if found[3] == ")":
            return ""
        read = self._closed("(?:")
        self._flags = before
        return read

    # --------------------------------------------------------------------------- escapes

    def _escape(self) -> str:  # noqa: PLR0911 - one line for each kind
        kind = self._next("nothing follows the last backslash")
        if kind in "bBA":
            return "\\" + kind
        if kind == "z":
            return r"\Z"
        if kind == "Z":
            return self._before_last_line_end()
        if kind == "k" and self._take("<"):
            name = self._until(">")
            if name not in self._names:
                self._refuse(f"no group before this is called {name!r}")
            return self._reference(f"(?P={name})")
        if kind.isascii() and kind.isdigit() and kind != "0":
            return self._numbered(int(kind))
        members = self._class_members(kind)
        if members is not None:
            return members
        return self._literal(self._character(kind))

    def _numbered(self, number: int) -> str:
        # Another digit belongs to the number if there are as many groups.
        while self._pattern[self._at : self._at + 1].isdigit():
            longer = number * 10 + int(self._pattern[self._at])
            if longer > self._groups:
                break
            number = longer
            self._at += 1
        if number > self._groups:
            self._refuse(f"there is no group {number} before this")
        return self._reference(f"(?:\\{number})")

    def _reference(self, text: str) -> str:
        return f"(?i:{text})" if "i" in self._flags else text

    def _class_members(self, kind: str) -> str | None:
        r"""The expression for one character of a class like \d or \p{Alpha}; None if it is none."""
        if kind.lower() in _CLASSES:
            members = _CLASSES[kind.lower()]
        elif kind in "pP":
            name = self._until("}") if self._take("{") else self._next("the property is missing")
            if name not in _PROPERTIES:
                self._refuse(
                    f"the property {name!r} is not supported; there are {', '.join(_PROPERTIES)}"
                )
            members = _PROPERTIES[name]
            if "i" in self._flags and name in ("Lower", "Upper"):
                members = "a-zA-Z"
        else:
            return None
        return f"[^{members}]" if kind.isupper() else f"[{members}]"

    def _character(self, kind: str) -> str:
        """The character of an escape whose first letter was read."""
        if kind in _CONTROLS:
            return _CONTROLS[kind]
        if kind == "c":
            return chr(ord(self._next("the control character is missing")) ^ 64)
        for letter, digits in (("x", r"\{([0-9a-fA-F]+)\}|([0-9a-fA-F]{2})"),
                               ("u", "()([0-9a-fA-F]{4})"),
                               ("0", "()([0-3][0-7]{2}|[0-7]{1,2})")):  # fmt: skip
            if kind == letter:
                found = re.compile(digits).match(self._pattern, self._at)
                if found is None:
                    self._refuse(f"the digits of \\{kind} are missing")
                self._at = found.end()
                code = int(found[1] or found[2], 8 if kind == "0" else 16)
                if code > 0x10FFFF:
                    self._refuse("there is no such character")
                return chr(code)
        if kind.isascii() and kind.isalnum():
            self._at -= 1
            self._refuse(f"\\{kind} is not supported, or no escape of Java")
        return kind

    # ---------------------------------------------------- sets of characters: [a-c[x]&&[^b]]

    def _set(self) -> str:
        """An expression for one character, after the opening bracket.

        Python has neither sets in sets nor intersections: a union becomes alternatives, and an
        intersection looks ahead for all but its last part.
        """
        is_negative = self._take("^")
        parts: list[list[str]] = [[]]
        is_first = True
        while is_first or not self._take("]"):
            if self._at >= len(self._pattern):
                self._at -= 1  # Java names the last character here
                self._refuse("unterminated set: the ] is missing")
            if self._take("&&"):
                if self._take("&"):
                    self._refuse("an & directly after &&")
                parts.append([])
            elif self._take("["):
                parts[-1].append(self._set())
            elif self._take(r"\Q"):
                parts[-1] += [self._literal(character) for character in self._until(r"\E")]
            else:
                parts[-1].append(self._member())
            is_first = False
        if not all(parts):
            self._refuse("an intersection with nothing on one side")
        unions = [_union(part) for part in parts]
        read = "".join(f"(?={union})" for union in unions[:-1]) + unions[-1]
        return f"(?:(?!{read}){_ANY})" if is_negative else f"(?:{read})"

    def _member(self) -> str:
        """One character, range or class of a set."""
        character = self._next("unterminated set: the ] is missing")
        if character == "\\":
            kind = self._next("nothing follows the last backslash")
            members = self._class_members(kind)
            if members is not None:
                return members
            character = self._character(kind)
        if not self._is_range():
            return self._literal(character)
        self._at += 1
        last = self._next("unterminated set: the ] is missing")
        if last == "\\":
            last = self._character(self._next("nothing follows the last backslash"))
        if last < character:
            self._refuse(f"the range {character}-{last} has no characters")
        both = f"[{re.escape(character)}-{re.escape(last)}]"
        return f"(?i:{both})" if "i" in self._flags else both

    def _is_range(self) -> bool:
        after = self._pattern[self._at + 1 : self._at + 2]
        return self._pattern.startswith("-", self._at) and after not in ("", "]", "[")


def _union(members: Iterable[str]) -> str:
    alternatives = list(dict.fromkeys(members))
    return alternatives[0] if len(alternatives) == 1 else f"(?:{'|'.join(alternatives)})"
