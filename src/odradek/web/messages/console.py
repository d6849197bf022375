"""The `kafka-console-producer` command that produces a message of the page. Pure.

The tool reads lines of text: `[name:value,name:value<tab>][key<tab>]value`. What is null is a word
that the command defines. The tool has no option for the partition.
"""

from typing import Final

from odradek.model.command import Command, flag
from odradek.plan.commands import Caller
from odradek.record.compression import Codec
from odradek.web.messages.produce import NewMessage

_NULLS: Final = ("null", "NULL", "<null>", "no-value")
_LINE: Final = frozenset("\n\r\0")
_FIELD: Final = _LINE | {"\t"}
_HEADER: Final = _FIELD | {",", ":"}


def console_command(message: NewMessage, caller: Caller) -> Command | None:
    """The command for a shell; None if the tool cannot produce this message."""
    if message.partition is not None:
        return None
    names = [name for name, _ in message.headers]
    data = [message.value, message.key, *(value for _, value in message.headers)]
    present = {each for each in data if each is not None} | {name.encode() for name in names}
    null = next((each for each in _NULLS if each.encode() not in present), "")
    try:
        value, key, *values = (null if each is None else each.decode() for each in data)
    except UnicodeDecodeError:
        return None
    fields = ((_LINE, [value]), (_FIELD, [key]), (_HEADER, names + values))
    if not null or any(each in text for ends, texts in fields for text in texts for each in ends):
        return None
    words = ["--topic", message.topic]
    if message.codec is not Codec.NONE:
        words += ["--compression-codec", message.codec.name.lower()]
    line = value
    if message.value is None or None in data[2:]:
        words += ["--property", f"null.marker={null}"]
    if message.key is not None:
        words += ["--property", "parse.key=true"]
        line = f"{key}\t{line}"
    if message.headers:
        words += ["--property", "parse.headers=true"]
        line = ",".join(map(":".join, zip(names, values, strict=True))) + f"\t{line}"
    config = flag("--producer.config", caller.config) if caller.config else ()
    where = ("--bootstrap-server", caller.bootstrap, *config)
    return Command(("kafka-console-producer", *where, *words), input_line=line)
