"""What is wrong with the records or offsets of a cluster, in words: None if nothing is."""

from collections import Counter
from collections.abc import Hashable, Iterable, Mapping, Sequence
from typing import Final, NamedTuple

Content = bytes | str | None
Expected = Content | tuple[Content, Content]  # a value, or a key and a value
_SHOWN: Final = 5


class Found(NamedTuple):
    """One record of a topic."""

    partition: int
    offset: int
    key: bytes | None
    value: bytes | None


def content(value: Content) -> bytes | None:
    """A key or a value as bytes."""
    return value.encode() if isinstance(value, str) else value


def _expected(entry: Expected) -> tuple[bytes | None, ...]:
    if isinstance(entry, tuple):
        key, value = entry
        return content(key), content(value)
    return (content(entry),)


def wrong_records(
    topic: str, found: Sequence[Found], expected: Iterable[Expected], *, in_order: bool
) -> str | None:
    """Compare all records of a topic with those that are expected, exactly so many."""
    wanted = [_expected(entry) for entry in expected]
    has_keys = any(len(entry) == 2 for entry in wanted)
    if has_keys and any(len(entry) == 1 for entry in wanted):
        raise TypeError("expected records are values, or pairs of key and value; not both")
    there = [((each.key, each.value) if has_keys else (each.value,)) for each in found]
    if (there == wanted) if in_order else (Counter(there) == Counter(wanted)):
        return None
    lines = [f"topic {topic} has {_count(len(there), 'record')}, expected {len(wanted)}"]
    lines += _differences(there, wanted, found)
    if in_order and Counter(there) == Counter(wanted):
        index = next(
            i for i, pair in enumerate(zip(there, wanted, strict=True)) if len(set(pair)) > 1
        )
        lines.append(
            f"  in another order: at {_place(found[index])} is {_text(there[index])}, "
            f"expected {_text(wanted[index])}"
        )
    return "\n".join(lines)


def not_exactly_once(
    topic: str, found: Sequence[Found], expected: Iterable[Expected]
) -> str | None:
    """Whether each expected record is there once, in whatever order; others are wrong, too."""
    return wrong_records(topic, found, expected, in_order=False)


def _differences(
    there: Sequence[Hashable], wanted: Sequence[Hashable], found: Sequence[Found]
) -> list[str]:
    has, needs = Counter(there), Counter(wanted)
    lines = []
    missing = needs - has
    if missing:
        lines.append(f"  missing: {_list(_text(each) for each in missing.elements())}")
    for each, count in has.items():
        places = [_place(found[i]) for i, other in enumerate(there) if other == each]
        if needs[each] and count > needs[each]:
            lines.append(
                f"  {_text(each)} is there {count} times, expected {needs[each]}: {_list(places)}"
            )
        elif not needs[each]:
            lines.append(f"  not expected: {_text(each)} at {_list(places)}")
    if len(lines) > 2 * _SHOWN:
        lines = [*lines[: 2 * _SHOWN], f"  and {len(lines) - 2 * _SHOWN} more differences"]
    return lines


def wrong_offsets(
    group: str, topic: str, found: Mapping[int, int], expected: Mapping[int, int]
) -> str | None:
    """Compare the committed offsets of a group; -1: there is none."""
    wrong = [
        f"  {topic}-{partition}: {_offset(found.get(partition, -1))}, expected {_offset(wanted)}"
        for partition, wanted in sorted(expected.items())
        if found.get(partition, -1) != wanted
    ]
    if not wrong:
        return None
    return "\n".join([f"group {group} has other committed offsets in {topic}", *wrong])


def _offset(offset: int) -> str:
    return "none" if offset < 0 else str(offset)


def _place(found: Found) -> str:
    return f"{found.partition}:{found.offset}"


def _text(entry: object) -> str:
    parts = entry if isinstance(entry, tuple) else (entry,)
    return " = ".join(_one(part) for part in parts)


def _one(part: object) -> str:
    if not isinstance(part, bytes):
        return repr(part)
    try:
        return repr(part.decode())
    except UnicodeDecodeError:
        return repr(part)


def _list(entries: Iterable[str]) -> str:
    every = list(entries)
    more = f" and {len(every) - _SHOWN} more" if len(every) > _SHOWN else ""
    return ", ".join(every[:_SHOWN]) + more


def _count(count: int, what: str) -> str:
    return f"{count} {what}" + ("" if count == 1 else "s")
