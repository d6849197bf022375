"""Decode values that serializers of a schema registry have written: Avro and Protobuf.

    pip install fastavro protobuf
    python examples/spark/registry.py HOST:PORT TOPIC --schema 1=order.avsc --schema 2=order.desc

Such a value begins with a zero byte and the schema's id (four bytes, the highest first). In one of
Protobuf a list of numbers follows that says which message of the file it is. `--schema` names what
the registry has under an id: an Avro schema, or the output of
`protoc --include_imports --descriptor_set_out=order.desc order.proto`.

Values become JSON, so records of several schemas can be in one topic. What cannot be decoded keeps
its value and has an error: dead_letters.py shows where to put it.
"""

import argparse
import io
import json
import pathlib
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession

from odradek.spark.java import prepare

MAGIC = b"\0"
HEADER_BYTES = 5
Decode = Callable[[bytes], Any]  # what follows the header -> what JSON can say


class FrameError(ValueError):
    """A value is not one of a registry's serializer."""


def split(value: bytes | None) -> tuple[int, bytes]:
    """The schema's id, and what follows the header."""
    if value is None or len(value) < HEADER_BYTES or value[:1] != MAGIC:
        raise FrameError("the value does not begin with a zero byte and a schema id")
    return int.from_bytes(value[1:HEADER_BYTES], "big"), value[HEADER_BYTES:]


def message_indexes(body: bytes) -> tuple[list[int], bytes]:
    """Which message of a Protobuf file a value is, and the message.

    The first number is the index of a message, the next one that of a message inside it, and so
    on. They follow their count; all are zigzag varints. A count of 0 stands for [0].
    """
    count, at = varint(body, 0)
    if not 0 <= count <= len(body):
        raise FrameError(f"the value has {count} message indexes")
    indexes = []
    for _ in range(count):
        index, at = varint(body, at)
        indexes.append(index)
    return indexes or [0], body[at:]


def varint(body: bytes, at: int) -> tuple[int, int]:
    """A zigzag varint, and where it ends."""
    number = 0
    for shift in range(0, 35, 7):
        if at == len(body):
            break
        byte = body[at]
        at += 1
        number |= (byte & 0x7F) << shift
        if byte < 0x80:
            return (number >> 1) ^ -(number & 1), at
    raise FrameError("the message indexes are cut off")


def avro(schema: str) -> Decode:
    """Decode with the Avro schema that the registry has under the id."""
    import fastavro  # type: ignore[import-not-found,unused-ignore]  # noqa: PLC0415

    parsed = fastavro.parse_schema(json.loads(schema))
    return lambda body: fastavro.schemaless_reader(io.BytesIO(body), parsed)


def protobuf(descriptors: bytes) -> Decode:
    """Decode with a set of descriptors: the last file in it has the messages."""
    from google.protobuf import (  # type: ignore[import-untyped,unused-ignore]  # noqa: PLC0415
        descriptor_pb2,
        descriptor_pool,
        json_format,
        message_factory,
    )

    files = descriptor_pb2.FileDescriptorSet.FromString(descriptors).file
    pool = descriptor_pool.DescriptorPool()
    for file in files:
        pool.Add(file)
    found = pool.FindFileByName(files[-1].name)
    top = [found.message_types_by_name[each.name] for each in files[-1].message_type]

    def decode(body: bytes) -> Any:
        indexes, rest = message_indexes(body)
        inside, kind = top, None
        for index in indexes:
            if not 0 <= index < len(inside):
                raise FrameError(f"the schema has no message {indexes}")
            kind = inside[index]
            inside = kind.nested_types
        message = message_factory.GetMessageClass(kind).FromString(rest)
        return json_format.MessageToDict(message, preserving_proto_field_name=True)

    return decode


def decoder(file: pathlib.Path) -> Decode:
    """By the file's suffix: `.avsc` is Avro, all else a set of descriptors."""
    return avro(file.read_text()) if file.suffix == ".avsc" else protobuf(file.read_bytes())


def decoded(frame: DataFrame, schemas: Mapping[int, pathlib.Path]) -> DataFrame:
    """The columns partition, offset, key, value, schema_id, json and error.

    The files of the schemas are read by the tasks: they are on every machine that runs tasks.
    """

    def decode(batches: Iterator[Any]) -> Iterator[Any]:
        decoders = {number: decoder(file) for number, file in schemas.items()}
        for batch in batches:
            rows = [one(value, decoders) for value in batch.column("value").to_pylist()]
            numbers, texts, errors = zip(*rows, strict=True) if rows else ((), (), ())
            yield pa.RecordBatch.from_arrays(
                [
                    *batch.columns,
                    pa.array(numbers, pa.int32()),
                    pa.array(texts, pa.string()),
                    pa.array(errors, pa.string()),
                ],
                [*batch.schema.names, "schema_id", "json", "error"],
            )

    columns = "partition int, offset bigint, key binary, value binary"
    return frame.select("partition", "offset", "key", "value").mapInArrow(
        decode, f"{columns}, schema_id int, json string, error string"
    )


def one(
    value: bytes | None, decoders: Mapping[int, Decode]
) -> tuple[int | None, str | None, str | None]:
    """A value's schema id, JSON and error."""
    number = None
    try:
        number, body = split(value)
        decode = decoders.get(number) or missing(number)
        return number, json.dumps(decode(body), default=str), None
    except Exception as error:  # the libraries raise errors of many kinds for damaged values
        return number, None, f"{type(error).__name__}: {error}"


def missing(number: int) -> Decode:
    """There is no such schema."""
    raise FrameError(f"there is no schema {number}")


def named(text: str) -> tuple[int, pathlib.Path]:
    """`ID=FILE`."""
    number, _, file = text.partition("=")
    return int(number), pathlib.Path(file).resolve()


def main() -> None:
    """Print what a topic has, decoded."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("servers")
    parser.add_argument("topic")
    parser.add_argument("--schema", type=named, action="append", default=[], metavar="ID=FILE")
    given = parser.parse_args()
    prepare()
    spark = SparkSession.builder.appName("registry").getOrCreate()
    frame = (
        spark.read.format("odradek")
        .option("kafka.bootstrap.servers", given.servers)
        .option("subscribe", given.topic)
        .load()
    )
    rows = decoded(frame, dict(given.schema)).orderBy("partition", "offset").collect()
    for row in rows:
        print(row.partition, row.offset, row.json or row.error)
    spark.stop()


if __name__ == "__main__":
    main()
