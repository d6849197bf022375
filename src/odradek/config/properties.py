r"""`server.properties`: the format of java.util.Properties, read and written.

# or ! begins a comment       key=value   key:value   key value   are the same
a \ at the end of a line continues it; white space at the beginning of lines is ignored
\t \n \r \f \uXXXX are Java's escapes; \ before another character stands for that character
"""

from collections.abc import Iterable, Iterator, Mapping

from odradek.config.option import InvalidConfigError

_BLANK = " \t\f"
_ESCAPES = {"t": "\t", "n": "\n", "r": "\r", "f": "\f"}


def parse(text: str) -> dict[str, str]:
    r"""The properties of a file. A key that is given twice has its last value.

    A byte order mark, which editors on Windows write, is no part of the first key.

    Raises:
        InvalidConfigError: with the number of the line with a malformed `\u` escape.
    """
    properties = {}
    for number, line in _logical_lines(text.removeprefix("\ufeff")):
        key, value = _split(line)
        try:
            properties[_unescape(key)] = _unescape(value)
        except ValueError as error:
            raise InvalidConfigError(f"line {number}: {error}") from None
    return properties


def render(properties: Mapping[str, str]) -> str:
    """The text of a file with these properties, in their order; the inverse of `parse`."""
    return "".join(
        f"{_escape(key, in_key=True)}={_escape(value, in_key=False)}\n"
        for key, value in properties.items()
    )


def parse_overrides(assignments: Iterable[str]) -> dict[str, str]:
    """The properties in `key=value` arguments of a command line.

    Raises:
        InvalidConfigError: an argument without `=`, or with nothing before it.
    """
    properties = {}
    for assignment in assignments:
        key, equals, value = assignment.partition("=")
        if not equals or not key.strip():
            raise InvalidConfigError(f"{assignment!r}: must have the form key=value")
        properties[key.strip()] = value
    return properties


def _logical_lines(text: str) -> Iterator[tuple[int, str]]:
    """Each line with its continuations, with the number of its first line; no comments."""
    begun, begun_at = "", 0
    lines = text.replace("\r\n", "\n").replace("\r", "\n").split("\n")
    for number, raw in enumerate(lines, 1):
        line = raw.lstrip(_BLANK)
        if not begun:
            if not line or line[0] in "#!":
                continue
            begun_at = number
        backslashes = len(line) - len(line.rstrip("\\"))
        if backslashes % 2:
            begun += line[:-1]
            continue
        yield begun_at, begun + line
        begun = ""
    if begun:
        yield begun_at, begun


def _split(line: str) -> tuple[str, str]:
    escaped = False
    for position, character in enumerate(line):
        if escaped:
            escaped = False
        elif character == "\\":
            escaped = True
        elif character in "=:" + _BLANK:
            rest = line[position:].lstrip(_BLANK)
            if rest[:1] in ("=", ":"):
                rest = rest[1:].lstrip(_BLANK)
            return line[:position], rest
    return line, ""


def _unescape(text: str) -> str:
    if "\\" not in text:
        return text
    out, position = [], 0
    while position < len(text):
        character = text[position]
        position += 1
        if character != "\\" or position == len(text):
            out.append(character)
            continue
        character = text[position]
        position += 1
        if character == "u":
            digits = text[position : position + 4]
            if len(digits) != 4 or any(digit not in "0123456789abcdefABCDEF" for digit in digits):
                raise ValueError(f"\\u{digits}: must have four hexadecimal digits")
            out.append(chr(int(digits, 16)))
            position += 4
        else:
            out.append(_ESCAPES.get(character, character))
    # Java's characters are UTF-16: two escapes may be the halves of one character.
    return "".join(out).encode("utf-16", "surrogatepass").decode("utf-16", "replace")


def _escape(text: str, *, in_key: bool) -> str:
    out = []
    for position, character in enumerate(text):
        if character in "\t\n\r\f":
            out.append("\\" + "tnrf"["\t\n\r\f".index(character)])
        elif character in "\\=:#!" or (character == " " and (in_key or position == 0)):
            out.append("\\" + character)
        elif " " <= character <= "~":
            out.append(character)
        else:
            pairs = character.encode("utf-16-be", "surrogatepass")
            out += [f"\\u{pairs[i]:02X}{pairs[i + 1]:02X}" for i in range(0, len(pairs), 2)]
    return "".join(out)
