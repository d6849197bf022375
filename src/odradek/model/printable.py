r"""One printable form of text that others have chosen: client ids, group ids, hosts, principals.

A control character in such a name would act on a terminal or begin a line of a log; a bidirectional
or zero-width one would show another name than is meant. Each is written as an escape instead:

    printable("app\x1b[2J")         app\x1b[2J, of which the escape character is four letters
    printable("a\nok: all is well")  one line, with \n in it

Ordinary text is returned as it is. The form is for reading: a backslash is not doubled, so that it
cannot be turned back into the text.
"""

from typing import Final

_SHORT: Final = {"\n": "\\n", "\r": "\\r", "\t": "\\t"}


def printable(text: str) -> str:
    """The text with escapes for what is not printable (`str.isprintable`)."""
    if text.isprintable():
        return text
    return "".join(each if each.isprintable() else escaped(each) for each in text)


def printable_lines(text: str) -> str:
    """The same of a text of several lines: its line ends and tabs stay."""
    if text.isprintable() or text.replace("\n", "").replace("\t", "").isprintable():
        return text
    kept = ("\n", "\t")
    return "".join(each if each in kept or each.isprintable() else escaped(each) for each in text)


def escaped(character: str) -> str:
    r"""`\n`, `\x1b`, `\u202e` or `\U000e0001`."""
    if character in _SHORT:
        return _SHORT[character]
    code = ord(character)
    if code < 0x7F:  # else as in JSON, which may be what is printed
        return f"\\x{code:02x}"
    return f"\\u{code:04x}" if code < 0x10000 else f"\\U{code:08x}"
