"""The demo fails if a record is lost, moved or changed."""

import pytest

from odradek.record.records import Record
from odradek_demo.command import DemoFailedError, Lines, compare, lines_of_the_library
from odradek_demo.result import narrow


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


def test_a_long_line_fits_a_terminal_of_80_columns():
    line = "  flights-0: " + " ".join(["broker-1"] * 20) + " " + "-".join(["abc"] * 40)

    printed = narrow(line).splitlines()

    assert max(map(len, printed[:-1])) <= 80
    assert printed[0].startswith("  flights-0: broker-1 ")
    assert all(each.startswith("      broker-1 ") for each in printed[1:-1])
    assert " ".join(each.strip() for each in printed) == line.strip()
    assert narrow("  12.0 s  broker 1 is restarted") == "  12.0 s  broker 1 is restarted"
