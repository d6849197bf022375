"""Generates the encoder of one message class in one version.

The code generated for a struct with an int32 and a string, in a flexible version:

    s5 = e2.name.encode()
    n6 = len(s5) + 1
    put(pack_7(e2.partition, n6) if n6 < 128 else pack_8(e2.partition) + varint(n6))
    put(s5)
    put(zero)

A run of fixed-size fields is one `pack`, together with the length of what follows; the
pieces are joined once at the end. A tagged section without fields is a zero byte, which
is part of the next run (`x` in a format).

A field that the version lacks and that differs from its default is refused
(`UnsupportedFieldError`), as is a value outside the range of its field (`UnencodableError`):
both are errors of the calling code, and name the field.
"""

from struct import Struct, pack
from typing import Any

from odradek.wire import primitives
from odradek.wire.function_source import FIXED, FunctionSource, absent, present, tagged, yield_line
from odradek.wire.schema import Field, MessageType


class EncoderSource:
    """Generates one encoder. `_run` holds the fixed-size fields not yet written."""

    def __init__(self, message: MessageType, version: int, *, yields: bool = False) -> None:
        """`yields`: generate a generator that yields every few hundred elements."""
        self._yields = yields
        self._depth = 0  # the number of arrays around the current field
        self._source = FunctionSource(message.SCHEMA, version, "def encode(m):")
        self._version = version
        self._flexible = self._source.flexible
        self._run: list[tuple[str, str]] = []  # format and expression; no expression for `x`
        self._run_fields: list[str] = []
        self._put = "put"
        self._source.constants.update(
            varint=primitives.encode_unsigned_varint,
            refused_value=primitives.refused_value,
            unsupported=primitives.unsupported,
            field_at=self._source.field_at,
            encoding_errors=primitives.ENCODING_ERRORS,
            pack=pack,
            one_byte=primitives.ONE_BYTE,
        )
        self._message = message

    def compile(self) -> Any:
        """The function: message -> bytes."""
        source = self._source
        with source.block("try:"):
            source.line("out = []")
            source.line("put = out.append")
            if self._yields:
                source.line("done = []")
                source.line("yield")
            self._part("m", self._message)
            self._flush()
        with source.block("except encoding_errors as error:"):
            source.line("raise refused_value(field_at(error.__traceback__), error) from error")
        source.line(f"return b''.join({'done + out' if self._yields else 'out'})")
        return source.compiled("encode", "encoder")

    # ------------------------------------------------------------------------------ parts

    def _part(self, value: str, message: MessageType) -> None:
        source = self._source
        fields = message.SCHEMA.fields
        for field in absent(fields, self._version):
            if not field.ignorable:
                with source.field(field):
                    self._refuse_unless_default(f"{value}.{field.name}", field)
        for field in present(fields, self._version):
            with source.field(field):
                self._field(f"{value}.{field.name}", field)
        if self._flexible:
            self._tags(value, tagged(fields, self._version))

    def _refuse_unless_default(self, value: str, field: Field) -> None:
        source = self._source
        source.line(
            f"if {self._differs_from_default(value, field)}: "
            f"raise unsupported({source.where!r}, {value}, {str(field.versions)!r})"
        )

    def _differs_from_default(self, value: str, field: Field) -> str:
        """The expression that is true where a field differs from its default."""
        if isinstance(field.part, MessageType) and field.kind == "struct":
            part = field.part
            default = self._source.constant("default", part, part)
            return f"{value} is not None and {value} != {default}"
        if field.default is None:
            return f"{value} is not None"
        if field.is_list:
            return f"{value} is None or {value}"
        return f"{value} != {field.default!r}"

    def _field(self, value: str, field: Field) -> None:
        nullable = self._version in field.nullable
        if field.kind in FIXED:
            self._fixed(FIXED[field.kind], value)
        elif field.kind in ("string", "bytes"):
            self._bytes(value, field.kind, nullable=nullable)
        elif isinstance(field.part, MessageType) and field.kind == "struct":
            self._struct(value, field.part)
        else:
            assert field.kind == "array", field.kind
            self._array(value, field, nullable=nullable)

    # ------------------------------------------------------------------------- fixed size

    def _fixed(self, code: str, value: str) -> None:
        self._run.append((code, value))
        if value:
            self._run_fields.append(self._source.where)

    def _take_run(self) -> tuple[str, str, str]:
        """Take the run collected so far: its format, its arguments, the fields it writes."""
        codes = "".join(code for code, _ in self._run)
        values = ", ".join(value for _, value in self._run if value)
        where = " or ".join(dict.fromkeys(self._run_fields))
        self._run.clear()
        self._run_fields.clear()
        return codes, values, where

    def _packed(self, codes: str, values: str) -> str:
        """The expression that packs a run."""
        if codes == "x":
            return "one_byte[0]"
        packer = self._source.constant("pack", codes, lambda: Struct(">" + codes).pack)
        return f"{packer}({values})"

    def _flush(self) -> None:
        """Write the run collected so far."""
        if self._run:
            codes, values, where = self._take_run()
            self._source.line(f"{self._put}({self._packed(codes, values)})", where)

    def _length(self, wide_code: str, length: str) -> None:
        """Write the run and a length or count; `length` is one more in a flexible version."""
        source = self._source
        if not self._flexible:
            self._fixed(wide_code, length)
            self._flush()
        elif self._run:
            codes, values, where = self._take_run()
            short = self._packed(codes + "B", f"{values}, {length}" if values else length)
            source.line(
                f"{self._put}({short} if {length} < 128 "
                f"else {self._packed(codes, values)} + varint({length}))",
                where,
            )
        else:
            source.line(f"{self._put}(one_byte[{length}] if {length} < 128 else varint({length}))")

    # -------------------------------------------------------------------- strings, bytes

    def _bytes(self, value: str, kind: str, *, nullable: bool) -> None:
        source = self._source
        data, length = source.local("s"), source.local("n")
        taken = f"{value}.encode()" if kind == "string" else value
        more = " + 1" if self._flexible else ""
        null = 0 if self._flexible else -1
        if nullable:
            source.line(f"if {value} is None: {data} = b''; {length} = {null}")
            source.line(f"else: {data} = {taken}; {length} = len({data}){more}")
        else:
            source.line(f"{data} = {taken}")
            source.line(f"{length} = len({data}){more}")
        self._length("h" if kind == "string" else "i", length)
        source.line(f"{self._put}({data})")

    def _struct(self, value: str, part: MessageType) -> None:
        """A nullable struct: a signed byte before it is -1 for null, 1 otherwise."""
        source = self._source
        self._flush()
        with source.block(f"if {value} is None:"):
            self._fixed("b", "-1")
            self._flush()
        with source.block("else:"):
            self._fixed("b", "1")
            self._part(value, part)
            self._flush()

    # ----------------------------------------------------------------------------- arrays

    def _array(self, value: str, field: Field, *, nullable: bool) -> None:
        source = self._source
        items, count = source.local("items"), source.local("n")
        more = " + 1" if self._flexible else ""
        source.line(f"{items} = {value}")
        if nullable:
            null = 0 if self._flexible else -1
            source.line(f"{count} = {null} if {items} is None else len({items}){more}")
        else:
            source.line(f"{count} = len({items}){more}")
        self._length("i", count)
        if nullable:
            with source.block(f"if {items} is not None:"):
                self._items(items, field)
        else:
            self._items(items, field)

    def _items(self, items: str, field: Field) -> None:
        source = self._source
        if field.part in primitives.LIST_CODES:
            self._numbers(items, primitives.LIST_CODES[field.part])
            return
        item, number = source.local("e"), source.local("i")
        loop = f"{number}, {item} in enumerate({items})" if self._yields else f"{item} in {items}"
        with source.block(f"for {loop}:"):
            if self._yields:
                # What is written is joined at each yield: joining a million pieces at the end
                # would block the event loop.
                source.line(
                    yield_line(number, self._depth, "done.append(b''.join(out)); out.clear()")
                )
            self._depth += 1
            if isinstance(field.part, MessageType):
                self._part(item, field.part)
            elif field.part in FIXED:
                self._fixed(FIXED[str(field.part)], item)
            else:
                self._bytes(item, str(field.part), nullable=False)
            self._flush()
            self._depth -= 1

    def _numbers(self, items: str, code: str) -> None:
        source = self._source
        short = source.constant("pack_list", code, lambda: primitives.list_packers(code))
        source.line(
            f"{self._put}({short}[len({items})](*{items}) "
            f"if len({items}) < {primitives.SHORT_LIST} "
            f"else pack(f'>{{len({items})}}{code}', *{items}))"
        )

    # ------------------------------------------------------------------------------- tags

    def _tags(self, value: str, fields: list[Field]) -> None:
        source = self._source
        if not fields:
            self._fixed("x", "")
            return
        self._flush()
        sections = source.local("tags")
        source.line(f"{sections} = []")
        for field in fields:
            self._tagged(f"{value}.{field.name}", field, sections)
        source.line(f"{self._put}(varint(len({sections})))")
        with source.block(f"if {sections}:"):
            source.line(f"{self._put}(b''.join({sections}))")

    def _tagged(self, value: str, field: Field, sections: str) -> None:
        """A tagged field is encoded into a list of its own, because its size comes before it."""
        source, outer = self._source, self._put
        aside, data = source.local("aside"), source.local("s")
        with source.field(field), source.block(f"if {self._differs_from_default(value, field)}:"):
            source.line(f"{aside} = []")
            self._put = f"{aside}.append"
            if isinstance(field.part, MessageType) and field.kind == "struct":
                self._part(value, field.part)
            else:
                self._field(value, field)
            self._flush()
            self._put = outer
            source.line(f"{data} = b''.join({aside})")
            source.line(f"{sections}.append(varint({field.tag}) + varint(len({data})) + {data})")
