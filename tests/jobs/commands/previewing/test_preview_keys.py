"""Keys of sampled rows are the keys of a run: same values, same types, whatever the expression."""

import datetime as dt
from decimal import Decimal

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from asyncio_core import AsyncFunction
from jobs.commands.previewing.preview import first_rows
from jobs.commands.previewing.preview_keys import evaluate_keys
from jobs.input.day import of_files
from jobs.input.keys.arrow_keys import read_key_tuples
from jobs.run.rows.keyed_rows import with_keys
from tidegate import AsyncFunctionLookup, Enrichment, Input, Output

pytestmark = pytest.mark.spark

AT = dt.datetime(2013, 1, 10, 5, 42, 7, 123_456, tzinfo=dt.UTC)
COLUMNS = {
    "t": ["Main St 5", "N1", None],
    "odd name": ["x", None, "y"],
    "n": pa.array([7, -3, None], pa.int16()),
    "x": [1.5, None, 1e-7],
    "price": pa.array([Decimal("1.50"), None, Decimal("-3.00")], pa.decimal128(10, 2)),
    "at": pa.array([AT, None, AT.replace(year=1969)], pa.timestamp("ms", tz="America/New_York")),
    "naive": pa.array([AT.replace(tzinfo=None), None, AT.replace(tzinfo=None, year=1)], pa.timestamp("us")),
    "d": [AT.date(), None, dt.date(1, 1, 1)],
    "raw": [b"\x00\xff", None, b""],
    "place": [{"street": "Main"}, None, {"street": None}],
    "tags": [["a", "b"], None, [None]],
}  # fmt: skip
PLAIN = ["T", "`odd name`", "n", "x", "price", "at", "naive", "d", "raw", "tags"]
EXPRESSIONS = [
    "regexp_replace(t, '[0-9]+', '#')", "t LIKE 'M%'", "sha2(t, 256)", "date_trunc('HOUR', at)",
    "date_format(naive, 'EEE')", "date_trunc('HOUR', naive)", "cast(naive AS timestamp)",
    "place.street", "n / 2", "price * 3", "concat(t, x)", "element_at(tags, 1)", "`odd name` || t",
    "named_struct('a', n, 'b', d)", "NULL", "5",
]  # fmt: skip


ROWS = pa.table({"t": ["Main St 5"], "n": [7]})


def declare(*keys, pii=()):
    """A lookup for each key."""
    lookups = [
        AsyncFunctionLookup(
            name=f"l{number}", function=AsyncFunction, keys={"k": key},
            returns=f"y{number} DOUBLE", timeout=1.0, max_concurrency=1,
        )
        for number, key in enumerate(keys)
    ]  # fmt: skip
    raw = Input(path="raw", row_id=["n"])
    return Enrichment(name="e", input=raw, lookups=lookups, output=Output(path="out"), pii=pii)


def test_keys_come_in_the_order_of_the_chosen_lookups():
    enrichment = declare("t", "n")
    chosen = reversed(enrichment.lookups)
    ((numbers,), (texts,)) = evaluate_keys(enrichment, [*chosen], ROWS, pytest.fail)
    assert (numbers.to_pylist(), texts.to_pylist()) == ([7], ["Main St 5"])


def test_an_error_of_spark_in_a_key_hides_no_key_of_another_lookup(spark):
    enrichment = declare("cast(t AS INT)", "n", pii=["n"])
    with pytest.raises(Exception, match="Main St 5"):
        evaluate_keys(enrichment, enrichment.lookups, ROWS, pytest.fail)


def test_a_key_has_the_value_and_the_type_that_a_run_gives_it(spark, tmp_path):
    pq.write_table(pa.table(COLUMNS), tmp_path / "rows.parquet")
    lookup = AsyncFunctionLookup(
        name="a", function=AsyncFunction,
        keys={f"k{number}": key for number, key in enumerate(PLAIN + EXPRESSIONS)},
        returns="y DOUBLE", timeout=1.0, max_concurrency=1,
    )  # fmt: skip
    enrichment = Enrichment(
        name="e",
        input=Input(path=str(tmp_path), row_id=["n"]),
        lookups=[lookup],
        output=Output(path="out"),
    )
    day = of_files([tmp_path / "rows.parquet"])
    keyed, layout = with_keys(day.read(spark), enrichment)
    (names,) = layout.keys
    of_a_run = keyed.select(*names).toArrow().combine_chunks().to_batches()[0]
    (previewed,) = evaluate_keys(enrichment, [lookup], first_rows(day, 10), pytest.fail)
    previewed_rows = pa.RecordBatch.from_arrays(previewed, names=list(names))
    found, wanted = (
        read_key_tuples(batch, names, nulls=True) for batch in (previewed_rows, of_a_run)
    )
    assert repr(found) == repr(wanted)
    assert [array.type for array in previewed] == [of_a_run.column(name).type for name in names]
