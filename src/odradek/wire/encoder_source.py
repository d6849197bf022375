"""Writes the encoder of one message class in one version.

What comes out for a part with an int32, a string and the end of the part, flexible:

    s5 = e2.name.encode()
    n6 = len(s5) + 1
    put(pack_7(e2.partition, n6) if n6 < 128 else pack_8(e2.partition) + varint(n6))
    put(s5)
    put(zero)

A run of fixed-size fields is one `pack`, together with the length of what follows; the
pieces are joined once at the end. A tagged section without fields is a zero byte, which
rides in the next run (`x` in a format).

What a version cannot say is refused (`UnsupportedFieldError`), as is a value that its field
cannot hold (`UnencodableError`): both are mistakes of ours, and name the field.
"""

from struct import Struct, pack
from typing import Any

from odradek.wire import primitives
from odradek.wire.schema import Field, MessageType
from odradek.wire.source import FIXED, Source, absent, present, tagged, yield_line


class EncoderSource:
    """One encoder being written. `_run` holds the fixed-size fields not yet written."""

    def __init__(self, message: MessageType, version: int, *, yields: bool = False) -> None:
        """`yields`: a generator that yields every few hundred elements, and returns the same."""
        self._yields = yields
        self._depth = 0  # of arrays around what is being written
        self._source = Source(message.SCHEMA, version, "def encode(m):")
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
            stumbles=primitives.ENCODING_STUMBLES,
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
        with source.block("except stumbles as error:"):
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
                    self._refuse_if_said(f"{value}.{field.name}", field)
        for field in present(fields, self._version):
            with source.field(field):
                self._field(f"{value}.{field.name}", field)
        if self._flexible:
            self._tags(value, tagged(fields, self._version))

    def _refuse_if_said(self, value: str, field: Field) -> None:
        source = self._source
        source.line(
            f"if {self._is_said(value, field)}: "
            f"raise unsupported({source.where!r}, {value}, {str(field.versions)!r})"
        )

    def _is_said(self, value: str, field: Field) -> str:
        """The condition that a field differs from its default."""
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
        """The run collected so far: format, arguments, whose; it begins anew."""
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
        """Write the run and a length or count; flexible lengths come increased by one."""
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
        """A part that may be null: a byte says whether it is there."""
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
                # What is written is joined on the way: a million pieces take long at once.
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
        """A tagged field is written aside first, for its size stands before it."""
        source, outer = self._source, self._put
        aside, data = source.local("aside"), source.local("s")
        with source.field(field), source.block(f"if {self._is_said(value, field)}:"):
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
