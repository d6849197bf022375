"""A request that is split, and whose answers are joined, is answered like the whole."""

import pytest

from odradek.broker.serving.parts import (
    PART,
    PARTS,
    Parts,
    fail_alike,
    join,
    parts_of,
    pieces,
    split,
)
from odradek.wire.api_keys import APIS, ApiKey, request_class, response_class
from odradek.wire.messages.delete_groups import DeleteGroupsRequest
from odradek.wire.messages.incremental_alter_configs import (
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
)
from odradek.wire.messages.offset_delete import OffsetDeleteResponse
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


def resources(*names):
    return IncrementalAlterConfigsRequest(
        resources=[
            AlterConfigsResource(resource_type=2, resource_name=name, configs=[]) for name in names
        ]
    )


@pytest.mark.parametrize(
    "names",
    [
        ["a"],
        [f"n{n}" for n in range(3 * PART + 1)],
        ["a", *(f"n{n}" for n in range(3 * PART)), "a"],
        ["a"] * (2 * PART + 1),
        ["a"] * (PART + 1) + ["b"] * PART + ["c", "c"],
        [f"n{n % (2 * PART)}" for n in range(5 * PART)],
    ],
)
def test_equal_elements_come_into_one_part(names):
    way = parts_of(ApiKey.INCREMENTAL_ALTER_CONFIGS, 1)
    parts = [[r.resource_name for r in part.resources] for part in pieces(resources(*names), way)]
    twice = {name for name in names if names.count(name) > 1}

    assert sorted(name for part in parts for name in part) == sorted(names)
    assert all(len(part) <= PART for part in parts)
    assert all(part.count(name) > 1 for part in parts for name in twice.intersection(part))


def test_of_elements_that_are_answered_once_one_is_handled():
    way = parts_of(ApiKey.DELETE_GROUPS, 2)
    request = DeleteGroupsRequest(groups_names=["g", "h"] * PART + ["i"])

    assert [part.groups_names for part in pieces(request, way)] == [["g", "h", "i"]]


def test_the_refusal_of_a_part_is_that_of_the_whole():
    whole = OffsetDeleteResponse(error_code=0, topics=[])
    fail_alike(whole, OffsetDeleteResponse(error_code=0, topics=[]))
    assert whole.error_code == 0
    for error in (16, 15):
        fail_alike(whole, OffsetDeleteResponse(error_code=error, topics=[]))
    assert whole.error_code == 16
