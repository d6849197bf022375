"""How the answers of the ACL matrix are compared, recorded and read.

Of each response everything is compared but texts, addresses, times, sizes, offsets and the ids that
a broker draws: of these only whether they are there. The order of lists is not compared.

`answers.jsonl` has one line with the situations, then one line for each probe: its distinct
answers, and for each situation the index of its answer.
"""

import json
import pathlib
import zlib
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final, NamedTuple

from tests.recorded.acl_matrix.probes import Probe
from tests.recorded.acl_matrix.situations import Situation

from odradek.model.acl import words
from odradek.wire.schema import ZERO_UUID, Message

FILE: Final = pathlib.Path(__file__).parent / "answers.jsonl"

# Not compared: texts, addresses, and what belongs to the broker and not to the answer.
_LEFT_OUT: Final = {
    "active_producers", "broker_epoch", "cluster_id", "controller_id", "current_leader",
    "endpoint_type", "error_message", "expiry_timestamp", "expiry_timestamp_ms", "host",
    "issue_timestamp", "issue_timestamp_ms", "log_append_time_ms", "log_dir", "max_timestamp",
    "max_timestamp_ms", "node_endpoints", "port", "rack", "record_errors", "session_id",
    "throttle_time_ms", "timestamp", "token_id", "total_bytes", "transaction_start_time_ms",
    "usable_bytes", "partition_size", "aborted_transactions", "log_start_offset",
}  # fmt: skip
# Of these numbers: whether it is -1.
_NUMBERS: Final = {
    "base_offset", "end_offset", "high_watermark", "last_stable_offset", "leader_epoch",
    "low_watermark", "offset", "partition_epoch", "producer_epoch", "producer_id",
    "producer_id_start",
}  # fmt: skip
# Of these lists: whether something is in it.
_LISTS: Final = {"configs", "records", "log_dirs"}
# The fields that say what an element of a list is about.
_ABOUT: Final = (
    "name", "topic", "topic_name", "topic_id", "group_id", "transactional_id", "key",
    "resource_type", "resource_name", "pattern_type", "principal", "partition_index",
)  # fmt: skip
# Internal topics have as many partitions as the broker's options say.
_INTERNAL: Final = ("__consumer_offsets", "__transaction_state")


def compared(response: Message, names: Mapping[bytes, str]) -> Any:
    """The parts of a response that are compared, as JSON.

    `names` are those of topics, by topic id, and of delegation tokens, by HMAC and by the name of
    the resource of ACLs.
    """
    return json.loads(json.dumps(_plain(response, names)))


def _plain(value: Any, names: Mapping[bytes, str]) -> Any:
    if isinstance(value, Message):
        found = {}
        for field in value.SCHEMA.fields:
            here = getattr(value, field.name)
            if field.name in _LEFT_OUT:
                continue
            if field.name in _NUMBERS or (here not in (field.default, [])):
                found[field.name] = _plain_field(field.name, here, names)
        if found.get("name") in _INTERNAL or found.get("topic") in _INTERNAL:
            found.pop("partitions", None)
        return found
    if isinstance(value, list | tuple):
        return sorted((_plain(item, names) for item in value), key=_place)
    if isinstance(value, bytes | bytearray | memoryview):
        return bytes(value).hex()
    return value


def _plain_field(name: str, value: Any, names: Mapping[bytes, str]) -> Any:
    if name in ("topic_id", "hmac"):
        return "" if value in (ZERO_UUID, b"") else names.get(bytes(value), "another")
    if name == "resource_name":
        return names.get(value.encode(), value)
    if name in _NUMBERS:
        return -1 if value == -1 else "n"
    if name in _LISTS:
        return None if value is None else "some" if len(value) else "none"
    return _plain(value, names)


def _place(value: Any) -> str:
    """The order of a list: what an element is about comes first."""
    about = [value.get(name) for name in _ABOUT] if isinstance(value, dict) else []
    return _order([about, value])


def _order(value: Any) -> str:
    return json.dumps(value, sort_keys=True)


def as_text(situation: Situation) -> str:
    """The client and the ACLs of a situation, to compare and to read."""
    acls = []
    for pattern, entry in situation.acls:
        what = f"{words(pattern.resource_type)} {pattern.name}{'...' * pattern.prefixed}"
        verb = "+" if entry.allowed else "-"
        acls.append(f"{verb}{words(entry.operation)} {what} {entry.principal} {entry.host}")
    client = f"{situation.client.principal} {situation.client.host}"
    flag = " open" * situation.allow_if_no_acl
    return f"{situation.name}: {client}{flag}: {', '.join(acls)}"


def _digest(probe: Probe) -> str:
    return f"{zlib.crc32(repr(sorted(probe.fields.items())).encode()):08x}"


class Recorded(NamedTuple):
    """The answers to one probe, by situation."""

    probe: str
    digest: str
    answers: list[Any]
    at: list[int]


def write(
    kafka: str,
    situations: Sequence[Situation],
    probes: Sequence[Probe],
    answers: Mapping[str, Sequence[Any]],
) -> None:
    """Write the recorded answers: for each probe, by its name, one for each situation."""
    lines = [json.dumps({"kafka": kafka, "situations": [as_text(each) for each in situations]})]
    for probe in probes:
        distinct: dict[str, int] = {}
        given = answers[probe.name]
        at = [distinct.setdefault(_order(answer), len(distinct)) for answer in given]
        line = {
            "probe": probe.name,
            "digest": _digest(probe),
            "answers": [json.loads(text) for text in distinct],
            "at": at,
        }
        lines.append(json.dumps(line, separators=(",", ":")))
    FILE.write_text("\n".join(lines) + "\n")


def read() -> tuple[list[str], dict[str, Recorded]]:
    """The situations as text, and the recorded answers by the probe's name."""
    head, *lines = FILE.read_text().splitlines()
    found = (Recorded(**json.loads(line)) for line in lines)
    return json.loads(head)["situations"], {each.probe: each for each in found}


def is_of(recorded: Recorded, probe: Probe) -> bool:
    """Whether the recorded request is that of the probe."""
    return recorded.digest == _digest(probe)


def differences(recorded: Any, ours: Any, path: str = "") -> Iterator[str]:
    """Where two compared answers differ."""
    if isinstance(recorded, dict) and isinstance(ours, dict):
        for key in sorted({*recorded, *ours}):
            yield from differences(recorded.get(key), ours.get(key), f"{path}.{key}")
    elif isinstance(recorded, list) and isinstance(ours, list) and len(recorded) == len(ours):
        for index, (one, other) in enumerate(zip(recorded, ours, strict=True)):
            yield from differences(one, other, f"{path}[{index}]")
    elif recorded != ours:
        yield f"{path or 'answer'}: Kafka {_order(recorded)}, ours {_order(ours)}"
