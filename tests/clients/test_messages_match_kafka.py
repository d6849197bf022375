"""Our declarations against Apache Kafka 3.9's own: the definitions in its jars, and its bytes.

Run by `./run clients`, which has the jars fetched.
"""

import base64
import json
import pathlib
import random
import re
import shutil
import subprocess
import zipfile

import pytest
from fetch import jars

from odradek.wire.api_keys import APIS, OWN_APIS, TRANSACTION_VERSION_2, ApiKey
from odradek.wire.codec import decoder, encoder
from odradek.wire.messages import consumer_offsets, consumer_protocol, transaction_state
from odradek.wire.schema import Field, Message, MessageType, Versions, parse_versions

pytestmark = pytest.mark.jvm

CLIENTS = "org.apache.kafka.common.message"
GROUP = "org.apache.kafka.coordinator.group.generated"
TRANSACTION = "org.apache.kafka.coordinator.transaction.generated"

KAFKAS = [api for api in APIS.values() if api.key not in OWN_APIS]
# The members of a group in this response are not declared: there are none.
DECLARED_IN_PART = ApiKey.CONSUMER_GROUP_DESCRIBE

# Each message class, and the Java class (without what the generator appends) that it mirrors.
MIRRORED = [
    *((api.request_class, f"{CLIENTS}.{api.name}Request") for api in KAFKAS),
    *(
        (api.response_class, f"{CLIENTS}.{api.name}Response")
        for api in KAFKAS
        if api.key != DECLARED_IN_PART
    ),
    (consumer_protocol.ConsumerProtocolSubscription, f"{CLIENTS}.ConsumerProtocolSubscription"),
    (consumer_protocol.ConsumerProtocolAssignment, f"{CLIENTS}.ConsumerProtocolAssignment"),
    (consumer_offsets.OffsetCommitKey, f"{GROUP}.OffsetCommitKey"),
    (consumer_offsets.OffsetCommitValue, f"{GROUP}.OffsetCommitValue"),
    (consumer_offsets.GroupMetadataKey, f"{GROUP}.GroupMetadataKey"),
    (consumer_offsets.GroupMetadataValue, f"{GROUP}.GroupMetadataValue"),
    (transaction_state.TransactionLogKey, f"{TRANSACTION}.TransactionLogKey"),
    (transaction_state.TransactionLogValue, f"{TRANSACTION}.TransactionLogValue"),
]
# Kafka counts its tags from 0 in each message.
OWN_TAGS_FROM = 10_000
IDS = [message.__name__ for message, _ in MIRRORED]


@pytest.fixture(scope="module")
def definitions() -> dict[str, dict]:
    """Kafka's definition of every message, by name."""
    found = {}
    for jar in sorted(jars("3.9").glob("kafka-*.jar")):
        with zipfile.ZipFile(jar) as opened:
            for entry in opened.namelist():
                if re.fullmatch(r"common/message/\w+\.json", entry):
                    text = re.sub(r"^\s*//.*$", "", opened.read(entry).decode(), flags=re.MULTILINE)
                    definition = json.loads(text)
                    found[definition["name"]] = definition
    return found


# -------------------------------------------------------------------------- declarations


def our_name(name: str) -> str:
    name = name.replace("KRaft", "Kraft")
    name = re.sub(r"(?<=[a-z0-9])([A-Z])", r"_\1", name)
    return name.lower()


def clipped(versions: Versions, valid: Versions) -> Versions | None:
    first, last = max(versions.first, valid.first), min(versions.last, valid.last)
    return Versions(first, last) if first <= last else None


def kafka_versions(text: str | None, valid: Versions) -> Versions | None:
    return None if text in (None, "none") else clipped(parse_versions(text), valid)


def kafka_default(field: dict) -> object:
    """The default of a field in Kafka's definition, as our declarations write it."""
    kind, default = field["type"], field.get("default")
    if kind.startswith("[]"):
        return None if default == "null" else ()
    if kind[0].isupper() or kind == "records" or default == "null":
        return None
    if kind == "bool":
        return str(default).lower() == "true"
    if kind == "string":
        return default or ""
    if kind in ("bytes", "uuid") and default is None:
        return b"" if kind == "bytes" else bytes(16)
    return float(default or 0) if kind == "float64" else int(str(default or 0), 0)


def kafka_facts(fields: list[dict], structs: dict[str, list], valid: Versions) -> list:
    """What we compare, of each field within the versions that we declare."""
    facts = []
    for field in fields:
        versions = kafka_versions(field["versions"], valid)
        if versions is None:
            continue
        item = field["type"].removeprefix("[]")
        parts = field.get("fields") or structs.get(item)
        part: object = "bytes" if item == "records" else item
        if item[0].isupper():
            part = kafka_facts(parts, structs, valid)
        is_struct = item[0].isupper() and item == field["type"]
        facts.append(
            {
                "name": our_name(field["name"]),
                "is array": field["type"].startswith("[]"),
                "type": part,
                "versions": versions,
                "nullable": kafka_versions(field.get("nullableVersions"), valid),
                "tag": field.get("tag"),
                "default": kafka_default(field),
                # An optional struct is None where a version lacks it.
                "ignorable": is_struct or str(field.get("ignorable", False)).lower() == "true",
            }
        )
        # A field is tagged in all of its versions, or in none.
        tagged = field["taggedVersions"] if "tag" in field else field["versions"]
        assert kafka_versions(tagged, valid) == versions
    return facts


def shared_versions(message: MessageType, kafka: dict) -> Versions:
    """The versions of ours that Kafka 3.9 has; some APIs have later ones (KIP-890)."""
    ours, theirs = message.SCHEMA.versions, parse_versions(kafka["validVersions"])
    beyond = TRANSACTION_VERSION_2.get(message.SCHEMA.api_key)
    assert ours.last == (beyond or theirs.last)
    return Versions(ours.first, theirs.last)


def kafkas_fields(message: MessageType) -> list[Field]:
    """Without the tagged fields that are our own, which other brokers skip (KIP-482)."""
    return [field for field in message.SCHEMA.fields if (field.tag or 0) < OWN_TAGS_FROM]


def our_facts(message: MessageType, valid: Versions) -> list:
    return [
        {
            "name": field.name,
            "is array": field.kind == "array",
            "type": our_type(field, valid),
            "versions": clipped(field.versions, valid),
            "nullable": clipped(field.nullable, valid),
            "tag": field.tag,
            "default": field.default,
            "ignorable": field.ignorable,
        }
        for field in kafkas_fields(message)
        if clipped(field.versions, valid) is not None
    ]


def our_type(field: Field, valid: Versions) -> object:
    if isinstance(field.part, MessageType):
        return our_facts(field.part, valid)
    return field.part or field.kind


@pytest.mark.parametrize("message", [message for message, _ in MIRRORED], ids=IDS)
def test_a_declaration_is_equal_to_kafkas(message, definitions):
    kafka = definitions[message.__name__]
    valid = shared_versions(message, kafka)
    structs = {struct["name"]: struct["fields"] for struct in kafka.get("commonStructs", [])}

    assert parse_versions(kafka["validVersions"]).last == valid.last
    assert kafka.get("apiKey") == message.SCHEMA.api_key
    assert kafka_versions(kafka["flexibleVersions"], valid) == clipped(
        message.SCHEMA.flexible, valid
    )
    assert our_facts(message, valid) == kafka_facts(kafka["fields"], structs, valid)


def test_the_table_has_kafkas_versions(definitions):
    for api in KAFKAS:
        request = definitions[f"{api.name}Request"]
        assert parse_versions(request["validVersions"]) == api.kafka, api.name
        assert request["apiKey"] == api.key
        flexible = request["flexibleVersions"]
        assert flexible == ("none" if api.flexible_from is None else f"{api.flexible_from}+")
        assert {"zkBroker"} & set(request["listeners"]), api.name


# --------------------------------------------------------------------------------- bytes


def example(message: MessageType, version: int, draw: random.Random) -> Message:
    """A message with a value in every field of the version."""
    values = {
        field.name: example_value(field, version, draw)
        for field in kafkas_fields(message)
        if version in field.versions
    }
    made: Message = message(**values)
    return made


def example_value(field: Field, version: int, draw: random.Random) -> object:
    if version in field.nullable and draw.random() < 0.3:
        return None
    if field.kind == "struct":
        part = example(field.part, version, draw)
        return None if part == field.part() else part  # None stands for all defaults
    if field.kind == "array":
        count = draw.choice([0, 1, 2, 2, 130 if not isinstance(field.part, MessageType) else 3])
        if isinstance(field.part, MessageType):
            return [example(field.part, version, draw) for _ in range(count)]
        return [primitive(str(field.part), draw) for _ in range(count)]
    return primitive(field.kind, draw)


def primitive(kind: str, draw: random.Random) -> object:
    bits = {"int8": 7, "int16": 15, "int32": 31, "int64": 63}
    if kind in bits:
        limit = 1 << bits[kind]
        return draw.choice([-limit, limit - 1, -1, 0, 1, draw.randrange(-limit, limit)])
    if kind == "string":
        return draw.choice(["", "orders", "ключ-鍵-🗝", "x" * draw.randrange(400)])
    return {
        "bool": lambda: draw.random() < 0.5,
        "float64": lambda: draw.choice([0.0, -1.5, 1e300]),
        "bytes": lambda: draw.randbytes(draw.choice([0, 3, 200])),
        "uuid": lambda: draw.randbytes(16),
    }[kind]()


def as_json(message: Message, version: int, kafka: dict, structs: dict) -> dict:
    """The message as Kafka's JSON converters read it."""
    fields = {our_name(field["name"]): field for field in kafka["fields"]}
    output = {}
    for field in kafkas_fields(message):
        value = getattr(message, field.name)
        if version not in field.versions or (field.tag is not None and value == field.default):
            continue
        theirs = fields[field.name]
        part = theirs.get("fields") or structs.get(theirs["type"].removeprefix("[]"))
        name = theirs["name"][0].lower() + theirs["name"][1:]
        output[name] = json_value(value, field, version, ({"fields": part}, structs))
    return output


def json_value(value: object, field: Field, version: int, kafka: tuple[dict, dict]) -> object:
    if isinstance(value, list):
        return [json_value(item, field, version, kafka) for item in value]
    if isinstance(value, Message):
        return as_json(value, version, *kafka)
    if isinstance(value, bytes):
        is_uuid = "uuid" in (field.kind, field.part)
        encode = base64.urlsafe_b64encode if is_uuid else base64.b64encode
        text = encode(value).decode()
        return text.rstrip("=") if is_uuid else text
    return value


def test_bytes_are_those_of_kafkas_classes(definitions):
    assert shutil.which("java"), "this test needs Java beside the jars"
    draw = random.Random(39)
    cases, lines = [], []
    for message, java in MIRRORED:
        kafka = definitions[message.__name__]
        structs = {struct["name"]: struct["fields"] for struct in kafka.get("commonStructs", [])}
        suffix = "Data" if java.startswith(CLIENTS) and "Protocol" not in java else ""
        valid = shared_versions(message, kafka)
        for version in range(valid.first, valid.last + 1):
            for _ in range(5):
                made = example(message, version, draw)
                output = json.dumps(as_json(made, version, kafka, structs))
                cases.append((made, version))
                lines.append(f"{java}{suffix}\t{version}\t{output}\n")
    program = pathlib.Path(__file__).with_name("support") / "KafkaBytes.java"
    answer = subprocess.run(
        ["java", "-cp", f"{jars('3.9')}/*", str(program)],
        input="".join(lines), capture_output=True, text=True, check=False, timeout=120,
    )  # fmt: skip
    assert answer.returncode == 0, answer.stderr[-2000:]
    theirs = [bytes.fromhex(line) for line in answer.stdout.splitlines()]

    assert len(theirs) == len(cases)
    for (made, version), expected in zip(cases, theirs, strict=True):
        assert encoder(type(made), version)(made) == expected, (version, made)
        assert decoder(type(made), version)(memoryview(expected), 0) == (made, len(expected))
