"""The demo's parts: the job against pandas on a piece of the tables, and what its verdict sees."""

import io
import json
import subprocess
import sys
from queue import Queue

import pandas as pd
import pytest
from rich.console import Console

from odradek_demo import departures
from odradek_demo import result as demo_result
from odradek_demo.flights import SparkJob, Story
from odradek_demo.result import DemoFailedError, compare, expected, in_order
from odradek_demo.rows import TableError, records, to_json


@pytest.fixture(scope="module")
def tables():
    """Three days, one of them with cancelled flights."""
    given = demo_result.tables()
    flights = given["flights"]
    return {**given, "flights": flights[(flights["month"] == 2) & flights["day"].isin([7, 8, 9])]}


def test_spark_computes_what_pandas_does(spark, tables):
    def frame(name, schema):
        rows = [(text,) for text in to_json(tables[name])]
        return departures.values(spark.createDataFrame(rows, "value string"), schema)

    found = departures.delays(
        frame("flights", departures.FLIGHT), frame("weather", departures.WEATHER)
    ).toPandas()

    right = expected(tables)
    assert (right["departed"] == 0).any()
    compare("here", in_order(found), right)


def test_rows_of_a_csv_file_are_read_too(spark):
    row_of_csv = {"origin": "JFK", "time_hour": "2013-01-01T10:00:00Z", "dep_time": "517"}
    text = json.dumps({**row_of_csv, "dep_delay": ""})
    frame = spark.createDataFrame([(text,)], "value string")

    (row,) = departures.values(frame, departures.FLIGHT).collect()

    assert (row.origin, row.dep_time, row.dep_delay) == ("JFK", 517.0, None)
    assert row.time_hour.hour == 10


def test_both_call_the_same_flights_late():
    assert demo_result.LATE_MINUTES == departures.LATE_MINUTES


@pytest.mark.parametrize(
    ("change", "complaint"),
    [
        (lambda t: t.iloc[1:], "rows, .* expected; 0 are duplicates"),
        (lambda t: pd.concat([t, t.iloc[:1]]), "1 are duplicates"),
        (lambda t: t.assign(late=t["late"] + (t.index == 3)), "row 3 is"),
        (lambda t: t.assign(temp=t["temp"].where(t.index != 2)), "row 2 is"),
    ],
    ids=["one lost", "one twice", "one other number", "one missing number"],
)
def test_a_wrong_result_is_found(tables, change, complaint):
    right = expected(tables)

    with pytest.raises(DemoFailedError, match=f"(?s)here: .*{complaint}"):
        compare("here", change(right), right)


def test_the_page_needs_nothing_else(tables, tmp_path):
    delays = expected(tables)
    picture = tmp_path / "p.png"

    demo_result.draw(delays, picture)
    rows = demo_result.airports(delays)
    page = demo_result.page(rows, ["1 s  it began"], ["because <of> it"], picture.read_bytes())

    assert picture.read_bytes().startswith(b"\x89PNG")
    assert [row["airport"] for row in rows] == [
        "Newark (EWR)", "Kennedy (JFK)", "La Guardia (LGA)",
    ]  # fmt: skip
    assert "because &lt;of&gt; it" in page
    assert "http" not in page


def test_the_table_fits_a_terminal_of_80_columns(tables):
    rows = demo_result.airports(expected(tables))
    console = Console(width=80, record=True, file=io.StringIO())

    console.print(demo_result.as_table(rows, "so many airport-hours"))

    lines = console.export_text().splitlines()
    assert max(map(len, lines)) <= 80
    for row in rows:
        (line,) = [line for line in lines if row["airport"] in line]
        assert line.split()[-6:] == list(row.values())[1:]


def test_a_story_is_never_silent_for_long():
    output = Queue()
    story = Story(output.put, doing=lambda: "counting")

    with story.never_silent():
        assert output.get(timeout=30).endswith("... counting")
    assert story.lines == []


def test_the_job_is_reported_in_one_line(tmp_path):
    lines = [
        {"query": "delays", "batch": 2, "rows": 5, "rows_per_s": 36123, "lag": 1200, "ms": 9},
        {"started": ["delays"]},
    ]
    script = f"print({json.dumps(json.dumps(lines[0]))}); print({json.dumps(json.dumps(lines[1]))})"
    with subprocess.Popen(
        [sys.executable, "-c", script], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        job = SparkJob(process, tmp_path / "spark.log")
        job.wait_for("started")

    assert job.report() == "Spark: delays batch 2, 36,123 rows/s, lag 1,200"
    assert (job.rows["delays"], job.batches["delays"]) == (5, 1)


def test_a_job_that_ended_is_reported_with_its_cause_however_long_javas_stack_is(tmp_path):
    log = tmp_path / "spark.log"
    log.write_text("the cause\n" + "\tat org.apache.spark.Some.method(Some.scala:1)\n" * 60)
    with subprocess.Popen(
        [sys.executable, "-c", ""], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        job = SparkJob(process, log)
        with pytest.raises(DemoFailedError, match="ended; its output:\nthe cause$"):
            job.wait_for("started")


def test_rows_become_records_in_the_order_of_time():
    table = pd.DataFrame(
        {
            "at": ["2013-01-01T02:00:00Z", "2013-01-01T01:00:00Z"],
            "who": ["b", "a"],
            "n": [1.5, float("nan")],
        }
    )

    (rows,) = records(table, key="who", time="at")

    assert rows["key"].to_pylist() == ["a", "b"]
    assert [json.loads(value) for value in rows["value"].to_pylist()] == [
        {"at": "2013-01-01T01:00:00Z", "who": "a", "n": None},
        {"at": "2013-01-01T02:00:00Z", "who": "b", "n": 1.5},
    ]
    assert [stamp.hour for stamp in rows["timestamp"].to_pylist()] == [1, 2]


def test_a_missing_column_is_named():
    with pytest.raises(TableError, match="no column 'origin': who"):
        next(records(pd.DataFrame({"who": ["a"]}), key="origin"))
