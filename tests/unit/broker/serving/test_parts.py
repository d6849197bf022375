"""A request that is split, and whose answers are joined, is answered like the whole."""

import pytest

from odradek.broker.serving.parts import PART, PARTS, Parts, join, parts_of, split
from odradek.wire.api_keys import APIS, ApiKey, request_class, response_class
from odradek.wire.messages.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopics,
    OffsetFetchResponse,
    OffsetFetchResponseGroup,
    OffsetFetchResponsePartitions,
    OffsetFetchResponseTopics,
)

WAY = parts_of(ApiKey.OFFSET_FETCH, 9)


def asked(*groups):
    """A `(group, {topic: partitions})` for each group; topics of None means all topics."""
    return OffsetFetchRequest(
        require_stable=True,
        groups=[
            OffsetFetchRequestGroup(
                group_id=group,
                topics=None
                if topics is None
                else [
                    OffsetFetchRequestTopics(name=name, partition_indexes=list(partitions))
                    for name, partitions in topics.items()
                ],
            )
            for group, topics in groups
        ],
    )


def answer(request):
    return OffsetFetchResponse(
        groups=[
            OffsetFetchResponseGroup(
                group_id=group.group_id,
                topics=[
                    OffsetFetchResponseTopics(
                        name=topic.name,
                        partitions=[
                            OffsetFetchResponsePartitions(partition_index=index, committed_offset=7)
                            for index in topic.partition_indexes
                        ],
                    )
                    for topic in group.topics or ()
                ],
            )
            for group in request.groups
        ]
    )


def size(request):
    return sum(
        max(1, sum(max(1, len(t.partition_indexes)) for t in group.topics or ()))
        for group in request.groups
    )


@pytest.mark.parametrize(
    "request_",
    [
        asked(),
        asked(("g", {"t": range(3)})),
        asked(("g", {"t": range(5 * PART + 1)})),
        asked(("g", {"t": range(PART), "u": range(PART + 1), "v": [0]}), ("h", None)),
        asked(*((f"g{n}", {"t": [n]}) for n in range(3 * PART))),
        asked(*((f"g{n}", None) for n in range(2 * PART + 5)), ("h", {"t": range(PART)})),
        asked(("g", {f"t{n}": [0, 1] for n in range(2 * PART)}), ("h", {"t": []})),
        asked(("g", {})),
    ],
)
def test_parts_together_are_the_whole(request_):
    before = answer(request_)
    parts = list(split(request_, WAY.asked))
    whole = answer(parts[0])
    for part in parts[1:]:
        join(whole, answer(part), WAY.answered)

    assert whole == before
    assert all(size(part) <= 2 * PART for part in parts)
    assert all(part.require_stable for part in parts)


def test_a_request_keeps_its_elements_when_it_is_split():
    request = asked(("g", {"t": range(300)}))
    list(split(request, WAY.asked))

    assert request == asked(("g", {"t": range(300)}))


@pytest.mark.parametrize("key", sorted(PARTS))
def test_the_ways_name_arrays_that_are_there(key):
    for version in range(APIS[key].accepted[0], APIS[key].accepted[-1] + 1):
        parts = parts_of(key, version) or Parts((), ())
        for message, way in zip((request_class(key), response_class(key)), parts[:2], strict=True):
            part = message
            for name in way:
                fields = {field.name: field for field in part.SCHEMA.fields}
                assert fields[name].kind == "array"
                assert version in fields[name].versions
                part = fields[name].part
