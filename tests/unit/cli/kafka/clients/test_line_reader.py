"""Lines are parsed into records as by Kafka's console producer."""

import pytest

from odradek.cli.kafka.clients.line_reader import LineError, LineReader

KEYS = {"parse.key": "true"}
HEADERS = {"parse.headers": "true"}


@pytest.mark.parametrize(
    ("properties", "line", "parsed"),
    [
        ({}, "a\tb", (None, b"a\tb", ())),
        (KEYS, "k\tv\tw", (b"k", b"v\tw", ())),
        ({**KEYS, "key.separator": "::"}, "k::v", (b"k", b"v", ())),
        (KEYS, "\t", (b"", b"", ())),
        (HEADERS, "h1:a,h2:b:c\tv", (None, b"v", (("h1", b"a"), ("h2", b"b:c")))),
        ({**KEYS, **HEADERS}, "h:a,,\tk\tv", None),
        ({**KEYS, **HEADERS}, "h:a\tk\tv", (b"k", b"v", (("h", b"a"),))),
        ({**KEYS, "null.marker": "N"}, "N\tN", (None, None, ())),
        ({**KEYS, **HEADERS, "null.marker": "N"}, "N\tk\tv", (b"k", b"v", ())),
        ({**HEADERS, "null.marker": "N"}, "h:N\tv", (None, b"v", (("h", None),))),
        ({**KEYS, "ignore.error": "true"}, "novalue", (None, b"novalue", ())),
        ({**HEADERS, "ignore.error": "true"}, "bad\tv", (None, b"v", (("bad", None),))),
    ],
)
def test_a_line_becomes_a_record(properties, line, parsed):
    if parsed is None:
        parsed = (b"k", b"v", (("h", b"a"),))  # `String.split` drops empty ends
    assert LineReader(properties).parse(line) == parsed


@pytest.mark.parametrize(
    ("properties", "line", "complaint"),
    [
        (KEYS, "x", "No key separator found on line number 2: 'x'"),
        (HEADERS, "x", "No headers delimiter found on line number 2: 'x'"),
        (HEADERS, "bad\tv", "No header key separator found in pair 'bad' on line number 2"),
        ({**HEADERS, "null.marker": "N"}, "N:a\tv", "Header keys should not be equal to the null"),
    ],
)
def test_what_is_missing_names_the_line(properties, line, complaint):
    reader = LineReader(properties)
    reader.parse("h:x\tv")
    with pytest.raises(LineError, match=complaint):
        reader.parse(line)


@pytest.mark.parametrize(
    "properties",
    [
        {"headers.delimiter": ","},
        {"null.marker": "\t"},
        {"headers.separator": ":"},
    ],
)
def test_separators_have_to_differ(properties):
    with pytest.raises(LineError, match="may not be equal"):
        LineReader(properties)
