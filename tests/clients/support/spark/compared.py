"""Cases in which Spark's connector and our data source read, or refuse, the same.

A batch has to give the same rows and the same schema. A stream has to give them, too, and the same
offsets after each trigger.
"""

import asyncio
import json
import pathlib
from collections.abc import Callable

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession

from odradek.client import arrow
from odradek.client.admin.partitions import delete_records
from odradek.client.admin.topics import NewTopic, create_topics
from odradek.client.cluster import Cluster
from odradek.model.partition import TopicPartition

ENGINES = ("kafka", "odradek")
PARTITIONS = 3
RECORDS = 120  # of each partition
START_MS, STEP_MS = 1_900_000_000_000, 1_000  # in the future: retention deletes none
DELETED = 20  # of partition 0 of topic `cut`
Case = Callable[[], bool]


async def create(servers: str, topics: list[str]) -> None:
    """Create topics of PARTITIONS partitions."""
    wanted = [NewTopic(name, PARTITIONS, 1) for name in topics]
    async with await Cluster.bootstrap(servers) as cluster:
        made = await create_topics(cluster, wanted)
    assert set(made.values()) == {None}, made


async def cut(servers: str, topic: str) -> None:
    """Delete the first records of partition 0."""
    async with await Cluster.bootstrap(servers) as cluster:
        partition = TopicPartition(topic, 0)
        assert await delete_records(cluster, {partition: DELETED}) == {partition: DELETED}


def fill(servers: str, topic: str) -> None:
    """Keys, values, nulls, headers (also several of a name, and null) and rising timestamps."""
    header = pa.struct([("key", pa.string()), ("value", pa.binary())])
    numbers = range(RECORDS)
    for partition in range(PARTITIONS):
        rows = {
            "key": pa.array([None if n % 10 == 3 else b"k%d" % (n % 7) for n in numbers]),
            "value": pa.array([None if n % 10 == 5 else b"v%d" % n * (n % 4) for n in numbers]),
            "timestamp": pa.array([START_MS + n * STEP_MS for n in numbers], pa.int64()),
            "partition": pa.array([partition] * RECORDS, pa.int32()),
            "headers": pa.array(
                [[{"key": "h", "value": b"%d" % n}, {"key": "h", "value": None}]
                 if n % 3 == 0 else None for n in numbers],
                pa.list_(header),
            ),
        }  # fmt: skip
        arrow.write_topic(servers, topic, pa.table(rows))


class Compared:
    """The cases, on topics that all of them read."""

    def __init__(self, spark: SparkSession, servers: str, folder: pathlib.Path) -> None:
        self.spark = spark
        self.address = servers
        self.servers = {"kafka.bootstrap.servers": servers}
        self.folder = folder
        self.counted = 0

    def prepare(self) -> None:
        """Create and fill the topics."""
        names = ["seen-one", "seen-two", "empty", "cut", "transactions", "keyed-kafka",
                 "keyed-odradek", "placed-kafka", "placed-odradek"]  # fmt: skip
        asyncio.run(create(self.address, names))
        for name in ("seen-one", "seen-two", "cut"):
            fill(self.address, name)
        asyncio.run(cut(self.address, "cut"))
        # A transaction that is committed, and one that is aborted by an error of the job.
        self.write("odradek", "transactions", exactlyOnce="true")
        fails = "CASE WHEN id = 400 THEN raise_error('on purpose') ELSE string(id) END AS value"
        rows = self.spark.range(0, 401, 1, 1).selectExpr(fails)
        self.refuses(lambda: self.write("odradek", "transactions", rows, exactlyOnce="true"))

    def rows(self) -> DataFrame:
        return self.spark.range(200).selectExpr("string(id) AS key", "repeat(id, 2) AS value")

    def write(
        self, engine: str, topic: str | None, rows: DataFrame | None = None, **options: str
    ) -> None:
        writer = (self.rows() if rows is None else rows).write.format(engine).mode("append")
        named = {} if topic is None else {"topic": topic}
        writer.options(**self.servers, **named, **options).save()

    @staticmethod
    def refuses(work: Callable[[], object]) -> bool:
        try:
            work()
        except Exception:
            return True
        return False

    def batch(self, engine: str, options: dict[str, str], *columns: str) -> tuple[object, object]:
        frame = self.spark.read.format(engine).options(**self.servers, **options).load()
        frame = frame.select(*columns) if columns else frame
        return frame.schema.jsonValue(), sorted(map(tuple, frame.collect()), key=str)

    def same(self, **options: str) -> Case:
        """Both read the same schema and rows, and there are rows."""

        def case() -> bool:
            theirs, ours = (self.batch(engine, options) for engine in ENGINES)
            return theirs == ours and bool(theirs[1])

        return case

    def none(self, **options: str) -> Case:
        """Both read no row, and the same schema."""

        def case() -> bool:
            theirs, ours = (self.batch(engine, options) for engine in ENGINES)
            return theirs == ours and not theirs[1]

        return case

    def refused(self, **options: str) -> Case:
        """Both refuse to read."""

        def case() -> bool:
            return all(self.refuses(lambda e=engine: self.batch(e, options)) for engine in ENGINES)

        return case

    def stream(self, engine: str, options: dict[str, str]) -> tuple[object, ...]:
        """Schema, rows, and the offsets after each trigger that read any."""
        self.counted += 1
        name = f"stream_{self.counted}"
        frame = self.spark.readStream.format(engine).options(**self.servers, **options).load()
        query = (
            frame.writeStream.format("memory")
            .queryName(name)
            .option("checkpointLocation", str(self.folder / name))
            .trigger(availableNow=True)
            .start()
        )
        query.awaitTermination()
        offsets = [
            json.loads(progress.sources[0].endOffset)
            for progress in query.recentProgress
            if progress.numInputRows
        ]
        rows = sorted(map(tuple, self.spark.table(name).collect()), key=str)
        return frame.schema.jsonValue(), rows, offsets

    def streamed(self, triggers: int = 1, **options: str) -> Case:
        """Both read the same in so many triggers."""

        def case() -> bool:
            theirs, ours = (self.stream(engine, options) for engine in ENGINES)
            return theirs == ours and len(theirs[2]) == triggers  # type: ignore[arg-type]

        return case

    def stream_refused(self, **options: str) -> Case:
        def case() -> bool:
            return all(self.refuses(lambda e=engine: self.stream(e, options)) for engine in ENGINES)

        return case

    def written(self, name: str, *columns: str, select: tuple[str, ...] = ("*",)) -> Case:
        """Both write a topic NAME-ENGINE, and what one reads of them is the same."""

        def case() -> bool:
            for engine in ENGINES:
                self.write(engine, f"{name}-{engine}", self.rows().selectExpr(*select))
            found = [
                self.batch("kafka", {"subscribe": f"{name}-{engine}", "includeHeaders": "true"},
                           *columns)
                for engine in ENGINES
            ]  # fmt: skip
            return found[0] == found[1]

        return case

    def write_refused(self, *select: str, topic: str | None = "refused") -> Case:
        def case() -> bool:
            rows = self.rows().selectExpr(*select)
            return all(
                self.refuses(lambda e=engine: self.write(e, topic, rows)) for engine in ENGINES
            )

        return case

    def cases(self) -> dict[str, Case]:
        self.prepare()
        return {**self.batches(), **self.streams(), **self.writes()}

    def batches(self) -> dict[str, Case]:
        one = {"subscribe": "seen-one"}
        middle = str(START_MS + 50 * STEP_MS)
        later = str(START_MS + 80 * STEP_MS)
        beyond = str(START_MS + 10 * RECORDS * STEP_MS)
        some = json.dumps({"seen-one": {"0": 7, "1": 100, "2": -2}})
        ends = json.dumps({"seen-one": {"0": 90, "1": 101, "2": -1}})
        times = json.dumps({"seen-one": {"0": int(middle), "1": int(later), "2": START_MS}})
        committed = {"kafka.isolation.level": "read_committed"}
        return {
            "a topic": self.same(**one),
            "two topics": self.same(subscribe="seen-one,seen-two"),
            "a pattern": self.same(subscribePattern="seen-.*"),
            "a pattern that matches nothing": self.none(subscribePattern="none-.*"),
            "assigned partitions": self.same(assign='{"seen-one":[0,2],"seen-two":[1]}'),
            "headers": self.same(**one, includeHeaders="true"),
            "from earliest to latest": self.same(
                **one, startingOffsets="earliest", endingOffsets="latest"
            ),
            "from offsets": self.same(**one, startingOffsets=some),
            "up to offsets": self.same(**one, endingOffsets=ends),
            "between offsets": self.same(**one, startingOffsets=some, endingOffsets=ends),
            "between equal offsets": self.none(
                assign='{"seen-one":[0]}',
                startingOffsets='{"seen-one":{"0":9}}',
                endingOffsets='{"seen-one":{"0":9}}',
            ),
            "from a timestamp": self.same(**one, startingTimestamp=middle),
            "up to a timestamp": self.same(**one, endingTimestamp=middle),
            "between timestamps": self.same(**one, startingTimestamp=middle, endingTimestamp=later),
            "from timestamps by partition": self.same(**one, startingOffsetsByTimestamp=times),
            "up to timestamps by partition": self.same(**one, endingOffsetsByTimestamp=times),
            "a timestamp goes before offsets": self.same(
                **one, startingTimestamp=middle, startingOffsets="earliest"
            ),
            "from a timestamp after the end": self.refused(**one, startingTimestamp=beyond),
            "from a timestamp after the end, or else latest": self.none(
                **one, startingTimestamp=beyond, startingOffsetsByTimestampStrategy="latest"
            ),
            "up to a timestamp after the end": self.same(**one, endingTimestamp=beyond),
            "at least seven tasks": self.same(**one, minPartitions="7"),
            "at most ten records a task": self.same(**one, maxRecordsPerPartition="10"),
            "names of options in capitals": self.same(
                SUBSCRIBE="seen-one", STARTINGOFFSETS=some, INCLUDEHEADERS="TRUE"
            ),
            "an option that nobody knows": self.same(**one, startOffsets="latest"),
            "an empty topic": self.none(subscribe="empty"),
            "committed records": self.same(subscribe="transactions", **committed),
            "uncommitted records": self.same(subscribe="transactions"),
            "a topic whose first records were deleted": self.same(subscribe="cut"),
            "deleted offsets": self.refused(
                subscribe="cut", startingOffsets='{"cut":{"0":3,"1":-2,"2":-2}}'
            ),
            "deleted offsets without failOnDataLoss": self.same(
                subscribe="cut",
                startingOffsets='{"cut":{"0":3,"1":-2,"2":-2}}',
                failOnDataLoss="false",
            ),
            "neither a topic nor a pattern": self.refused(includeHeaders="true"),
            "a topic and a pattern": self.refused(**one, subscribePattern="seen-.*"),
            "batches cannot start at latest": self.refused(**one, startingOffsets="latest"),
            "batches cannot end at earliest": self.refused(**one, endingOffsets="earliest"),
            "offsets of a partition are missing": self.refused(
                **one, startingOffsets='{"seen-one":{"0":1}}'
            ),
            "offsets that are not JSON": self.refused(**one, startingOffsets="{"),
            "an option of the consumer that is fixed": self.refused(
                **one, **{"kafka.enable.auto.commit": "true"}
            ),
        }

    def streams(self) -> dict[str, Case]:
        early = {"subscribe": "seen-one", "startingOffsets": "earliest"}
        some = json.dumps({"seen-one": {"0": 7, "1": 100, "2": -2}})
        middle = str(START_MS + 50 * STEP_MS)
        return {
            "a stream": self.streamed(**early),
            "a stream in four triggers": self.streamed(4, **early, maxOffsetsPerTrigger="90"),
            "a stream in uneven triggers": self.streamed(
                4, subscribe="seen-one", startingOffsets=some, maxOffsetsPerTrigger="70"
            ),
            "a stream with headers": self.streamed(**early, includeHeaders="true"),
            "a stream of a pattern": self.streamed(
                2, subscribePattern="seen-.*", startingOffsets="earliest",
                maxOffsetsPerTrigger="400",
            ),
            "a stream of partitions": self.streamed(
                assign='{"seen-one":[1]}', startingOffsets="earliest"
            ),
            "a stream from a timestamp": self.streamed(
                subscribe="seen-one", startingTimestamp=middle
            ),
            "a stream with at least seven tasks": self.streamed(**early, minPartitions="7"),
            "a stream from latest": self.streamed(0, subscribe="seen-one"),
            "a stream of committed records": self.streamed(
                subscribe="transactions", startingOffsets="earliest",
                **{"kafka.isolation.level": "read_committed"},
            ),
            "a stream does not end at offsets": self.stream_refused(
                **early, endingOffsets="latest"
            ),
        }  # fmt: skip

    def writes(self) -> dict[str, Case]:
        headers = "array(struct('a' AS key, binary('1') AS value)) AS headers"
        shown = ("key", "value", "headers")
        places = ("key", "value", "cast(key AS int) % 3 AS partition")
        return {
            "keys are hashed to the same partitions": self.written("keyed", "partition", *shown),
            "the column partition": self.written("placed", "partition", *shown, select=places),
            "the column headers": self.written(
                "with-headers", *shown, select=("key", "value", headers)
            ),
            "binary columns": self.written(
                "binary", *shown, select=("binary(key) AS key", "binary(value) AS value")
            ),
            "null values": self.written(
                "nulls", *shown, select=("key", "CAST(NULL AS STRING) AS value")
            ),
            "no key": self.written("keyless", *shown, select=("value",)),
            "no topic": self.write_refused("value", topic=None),
            "a topic that is null": self.write_refused(
                "value", "CAST(NULL AS STRING) AS topic", topic=None
            ),
            "no column value": self.write_refused("key"),
            "a value that is a number": self.write_refused("1.5D AS value"),
        }
