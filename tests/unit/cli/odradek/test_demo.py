"""The demo fails if a record is lost, moved or changed."""

import pytest

from odradek.record.records import Record
from odradek_demo.command import DemoFailedError, Lines, compare, lines_of_the_library


def lines(*pairs):
    made = Lines()
    for key, value in pairs:
        made.add(Record(key, value))
    return made


WRITTEN = [lines((b"a.py", b"import os"), (b"a.py", b"")), lines((b"b.py", b"x"))]


def test_what_came_back_as_it_was_is_well():
    compare(WRITTEN, [lines((b"a.py", b"import os"), (b"a.py", b"")), lines((b"b.py", b"x"))])


@pytest.mark.parametrize(
    ("read", "complaint"),
    [
        (lines((b"a.py", b"import os")), "python-lines-0: 2 records written, 1 read"),
        (lines((b"a.py", b""), (b"a.py", b"import os")), "python-lines-0: the checksums differ"),
        (lines((b"a.p", b"yimport os"), (b"a.py", b"")), "python-lines-0: the checksums differ"),
        (lines((b"a.py", b"import oz"), (b"a.py", b"")), "python-lines-0: the checksums differ"),
    ],
    ids=["one lost", "another order", "moved from value to key", "one bit"],
)
def test_what_came_back_otherwise_is_found(read, complaint):
    with pytest.raises(DemoFailedError, match=complaint):
        compare(WRITTEN, [read, WRITTEN[1]])


def test_the_records_are_those_of_this_machine():
    records = list(lines_of_the_library())

    assert len(records) == 100_000
    assert len({record.key for record in records}) > 100
