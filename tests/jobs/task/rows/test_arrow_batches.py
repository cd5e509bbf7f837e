"""Arrow at both ends of a partition: watermarks over batches, and rows carried by position."""

import datetime as dt
import decimal
import itertools

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from asyncio_core import WatermarkStrategy
from jobs.declare.answers.answer_types import read_ddl
from jobs.input.keys.arrow_keys import read_key_tuples, to_values
from jobs.schema import columns as schema
from jobs.task.lookup.lookup_state import LookupState, Row
from jobs.task.rows.arrow_batches import Assembler, BatchLayout, EventTimes, InputBatch

MILLISECONDS = st.integers(-(10**6), 10**6)
ROWS = 60


def micros(milliseconds, kind=None):
    values = [None if ms is None else ms * 1000 for ms in milliseconds]
    return pa.array(values, pa.int64()).cast(kind or pa.timestamp("us", tz="UTC"))


def cut(values, cuts):
    """The values in batches, cut at these places; some of them empty."""
    edges = [0, *sorted(min(cut, len(values)) for cut in cuts), len(values)]
    return [values[start:end] for start, end in itertools.pairwise(edges)]


def model(times, bound_ms):
    """What one row at a time, with the core's own generator, says of these event times."""
    generator = WatermarkStrategy.for_bounded_out_of_orderness(
        bound_ms / 1000
    ).create_watermark_generator()
    emitted, reported = 0, []
    for time in times:
        segment, late = emitted, generator.is_late(time)
        watermark = generator.on_record(time)
        emitted += watermark is not None
        reported.append((None if watermark is None else watermark.timestamp, segment, late))
    return reported


@given(
    times=st.lists(st.none() | MILLISECONDS, max_size=ROWS),
    bound=st.sampled_from([0, 1, 1000, 3_600_000]),
    cuts=st.lists(st.integers(0, ROWS), max_size=5),
)
def test_batches_cut_anywhere_give_the_watermarks_segments_and_late_rows_of_the_core(
    times, bound, cuts
):
    event_times = EventTimes(bound)
    reported = []
    for batch in cut(times, cuts):
        marks, segments, late = event_times.read(micros(batch), len(batch))
        if marks is None:
            assert batch == []
            continue
        reported += zip(marks, segments.tolist(), late.tolist(), strict=True)
    assert reported == model(times, bound)


DAY = dt.datetime(1970, 1, 2, tzinfo=dt.UTC)
TIMES = {
    "without a zone": pa.array([DAY.replace(tzinfo=None)], pa.timestamp("us")),
    "of another zone": pa.array([DAY], pa.timestamp("us", "Europe/Berlin")),
    "in milliseconds": pa.array([DAY], pa.timestamp("ms", "UTC")),
    "in seconds": pa.array([DAY], pa.timestamp("s", "UTC")),
    "in nanoseconds": pa.array([DAY], pa.timestamp("ns", "UTC")),
    "a date": pa.array([DAY.date()], pa.date32()),
}


@pytest.mark.parametrize("kind", TIMES)
def test_every_kind_of_timestamp_is_read_as_milliseconds_since_the_epoch(kind):
    marks, *_ = EventTimes(0).read(TIMES[kind], 1)
    assert marks == [86_399_999]


def test_a_time_before_the_epoch_is_rounded_down_to_its_millisecond():
    column = pa.array([-1], pa.int64()).cast(pa.timestamp("us", tz="UTC"))
    marks, *_ = EventTimes(0).read(column, 1)
    assert marks == [-2]


def test_without_an_event_time_there_are_no_watermarks_and_nothing_is_late():
    marks, segments, late = EventTimes(0).read(None, 3)
    assert marks is None
    assert segments.tolist() == [0, 0, 0]
    assert late.tolist() == [False] * 3


@given(
    moments=st.lists(st.none() | st.datetimes()),
    kind=st.sampled_from(
        [*(pa.timestamp("us", zone) for zone in (None, "UTC", "Asia/Tokyo")), pa.date32()]
    ),
)
def test_times_become_the_objects_that_arrow_itself_makes_of_them(moments, kind):
    column = pa.array(moments, pa.timestamp("us")).cast(kind)
    assert list(map(repr, to_values(column))) == list(map(repr, column.to_pylist()))


def test_a_key_with_a_null_is_skipped_unless_nulls_are_wanted():
    batch = pa.record_batch({"a": [1, None, 3], "b": ["x", "y", None]})
    assert read_key_tuples(batch, ["a", "b"]) == [(1, "x"), None, None]
    assert read_key_tuples(batch, ["a", "b"], nulls=True) == [(1, "x"), (None, "y"), (3, None)]
    assert read_key_tuples(batch, ["a"]) == [(1,), None, (3,)]
    assert read_key_tuples(batch.slice(0, 0), ["a"]) == []


# -- the assembler
# --------------------------------------------------------------------------------------------------
def exotic(start, count):
    """Columns of every shape that Spark hands over, different in every row, null in every fifth."""
    ids = range(start, start + count)

    def column(make, kind):
        return pa.array([None if n % 5 == 4 else make(n) for n in ids], kind)

    at = dt.datetime(2013, 1, 10, tzinfo=dt.UTC)
    columns = {
        "id": pa.array(ids, pa.int64()),
        "text": column(lambda n: f"ü{n}" * (n % 3), pa.string()),
        "large": column(str, pa.large_string()),
        "price": column(lambda n: decimal.Decimal(n).scaleb(-2), pa.decimal128(38, 2)),
        "zoned": column(lambda n: at + dt.timedelta(microseconds=n), pa.timestamp("us", "UTC")),
        "local": column(
            lambda n: at.replace(tzinfo=None) + dt.timedelta(microseconds=n), pa.timestamp("us")
        ),
        "day": column(lambda n: dt.date(2013, 1, 1) + dt.timedelta(days=n), pa.date32()),
        "span": column(lambda n: dt.timedelta(seconds=n), pa.duration("us")),
        "bytes": column(lambda n: bytes([n % 256]) * (n % 4), pa.binary()),
        "tags": column(
            lambda n: [None if i % 2 else i for i in range(n % 4)], pa.list_(pa.int32())
        ),
        "place": column(
            lambda n: {"x": n, "inner": {"y": [str(n)]} if n % 2 else None},
            pa.struct([("x", pa.int8()), ("inner", pa.struct([("y", pa.list_(pa.string()))]))]),
        ),
        "counts": column(
            lambda n: [(f"k{i}", n) for i in range(n % 3)], pa.map_(pa.string(), pa.int32())
        ),
        "flag": column(lambda n: n % 2 == 0, pa.bool_()),
        "nothing": pa.nulls(count),
        schema.SOURCE_FILE: pa.array(["file:///a"] * count, pa.string()),
        schema.SOURCE_ROW: pa.array(ids, pa.int64()),
    }
    return pa.record_batch(columns)


LAYOUT = BatchLayout(
    carried=tuple(exotic(0, 1).schema.names),
    keys=(("id",),),
    order_key=(),
    event_time="zoned",
    max_out_of_orderness_ms=0,
    lookups=("weather",),
    answers=(read_ddl("temp_c DOUBLE, tags2 ARRAY<STRING>"),),
)
TEN_BATCHES = [exotic(start, count) for start, count in ((0, 7), (7, 0), (7, 1), (8, 20), (28, 12))]
TABLE = pa.Table.from_batches(TEN_BATCHES)


def input_batches():
    event_times, found, first = EventTimes(0), [], 0
    for batch in TEN_BATCHES:
        found.append(InputBatch(batch, LAYOUT, first, event_times))
        first += batch.num_rows
    return found


def finished(batch, index, number):
    """A row that has been asked; what was answered shows which row it was."""
    asked = LookupState((number,))
    asked.status, asked.source = ("ok", "call") if number % 3 else ("miss", "call")
    asked.answer = (float(number), [str(number)]) if number % 3 else None
    asked.attempts = [(number, number + 5, bool(number % 2))] * (number % 3)
    asked.finished = asked.answered_at = number + 10
    return Row(batch, index, (asked,))


ALL_ROWS = [
    (place, index) for place, batch in enumerate(TEN_BATCHES) for index in range(batch.num_rows)
]


@given(order=st.permutations(ALL_ROWS), cuts=st.lists(st.integers(0, len(ALL_ROWS)), max_size=6))
def test_rows_leave_in_any_order_with_all_their_columns_answers_and_times(order, cuts):
    check(order, cuts)


@pytest.mark.parametrize("cuts", [[], [1], [7], [8, 9], list(range(40))])
def test_rows_that_leave_in_order_are_passed_as_whole_batches(cuts):
    check(ALL_ROWS, cuts)


def check(order, cuts):
    batches, assembler = input_batches(), Assembler(LAYOUT, 3)
    numbers = [int(batches[place].sequence[index]) for place, index in order]
    rows = [
        finished(batches[place], index, number)
        for (place, index), number in zip(order, numbers, strict=True)
    ]
    out = pa.Table.from_batches([assembler.batch(part) for part in cut(rows, cuts) if part])
    carried = [name for name in LAYOUT.carried if name not in schema.SOURCE_IDENTITY]
    expected = TABLE.take(pa.array(numbers))
    assert out.select(carried).equals(expected.select(carried))
    assert out.column(schema.SOURCE_ROW).to_pylist() == numbers
    assert out.column(schema.INPUT_SEQ).to_pylist() == numbers
    assert out.column(schema.OUTPUT_SEQ).to_pylist() == list(range(len(order)))
    assert out.column(schema.PARTITION).to_pylist() == [3] * len(order)
    assert out.column("temp_c").to_pylist() == [float(n) if n % 3 else None for n in numbers]
    assert out.column("tags2").to_pylist() == [[str(n)] if n % 3 else None for n in numbers]
    assert out.column("weather_status").to_pylist() == ["ok" if n % 3 else "miss" for n in numbers]
    assert [len(a) for a in out.column("_weather_attempts").to_pylist()] == [n % 3 for n in numbers]
    reported = model(
        [
            None if t is None else t // 1000
            for t in TABLE.column("zoned").cast(pa.int64()).to_pylist()
        ],
        0,
    )
    assert out.column(schema.SEGMENT).to_pylist() == [reported[n][1] for n in numbers]
    assert out.column(schema.LATE).to_pylist() == [reported[n][2] for n in numbers]


def test_errors_are_written_only_for_timeouts_and_errors_and_times_only_for_called_rows():
    (batch, *_) = input_batches()
    rows = []
    for index, (status, error, attempts) in enumerate(
        [
            ("ok", "left over", [(5, 1005, False)]),
            ("timeout", "no answer", [(1, 2001, False)]),
            ("error", "500", []),
            ("skipped", None, []),
        ]
    ):
        asked = LookupState((index,))
        asked.status, asked.error, asked.attempts, asked.paused, asked.finished = (
            status,
            error,
            attempts,
            0.25,
            3005,
        )
        rows.append(Row(batch, index, (asked,)))
    out = Assembler(LAYOUT, 0).batch(rows).to_pydict()
    assert out["_weather_error"] == [None, "no answer", "500", None]
    assert out["_weather_latency_ms"] == [3.0, 3.004, None, None]
    assert out["_weather_paused_ms"] == [250.0, 250.0, None, None]
    assert out["_weather_attempts"][0] == [{"start": 5, "end": 1005, "throttled": False}]
    assert out["_weather_attempts"][3] == []
    assert out["weather_answered_at"] == [None] * 4
