"""Puts nine events, one of them late, into windows of five seconds, and compares Tidegate's windows
with those that Flink printed.

    python -m demo.windows
"""

from __future__ import annotations

import datetime as dt
import tempfile
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.parquet as pq

from jobs.process.quiet_spark import quiet_session
from jobs.schema import columns as schema
from jobs.schema.records import DeclaredFacts, EventTimeFacts
from jobs.task.windows.arrival import NEVER, ArrivedRows, read_arrived
from tidegate import Tumbling, Window

if TYPE_CHECKING:
    from pyspark.sql import Row, SparkSession

    from jobs.run.windows.window_rows import WindowedDay

SIZE = dt.timedelta(seconds=5)
SECOND, MILLISECOND = dt.timedelta(seconds=1), dt.timedelta(milliseconds=1)
CHINA = dt.timezone(dt.timedelta(hours=8))
NOON = dt.datetime(2020, 5, 24, 12, tzinfo=CHINA)
EVENTS = (  # in their order of arrival: name, action, seconds after noon
    ("event1", "pv", 0), ("event2", "cart", 1), ("event4", "pv", 4), ("event5", "pv", 5),
    ("event7", "buy", 7), ("event3", "buy", 3), ("event6", "cart", 6), ("event8", "buy", 8),
    ("event9", "pv", 9),
)  # fmt: skip
ORDERED = "transform(array_sort(collect_list(struct(place, event))), one -> one.event) AS events"
BY_ACTION = Window("by_action", of=Tumbling(SIZE), key=["action"], sql="count(*) AS n")
ALL = Window("all", of=Tumbling(SIZE), sql=ORDERED)

# What the source of this example printed
# of the trigger: event, end of its window, watermark at that moment; what fires after it
ITS_TRACE = (
    ("event1", "04.999", "none"), ("event2", "04.999", "00.000"), ("event4", "04.999", "01.000"),
    ("event5", "09.999", "04.000"), ("fires 04.999", "event1 event2 event4"),
    ("event7", "09.999", "05.000"), ("event6", "09.999", "07.000"), ("event8", "09.999", "07.000"),
    ("event9", "09.999", "08.000"), ("fires 09.999", "event5 event7 event6 event8 event9"),
)  # fmt: skip
ITS_WINDOWS = (
    "12:00:00-12:00:05: 1 cart", "12:00:00-12:00:05: 2 pv", "12:00:05-12:00:10: 1 cart",
    "12:00:05-12:00:10: 2 buy", "12:00:05-12:00:10: 2 pv",
)  # fmt: skip


@dataclass(frozen=True)
class Results:
    trace: list[tuple[str, ...]]
    windows: list[str]
    dropped: list[str]


def results(spark: SparkSession, folder: Path) -> Results:
    day = _day(spark, folder)
    keyed, together = day.windows(BY_ACTION.facts()), day.windows(ALL.facts())
    dropped = [file for file, _ in day.write_windowless(ALL.facts())]
    windows = sorted(f"{_extent(row)}: {row['n']} {row['action']}" for row in keyed.collect())
    firings = {row["window_end"]: row["events"] for row in together.collect()}
    late = [event for file in dropped for event in pq.read_table(file)["event"].to_pylist()]
    return Results(list(_trace(read_arrived(day.arrivals[0]), firings, late)), windows, late)


def _day(spark: SparkSession, folder: Path) -> WindowedDay:
    from jobs.run.engines.engine import SparkEngine
    from jobs.run.windows.window_rows import WindowedDay

    names, actions, seconds = zip(*EVENTS, strict=True)
    source, written = str(folder / "events.parquet"), str(folder / "written.parquet")
    times = pa.array([NOON + one * SECOND for one in seconds], pa.timestamp("us", "UTC"))
    places = pa.array(range(len(EVENTS)), pa.int64())
    columns = {"event": names, "action": actions, "at": times, "place": places}
    identity = {schema.SOURCE_FILE: [f"file:{source}"] * len(EVENTS), schema.SOURCE_ROW: places}
    pq.write_table(pa.table(columns | identity), written)
    declared = DeclaredFacts(
        enrichment="events",
        table="",
        input_path="",
        partition="date",
        mode="unordered",
        lookups=(),
        row_id=("event",),
        event_time=EventTimeFacts("at", 0.0),
    )
    return WindowedDay.of(
        SparkEngine(spark), declared, [written], [source], [*columns], str(folder / "windows")
    )


def _trace(
    arrival: ArrivedRows, firings: dict[dt.datetime, list[str]], late: Sequence[str]
) -> Iterable[tuple[str, ...]]:
    due = sorted(firings)
    moments = [
        (time, watermark) for time, watermark in zip(arrival.times, arrival.watermarks, strict=True)
    ]
    for (name, _, _), (time, watermark) in zip(EVENTS, moments, strict=True):
        while due and _moment(watermark) >= due[0].replace(tzinfo=dt.UTC) - MILLISECOND:
            yield _fires(due[0], firings[due.pop(0)])
        if name not in late:
            last = _moment(time - time % (SIZE // MILLISECOND)) + SIZE - MILLISECOND
            yield (
                name,
                _seconds(last),
                "none" if watermark == NEVER else _seconds(_moment(watermark)),
            )
    for end in due:
        yield _fires(end, firings[end])


def _fires(end: dt.datetime, events: list[str]) -> tuple[str, str]:
    return f"fires {_seconds(end.replace(tzinfo=dt.UTC) - MILLISECOND)}", " ".join(events)


def _moment(millis: int) -> dt.datetime:
    return dt.datetime.fromtimestamp(max(0, int(millis)) / 1000, dt.UTC)


def _seconds(moment: dt.datetime) -> str:
    return f"{moment:%S}.{moment.microsecond // 1000:03}"


def _extent(row: Row) -> str:
    start, end = (
        row[name].replace(tzinfo=dt.UTC).astimezone(CHINA)
        for name in ("window_start", "window_end")
    )
    return f"{start:%H:%M:%S}-{end:%H:%M:%S}"


def shown(own: Results) -> Iterable[str]:
    yield (
        "Nine events in their order of arrival; event3 is late. Windows of 5 s, allowed lateness 0."
    )
    yield (
        "The source's watermark is the largest event time so far, ours that minus 1 ms, as of "
        "Flink's own generators:"
    )
    yield "nothing at or before the watermark follows. Both close a window after the same event."
    yield ""
    yield f"{'the source':50}Tidegate"
    yield from _beside(ITS_TRACE, own.trace)
    yield from (("", f"keyed by action{'':35}keyed by action"))
    yield from (f"{its:50}{one}" for its, one in zip(ITS_WINDOWS, own.windows, strict=True))
    yield from ("", f"{'late, in no window: event3':50}late, in no window: {' '.join(own.dropped)}")


def _beside(its: Sequence[tuple[str, ...]], own: Sequence[tuple[str, ...]]) -> Iterable[str]:
    def line(one: tuple[str, ...]) -> str:
        return (
            f"{one[0]}: {one[1]}"
            if len(one) == 2
            else (f"{one[0]}  until {one[1]}  watermark {one[2]}")
        )

    return (f"{line(left):50}{line(right)}" for left, right in zip(its, own, strict=True))


def main() -> None:
    with (
        tempfile.TemporaryDirectory(prefix="tidegate-") as folder,
        quiet_session("windows of nine events", "make the windows") as spark,
    ):
        found = results(spark, Path(folder))
    print("\n".join(shown(found)))


if __name__ == "__main__":
    main()
