"""Files are parsed into records by their format."""

import pytest

from odradek.cli.odradek.rows import RowError, format_of, rows


def made(text, form, key=None):
    return list(rows(iter(text.splitlines(keepends=True)), form, key))


def test_lines_are_values():
    assert made("a\nb\r\n\nc", "lines") == [(None, b"a"), (None, b"b"), (None, b""), (None, b"c")]


def test_csv_rows_are_objects_and_a_column_is_the_key():
    text = 'origin,delay,note\nEWR,2,"a ""b"",\nc"\nJFK,,\n'

    assert made(text, "csv", "origin") == [
        (b"EWR", b'{"origin":"EWR","delay":"2","note":"a \\"b\\",\\nc"}'),
        (b"JFK", b'{"origin":"JFK","delay":null,"note":null}'),
    ]


def test_json_stands_as_it_is_and_a_field_is_the_key():
    text = '{"id": 7, "a": "x"}\n\n{"id": "é"}\n{"id": null}\n'

    assert made(text, "json", "id") == [
        (b"7", b'{"id": 7, "a": "x"}'),
        ("é".encode(), '{"id": "é"}'.encode()),
        (None, b'{"id": null}'),
    ]


@pytest.mark.parametrize(
    ("text", "form", "key", "complaint"),
    [
        ("a", "lines", "k", "--key k: lines have no fields"),
        ("a,b\n1,2\n", "csv", "c", "--key c: the columns are a, b"),
        ("a,b\n1,2\n1\n", "csv", None, "line 3: 1 cells, the header has 2"),
        ('a,b\n1,"2\n', "csv", None, "line 2: unexpected end of data"),
        ('{"a":1}\n{"a":}\n', "json", None, "line 2, column 6: Expecting value"),
        ('{"a":1}\n', "json", "b", "line 1: no field 'b'"),
        ("[1]\n", "json", "b", "line 1: no field 'b'"),
    ],
)
def test_an_invalid_row_names_its_line(text, form, key, complaint):
    with pytest.raises(RowError, match=complaint):
        made(text, form, key)


def test_the_suffix_decides_the_format_of_a_file():
    assert [format_of(s) for s in (".csv", ".JSONL", ".json", ".txt", "")] == [
        "csv", "json", "json", "lines", "lines",
    ]  # fmt: skip
