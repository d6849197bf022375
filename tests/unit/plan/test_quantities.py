"""Sizes and time spans as they are read."""

from odradek.plan.quantities import binary_text, span_text


def test_binary_sizes():
    assert [binary_text(each) for each in (0, 1_023, 1_536, 300 << 40, 5 << 60)] == [
        "0 B", "1023 B", "1.5 KiB", "300.0 TiB", "5120.0 PiB",
    ]  # fmt: skip


def test_time_spans():
    assert [span_text(each) for each in (0.42, 9.99, 42, 310, 12_000, 7_200, 190_000)] == [
        "0.4 s", "10.0 s", "42 s", "5 min 10 s", "3 h 20 min", "2 h", "2 d 4 h",
    ]  # fmt: skip
