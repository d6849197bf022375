"""How a message is declared: fields, versions, tags, defaults.

A message is a class whose body lists its fields in the order of the wire:

    class FetchPartition(Message):
        partition: int = int32()                          # in every version
        current_leader_epoch: int = int32("9+", default=-1, ignorable=True)

    class FetchRequest(Message, api_key=1, versions="4-17", flexible="12+"):
        max_wait_ms: int = int32()
        topics: list[FetchTopic] = array(FetchTopic)
        cluster_id: str | None = string("12+", nullable="12+", default=None, tag=0)

The annotation is for the type checker and the reader; the call on the right declares the
encoding. Version ranges are written as Kafka writes them: "3", "3-5", "3+".

    * Every field has a default: zero, "", b"", False, [], or what is declared.
    * A field that a version lacks has its default after decoding: handlers see one shape.
    * Encoding a version that lacks a field refuses to drop its value: a value other than the
      default raises, unless the field is `ignorable`.
    * `nullable` names the versions in which the value may be None.
    * `tag` puts a field into the tagged section of a flexible version, which contains it
      only if it differs from its default.
    * An optional struct (`struct`) is None where the peer did not send it.

`odradek.wire.codec` turns a declaration into code. Neither module depends on a particular API.
"""

from collections.abc import Callable
from typing import (
    Any,
    ClassVar,
    Final,
    NamedTuple,
    TypeAlias,
    TypeVar,
    dataclass_transform,
    overload,
)

# Raw bytes: an encoder takes any of these, a decoder returns a memoryview of its input, never a
# copy. A caller that keeps it longer than the frame copies it with bytes().
Buffer: TypeAlias = bytes | bytearray | memoryview

ZERO_UUID: Final = bytes(16)
_NO_LAST: Final = 1 << 15


class Versions(NamedTuple):
    """A range of versions, both ends included."""

    first: int
    last: int

    def __contains__(self, version: object) -> bool:
        return isinstance(version, int) and self.first <= version <= self.last

    def __str__(self) -> str:
        if self.last == _NO_LAST:
            return f"{self.first}+"
        return f"{self.first}" if self.first == self.last else f"{self.first}-{self.last}"


NO_VERSIONS: Final = Versions(1, 0)


def parse_versions(text: str | None) -> Versions:
    """Read "3", "3-5" or "3+"; None is the empty range."""
    if text is None:
        return NO_VERSIONS
    if text.endswith("+"):
        return Versions(int(text[:-1]), _NO_LAST)
    first, _, last = text.partition("-")
    return Versions(int(first), int(last or first))


class Field:
    """One field of a message, as declared."""

    __slots__ = ("default", "ignorable", "kind", "name", "nullable", "part", "tag", "versions")

    def __init__(  # noqa: PLR0913 - what a declaration can contain
        self,
        kind: str,
        versions: str,
        default: Any,
        *,
        ignorable: bool = False,
        tag: int | None = None,
        nullable: str | None = None,
        part: "MessageType | str | None" = None,
    ) -> None:
        self.name = ""
        self.kind = kind
        self.versions = parse_versions(versions)
        self.default = default
        self.ignorable = ignorable
        self.tag = tag
        self.nullable = parse_versions(nullable)
        self.part = part  # of an array or struct: the message class, or the kind of a primitive

    @property
    def is_list(self) -> bool:
        """Whether the default is a new empty list for every message."""
        return self.kind == "array" and self.default is not None


class Schema:
    """What a message class declares, and the functions compiled for it so far."""

    __slots__ = (
        "api_key", "decoders", "encoders", "fields", "flexible", "name", "sliced_decoders",
        "sliced_encoders", "versions",
    )  # fmt: skip

    def __init__(
        self,
        name: str,
        fields: tuple[Field, ...],
        versions: tuple[str, str | None],
        api_key: int | None,
    ) -> None:
        self.name = name
        self.fields = fields
        self.versions = parse_versions(versions[0])
        self.flexible = parse_versions(versions[1])
        self.api_key = api_key
        self.decoders: dict[int, Callable[..., Any]] = {}
        self.encoders: dict[int, Callable[..., Any]] = {}
        self.sliced_decoders: dict[int, Callable[..., Any]] = {}
        self.sliced_encoders: dict[int, Callable[..., Any]] = {}

    @property
    def request_key(self) -> int:
        """The API key of a request or a response; a part of one has none."""
        assert self.api_key is not None, self.name
        return self.api_key


@dataclass_transform(kw_only_default=True)
class MessageType(type):
    """Turns the fields of a class body into slots and a schema."""

    SCHEMA: Schema

    def __new__(
        mcs,
        name: str,
        bases: tuple[type, ...],
        namespace: dict[str, Any],
        *,
        versions: str = "0+",
        flexible: str | None = None,
        api_key: int | None = None,
    ) -> "MessageType":
        """Make the class. `flexible`: its flexible versions (KIP-482)."""
        fields = []
        for field_name in [n for n, value in namespace.items() if isinstance(value, Field)]:
            field: Field = namespace.pop(field_name)
            field.name = field_name
            fields.append(field)
        namespace["__slots__"] = tuple(field.name for field in fields)
        cls = super().__new__(mcs, name, bases, namespace)
        cls.SCHEMA = Schema(name, tuple(fields), (versions, flexible), api_key)
        return cls


class Message(metaclass=MessageType):
    """Base of every encoded message and struct. Its constructor takes keywords only."""

    SCHEMA: ClassVar[Schema]

    def __init__(self, **values: Any) -> None:
        # The first message of a class compiles its constructor: straight-line code takes 0.2 ms
        # to compile and then a third of the time of a loop over the fields.
        cls = type(self)
        type.__setattr__(cls, "__init__", _constructor(cls.SCHEMA))
        cls.__init__(self, **values)

    def __eq__(self, other: object) -> bool:
        if type(self) is not type(other):
            return NotImplemented
        return all(
            getattr(self, field.name) == getattr(other, field.name) for field in self.SCHEMA.fields
        )

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        values = ", ".join(f"{f.name}={getattr(self, f.name)!r}" for f in self.SCHEMA.fields)
        return f"{self.SCHEMA.name}({values})"


def _constructor(schema: Schema) -> Callable[..., None]:
    constants: dict[str, Any] = {"absent": object()}
    parameters, body = ["self", "*"], ["pass"]
    for field in schema.fields:
        if field.is_list:
            parameters.append(f"{field.name}=absent")
            body.append(f"self.{field.name} = [] if {field.name} is absent else {field.name}")
        else:
            constants[f"default_{field.name}"] = field.default
            parameters.append(f"{field.name}=default_{field.name}")
            body.append(f"self.{field.name} = {field.name}")
    if not schema.fields:
        parameters.pop()
    source = f"def __init__({', '.join(parameters)}):\n  " + "\n  ".join(body)
    exec(compile(source, f"<constructor of {schema.name}>", "exec"), constants)
    made: Callable[..., None] = constants["__init__"]
    return made


# ---------------------------------------------------------------------- kinds of fields
#
# Each of these returns a `Field` and is typed as if it returned the value: so the type checker
# sees an attribute with a default, and reports a nullable field declared without `| None`.

M = TypeVar("M", bound=Message)


def _field(kind: str, versions: str, default: object, **options: Any) -> Any:
    return Field(kind, versions, default, **options)


def bool_(
    versions: str = "0+", *, default: bool = False, ignorable: bool = False, tag: int | None = None
) -> bool:
    """One byte; any value but 0 is true."""
    return _field("bool", versions, default, ignorable=ignorable, tag=tag)  # type: ignore[no-any-return]


def int8(
    versions: str = "0+", *, default: int = 0, ignorable: bool = False, tag: int | None = None
) -> int:
    return _field("int8", versions, default, ignorable=ignorable, tag=tag)  # type: ignore[no-any-return]


def int16(
    versions: str = "0+", *, default: int = 0, ignorable: bool = False, tag: int | None = None
) -> int:
    return _field("int16", versions, default, ignorable=ignorable, tag=tag)  # type: ignore[no-any-return]


def int32(
    versions: str = "0+", *, default: int = 0, ignorable: bool = False, tag: int | None = None
) -> int:
    return _field("int32", versions, default, ignorable=ignorable, tag=tag)  # type: ignore[no-any-return]


def int64(
    versions: str = "0+", *, default: int = 0, ignorable: bool = False, tag: int | None = None
) -> int:
    return _field("int64", versions, default, ignorable=ignorable, tag=tag)  # type: ignore[no-any-return]


def float64(
    versions: str = "0+", *, default: float = 0.0, ignorable: bool = False, tag: int | None = None
) -> float:
    """An IEEE 754 double."""
    return _field("float64", versions, default, ignorable=ignorable, tag=tag)  # type: ignore[no-any-return]


def uuid(
    versions: str = "0+", *, default: bytes = ZERO_UUID, ignorable: bool = False,
    tag: int | None = None,
) -> bytes:  # fmt: skip
    """Sixteen bytes; `odradek.wire.primitives` has their text form."""
    return _field("uuid", versions, default, ignorable=ignorable, tag=tag)  # type: ignore[no-any-return]


@overload
def string(
    versions: str = "0+", *, default: str = "", ignorable: bool = False, tag: int | None = None
) -> str: ...
@overload
def string(
    versions: str = "0+", *, nullable: str, default: str | None = "", ignorable: bool = False,
    tag: int | None = None,
) -> str | None: ...  # fmt: skip
def string(
    versions: str = "0+", *, nullable: str | None = None, default: str | None = "",
    ignorable: bool = False, tag: int | None = None,
) -> str | None:  # fmt: skip
    """UTF-8, after its length."""
    made: str | None = _field(
        "string", versions, default, ignorable=ignorable, tag=tag, nullable=nullable
    )
    return made


@overload
def bytes_(
    versions: str = "0+", *, default: bytes = b"", ignorable: bool = False, tag: int | None = None
) -> Buffer: ...
@overload
def bytes_(
    versions: str = "0+", *, nullable: str, default: bytes | None = b"", ignorable: bool = False,
    tag: int | None = None,
) -> Buffer | None: ...  # fmt: skip
def bytes_(
    versions: str = "0+", *, nullable: str | None = None, default: bytes | None = b"",
    ignorable: bool = False, tag: int | None = None,
) -> Buffer | None:  # fmt: skip
    """Bytes after their length; decoded without copying."""
    made: Buffer | None = _field(
        "bytes", versions, default, ignorable=ignorable, tag=tag, nullable=nullable
    )
    return made


def record_data(versions: str = "0+", *, nullable: str | None = None) -> Buffer | None:
    """Record batches after their length; on the wire the same as nullable bytes."""
    made: Buffer | None = _field("bytes", versions, None, nullable=nullable)
    return made


@overload
def array(
    item: type[M], versions: str = "0+", *, ignorable: bool = False, tag: int | None = None
) -> list[M]: ...
@overload
def array(
    item: type[M], versions: str = "0+", *, nullable: str, default: tuple[()] | None = (),
    ignorable: bool = False, tag: int | None = None,
) -> list[M] | None: ...  # fmt: skip
def array(
    item: type[M], versions: str = "0+", *, nullable: str | None = None,
    default: tuple[()] | None = (), ignorable: bool = False, tag: int | None = None,
) -> list[M] | None:  # fmt: skip
    """Any number of structs."""
    made: list[M] | None = _field(
        "array", versions, default, ignorable=ignorable, tag=tag, nullable=nullable, part=item
    )
    return made


def int64_array(versions: str = "0+", *, ignorable: bool = False) -> list[int]:
    """Any number of int64."""
    return _field("array", versions, (), ignorable=ignorable, part="int64")  # type: ignore[no-any-return]


@overload
def int32_array(
    versions: str = "0+", *, ignorable: bool = False, tag: int | None = None
) -> list[int]: ...
@overload
def int32_array(
    versions: str = "0+", *, nullable: str, default: tuple[()] | None = (), ignorable: bool = False
) -> list[int] | None: ...
def int32_array(
    versions: str = "0+", *, nullable: str | None = None, default: tuple[()] | None = (),
    ignorable: bool = False, tag: int | None = None,
) -> list[int] | None:  # fmt: skip
    """Any number of int32: broker ids, partitions."""
    made: list[int] | None = _field(
        "array", versions, default, ignorable=ignorable, tag=tag, nullable=nullable, part="int32"
    )
    return made


@overload
def string_array(versions: str = "0+", *, ignorable: bool = False) -> list[str]: ...
@overload
def string_array(
    versions: str = "0+", *, nullable: str, default: tuple[()] | None = (), ignorable: bool = False
) -> list[str] | None: ...
def string_array(
    versions: str = "0+", *, nullable: str | None = None, default: tuple[()] | None = (),
    ignorable: bool = False,
) -> list[str] | None:  # fmt: skip
    """Any number of strings."""
    made: list[str] | None = _field(
        "array", versions, default, ignorable=ignorable, nullable=nullable, part="string"
    )
    return made


def struct(
    item: type[M], versions: str = "0+", *, nullable: str | None = None, tag: int | None = None
) -> M | None:
    """One part, that may be null; or, with a tag, None stands for one whose fields are default."""
    made: M | None = _field(
        "struct", versions, None, ignorable=True, tag=tag, nullable=nullable, part=item
    )
    return made
