"""Generates the decoder of one message class in one version.

The code generated for a struct with an int32 and a string, in a flexible version:

    e2 = new_3(class_4)
    e2.partition, n5 = unpack_6(view, p)        # the run, and the first byte of the length
    p += 5
    if n5 > 127: n5, p = varint(view, p - 1, 'FetchRequest v12 topics.name')
    n5 -= 1
    q = p + n5
    if n5 < 0 or q > end: raise refused_length('FetchRequest v12 topics.name', n5, end - p)
    e2.name = view[p:q].tobytes().decode()
    p = q
    ...

Runs of fixed-size fields are one `unpack`, together with the length (or the first byte of
the length) of what follows. Bounds of fixed-size fields are not tested: `unpack` raises by
itself, and the line that raised identifies the field. A slice beyond the end would be short
without an error, so the bounds of slices are tested.
"""

from struct import Struct, unpack_from
from typing import Any

from odradek.wire import primitives
from odradek.wire.function_source import (
    FIXED,
    FunctionSource,
    absent,
    bytes_min,
    present,
    tagged,
    yield_line,
)
from odradek.wire.schema import Field, MessageType


class DecoderSource:
    """Generates one decoder. `_run` holds the fixed-size fields not yet written."""

    def __init__(self, message: MessageType, version: int, *, yields: bool = False) -> None:
        """`yields`: generate a generator that yields every few hundred elements."""
        self._yields = yields
        self._depth = 0  # the number of arrays around the current field
        self._source = FunctionSource(
            message.SCHEMA, version, "def decode(view, p, budget=elements_default):"
        )
        self._version = version
        self._flexible = self._source.flexible
        self._run: list[tuple[str, str]] = []
        self._run_where = ""
        self._source.constants.update(
            varint=primitives.unsigned_varint,
            refused_tags=primitives.refused_tags,
            skip_tags=primitives.skip_tags,
            tag_header=primitives.tag_header,
            refused_length=primitives.refused_length,
            refused_count=primitives.refused_count,
            refused_tag_size=primitives.refused_tag_size,
            refused_bytes=primitives.refused_bytes,
            field_at=self._source.field_at,
            decoding_errors=primitives.DECODING_ERRORS,
            new=object.__new__,
            unpack_from=unpack_from,
        )
        self._message = message

    def compile(self, elements_default: int) -> Any:
        """The function: (view, position, element budget) -> (message, position after it)."""
        source = self._source
        source.constants["elements_default"] = elements_default
        source.line("end = len(view)")
        if self._yields:
            source.line("yield")
        with source.block("try:"):
            self._part("m", self._message)
            self._flush()
        with source.block("except decoding_errors as error:"):
            source.line(
                "raise refused_bytes(field_at(error.__traceback__), error, p, view) from None"
            )
        source.line("return m, p")
        return source.compiled("decode", "decoder")

    # ------------------------------------------------------------------------------ parts

    def _part(self, target: str, message: MessageType) -> None:
        source = self._source
        fields = message.SCHEMA.fields
        class_name = source.constant("class", message, lambda: message)
        source.line(f"{target} = new({class_name})")
        for field in absent(fields, self._version) + tagged(fields, self._version):
            source.line(f"{target}.{field.name} = {self._default(field)}")
        for field in present(fields, self._version):
            with source.field(field):
                self._field(f"{target}.{field.name}", field)
        if self._flexible:
            self._tags(target, tagged(fields, self._version))

    def _default(self, field: Field) -> str:
        if field.is_list:
            return "[]"
        return repr(field.default)

    def _field(self, target: str, field: Field) -> None:
        if field.kind in FIXED:
            self._fixed(FIXED[field.kind], target)
        elif field.kind in ("string", "bytes"):
            self._bytes(target, field.kind, nullable=self._version in field.nullable)
        elif isinstance(field.part, MessageType) and field.kind == "struct":
            self._struct(target, field.part)
        else:
            assert field.kind == "array", field.kind
            self._array(target, field)

    # ------------------------------------------------------------------------- fixed size

    def _fixed(self, code: str, target: str) -> None:
        if not self._run:
            self._run_where = self._source.where
        self._run.append((code, target))

    def _flush(self) -> None:
        """Write the run collected so far."""
        if not self._run:
            return
        codes = "".join(code for code, _ in self._run)
        targets = [target for _, target in self._run]
        self._run.clear()
        if codes == "B":
            self._source.line(f"{targets[0]} = view[p]", self._run_where)
            self._source.line("p += 1")
            return
        run = Struct(">" + codes)
        unpack = self._source.constant("unpack", codes, lambda: run.unpack_from)
        comma = "," if len(targets) == 1 else ""
        self._source.line(f"{', '.join(targets)}{comma} = {unpack}(view, p)", self._run_where)
        self._source.line(f"p += {run.size}")

    def _length(self, wide_code: str) -> str:
        """Read a length or count, -1 for null. Returns the local variable that holds it."""
        source = self._source
        length = source.local("n")
        if self._flexible:
            self._fixed("B", length)
            self._flush()
            source.line(f"if {length} > 127: {length}, p = varint(view, p - 1, {source.where!r})")
            source.line(f"{length} -= 1")
        else:
            self._fixed(wide_code, length)
            self._flush()
        return length

    # -------------------------------------------------------------------- strings, bytes

    def _bytes(self, target: str, kind: str, *, nullable: bool) -> None:
        source = self._source
        length = self._length("h" if kind == "string" else "i")
        if not nullable:
            self._slice(target, kind, length)
            return
        with source.block(f"if {length} == -1:"):
            source.line(f"{target} = None")
        with source.block("else:"):
            self._slice(target, kind, length)

    def _slice(self, target: str, kind: str, length: str) -> None:
        source = self._source
        source.line(f"q = p + {length}")
        source.line(
            f"if {length} < 0 or q > end: raise refused_length({source.where!r}, {length}, end - p)"
        )
        source.line(
            f"{target} = " + ("view[p:q].tobytes().decode()" if kind == "string" else "view[p:q]")
        )
        source.line("p = q")

    def _struct(self, target: str, part: MessageType) -> None:
        """A nullable struct: a signed byte before it is negative for null."""
        source = self._source
        sign, made = source.local("n"), source.local("e")
        self._fixed("b", sign)
        self._flush()
        with source.block(f"if {sign} < 0:"):
            source.line(f"{target} = None")
        with source.block("else:"):
            self._part(made, part)
            self._flush()
            source.line(f"{target} = {made}")

    # ----------------------------------------------------------------------------- arrays

    def _array(self, target: str, field: Field) -> None:
        source = self._source
        count = self._length("i")
        if self._version not in field.nullable:
            self._items(target, field, count)
            return
        with source.block(f"if {count} == -1:"):
            source.line(f"{target} = None")
        with source.block("else:"):
            self._items(target, field, count)

    def _items(self, target: str, field: Field, count: str) -> None:
        source = self._source
        part = field.part
        item_bytes = self._item_bytes(part)
        # A number costs a fraction of what a struct does: no message object is made for it.
        cost = f"{count} >> 3" if part in primitives.LIST_CODES else count
        source.line(
            f"if not 0 <= {count} <= (end - p) // {item_bytes} or {cost} > budget: "
            f"raise refused_count({source.where!r}, {count}, (end - p, {item_bytes}, budget))"
        )
        source.line(f"budget -= {cost}")
        if part in primitives.LIST_CODES:
            self._numbers(target, primitives.LIST_CODES[part], count, item_bytes)
            return
        items, item = source.local("items"), source.local("e")
        source.line(f"{target} = {items} = []")
        number = source.local("i") if self._yields else "_"
        with source.block(f"for {number} in range({count}):"):
            if self._yields:
                source.line(yield_line(number, self._depth))
            self._depth += 1
            if isinstance(part, MessageType):
                self._part(item, part)
            else:
                self._primitive(item, str(part))
            self._flush()
            source.line(f"{items}.append({item})")
            self._depth -= 1

    def _primitive(self, item: str, kind: str) -> None:
        if kind in FIXED:
            self._fixed(FIXED[kind], item)
        else:
            self._bytes(item, kind, nullable=False)

    def _item_bytes(self, part: Any) -> int:
        if isinstance(part, MessageType):
            return bytes_min(part.SCHEMA, self._version, flexible=self._flexible)
        if part in FIXED:
            return Struct(">" + FIXED[part]).size
        return 1 if self._flexible else 2

    def _numbers(self, target: str, code: str, count: str, item_bytes: int) -> None:
        source = self._source
        short = source.constant("unpack_list", code, lambda: primitives.list_unpackers(code))
        source.line(
            f"{target} = list({short}[{count}](view, p) if {count} < {primitives.SHORT_LIST} "
            f"else unpack_from(f'>{{{count}}}{code}', view, p))"
        )
        source.line(f"p += {count} * {item_bytes}" if item_bytes > 1 else f"p += {count}")

    # ------------------------------------------------------------------------------- tags

    def _tags(self, target: str, fields: list[Field]) -> None:
        source = self._source
        count = source.local("n")
        self._fixed("B", count)
        self._flush()
        if not fields:
            source.line(f"if {count}: p = skip_tags(view, p, {count}, {source.where!r})")
            return
        tag, size, stop, turn = map(source.local, ("tag", "size", "stop", "turn"))
        with source.block(f"if {count}:"):
            source.line(f"if {count} > {primitives.TAGS_MAX}: raise refused_tags({source.where!r})")
            source.line(f"{tag} = -1")
            with source.block(f"for {turn} in range({count}):"):
                source.line(f"{tag}, {size}, p = tag_header(view, p, {tag}, {source.where!r})")
                source.line(f"{stop} = p + {size}")
                for number, field in enumerate(fields):
                    self._tagged(target, field, number, (tag, size, stop))
                with source.block("else:"):
                    source.line(f"p = {stop}")

    def _tagged(self, target: str, field: Field, number: int, names: tuple[str, str, str]) -> None:
        source = self._source
        tag, size, stop = names
        with (
            source.field(field),
            source.block(f"{'elif' if number else 'if'} {tag} == {field.tag}:"),
        ):
            if isinstance(field.part, MessageType) and field.kind == "struct":
                part = source.local("e")
                self._part(part, field.part)
                self._flush()
                source.line(f"{target}.{field.name} = {part}")
            else:
                self._field(f"{target}.{field.name}", field)
                self._flush()
            source.line(
                f"if p != {stop}: "
                f"raise refused_tag_size({source.where!r}, {size}, p - {stop} + {size})"
            )
