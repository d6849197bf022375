"""The subset of JSONPath: golden values, and refusals."""

import pytest

from odradek.web.messages.jsonpath import PathError, parse_path, select

DOCUMENT = {
    "id": 7,
    "order id": "o-1",
    "items": [{"id": 1, "tags": ["a", "b"]}, {"id": 2}],
    "meta": {"source": {"id": "x"}},
}


@pytest.mark.parametrize(
    ("path", "values"),
    [
        ("$", [DOCUMENT]),
        ("", [DOCUMENT]),
        ("$.id", [7]),
        ("id", [7]),
        ("$['order id']", ["o-1"]),
        ('$["order id"]', ["o-1"]),
        ("items[0].id", [1]),
        ("items[-1].id", [2]),
        ("items[9].id", []),
        ("$.items[*].id", [1, 2]),
        ("$.items.*.id", [1, 2]),
        ("$.meta.*.id", ["x"]),
        ("$..id", [7, 1, 2, "x"]),
        ("$..tags[1]", ["b"]),
        ("meta.nothing.id", []),
        ("id.more", []),
    ],
)
def test_a_path_selects(path, values):
    assert list(select(DOCUMENT, parse_path(path))) == values


@pytest.mark.parametrize("path", ["$.a[", "$.a[1:2]", "$.a[?(@.b)]", "a b", "$.", "a" + ".b" * 40])
def test_what_is_not_supported_is_refused(path):
    with pytest.raises(PathError):
        parse_path(path)


def test_a_deep_document_does_not_exhaust_the_stack():
    document = "x"
    for _ in range(50_000):
        document = [document]

    assert list(select({"id": 1, "deep": document}, parse_path("$..id"))) == [1]
