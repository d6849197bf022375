"""The fingerprint of rows: the same in any order and any batches, another for other rows."""

import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from odradek.spark.fingerprint import fingerprint

ROWS = st.lists(
    st.tuples(st.none() | st.binary(max_size=20), st.none() | st.binary(max_size=40)), max_size=12
)


def batch(rows, kind="binary"):
    keys, values = zip(*rows, strict=True) if rows else ((), ())
    return pa.RecordBatch.from_arrays(
        [pa.array(keys, kind), pa.array(values, kind)], names=["key", "value"]
    )


def of(*batches):
    return fingerprint(iter(batches))


@given(rows=ROWS, data=st.data())
def test_the_fingerprint_does_not_depend_on_order_or_batches(rows, data):
    shuffled = data.draw(st.permutations(rows))
    split = data.draw(st.integers(0, len(rows)))

    assert of(batch(shuffled[:split]), batch(shuffled[split:])) == of(batch(rows))


@given(rows=ROWS, other=ROWS)
def test_other_rows_have_another_fingerprint(rows, other):
    assert (of(batch(rows)) == of(batch(other))) == (sorted(map(repr, rows)) == sorted(
        map(repr, other)
    ))  # fmt: skip


def test_a_slice_counts_its_own_rows_only():
    rows = [(b"k%d" % n, b"value %d" % n) for n in range(10)]

    assert of(batch(rows).slice(3, 4)) == of(batch(rows[3:7]))
    assert of(batch(rows).slice(3, 4)) != of(batch(rows[2:6]))


def test_text_is_its_bytes_and_topics_are_included():
    texts = batch([("k", "v")], "string")
    there = texts.append_column("topic", pa.array(["a"]))
    elsewhere = texts.append_column("topic", pa.array(["b"]))

    assert of(texts) == of(batch([(b"k", b"v")]))
    assert of(there) != of(elsewhere)


def test_ranges_of_records_of_one_size_differ():
    records = [(None, b'{"id": %06d, "carrier": "UA"}' % n) for n in range(2_000)]

    prints = {of(batch(records[start : start + 100])) for start in range(0, 1_900, 7)}
    assert len(prints) == len(range(0, 1_900, 7))
