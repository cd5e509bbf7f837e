"""`tidegate.enrich` puts the answers beside the rows of a frame of any kind, and pays for each
once.
"""

import asyncio
import dataclasses
import datetime as dt
import os
import signal
import subprocess
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from decimal import Decimal
from functools import partial
from pathlib import Path

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
from aiohttp import web
from pyspark.logger import PySparkLogger
from pyspark.sql.functions import udf

from jobs.commands.costs import list_costs
from jobs.commands.frames.enrich_frame import enrich_frame
from jobs.declare.finding import extras
from jobs.errors import RowFailed
from jobs.run.plan.options import RunOptions
from tests.support.documents import blocks
from tidegate import (
    DeclarationError,
    Enrichment,
    EventTime,
    HttpLookup,
    Input,
    Output,
    Price,
    RunStopped,
    Service,
    enrich,
)
from tidegate.frames import bar_line

ROOT = Path(__file__).parents[2]
TOWNS = ["oslo", " rom ", "none", None, "oslo", "bergen"]
DEGREES = [4, 3, None, None, 4, 6]
BEGIN = pd.DatetimeIndex(["2026-01-01"])
STATUS = ["ok", "ok", "miss", "skipped", "ok", "ok"]


@pytest.fixture
def towns(tmp_path, monkeypatch, service):
    """A declaration whose service knows every town but `none`."""
    monkeypatch.chdir(tmp_path)

    async def answer(request):
        town = request.path.rpartition("/")[2]
        return web.json_response(
            {"degrees": len(town), "id": 2**60 + len(town)}, status=404 if town == "none" else 200
        )

    service.answer = answer
    return declare(service.url)


def declare(url, **more):
    weather = HttpLookup(
        name="weather",
        service=Service(name="weather", url=url, max_concurrency=3, prices=[Price("0.25 USD")]),
        request="GET /{town}", keys={"town": "trim(town)"}, returns="degrees INT, id BIGINT",
        timeout=5.0,
    )  # fmt: skip
    return Enrichment(
        name="towns",
        input=Input(path="raw", row_id=["n"]),
        lookups=[weather],
        output=Output(path="published"),
        **more,
    )


def test_an_arrow_table_keeps_its_columns_and_gets_answer_columns(towns, service):
    table = pa.table(
        {"town": TOWNS, "at": pa.array([dt.timedelta(1)] * 6), "x.y": range(6)}
    ).replace_schema_metadata({"a": "b"})
    enriched = enrich(table, towns)
    assert enriched.select(table.column_names).equals(table)
    assert enriched.schema.metadata == table.schema.metadata
    assert enriched["degrees"].to_pylist() == DEGREES
    assert enriched["weather_status"].to_pylist() == STATUS
    assert enriched.column_names[3:] == ["degrees", "id", "weather_status", "weather_answered_at"]
    assert len(service.log) == 4
    month = f"{dt.datetime.now(dt.UTC):%Y-%m}"
    assert list_costs(month).totals() == {"USD": Decimal("1.00")}
    assert not Path("published").exists()  # `costs` knows by the bill beside the records


def test_a_second_enrich_of_any_frame_repeats_no_call(towns, service):
    enrich(pa.table({"town": TOWNS}), towns)
    paid = len(service.log)
    batch = enrich(pa.record_batch({"town": TOWNS}), towns)
    assert isinstance(batch, pa.RecordBatch)
    assert batch["degrees"].to_pylist() == DEGREES
    assert enrich(pd.DataFrame({"town": TOWNS}), towns)["weather_status"].tolist() == STATUS
    assert enrich(pl.DataFrame({"town": TOWNS}), towns)["degrees"].to_list() == DEGREES
    assert enrich(pa.table({"town": pa.array([], pa.string())}), towns).num_rows == 0
    assert len(service.log) == paid


@pytest.mark.parametrize("town", [[], [None, None]], ids=["no rows", "nulls"])
@pytest.mark.parametrize("make", [pa.table, partial(pd.DataFrame, dtype=object), pl.DataFrame])
def test_rows_whose_key_has_no_type_are_skipped(towns, service, make, town):
    enriched = enrich(make({"town": town}), towns)
    statuses = enriched["weather_status"]
    assert (statuses.to_pylist() if make is pa.table else list(statuses)) == ["skipped"] * len(town)
    assert service.log == []


@pytest.mark.parametrize(("value", "path"), [("oslo", "/oslo"), (True, "/true"), (7, "/7")])
@pytest.mark.parametrize("nan", [np.float16("nan"), np.float32("nan"), float("nan"), pd.NaT])
def test_a_nan_among_pandas_objects_is_null(towns, service, nan, value, path):
    (weather,) = towns.lookups
    declared = dataclasses.replace(
        towns, lookups=[dataclasses.replace(weather, keys={"town": "town"})]
    )
    enriched = enrich(pd.DataFrame({"town": [nan, value]}, dtype=object), declared)
    assert (list(enriched["weather_status"]), service.log) == (["skipped", "ok"], [path])


@pytest.mark.parametrize("make", [pa.table, pd.DataFrame, pl.DataFrame])
def test_a_key_may_be_a_struct_field_in_any_frame(towns, service, make):
    (weather,) = towns.lookups
    by_field = dataclasses.replace(weather, keys={"town": "trim(Customer.home.town)"})
    homes = [{"home": {"town": town}} for town in TOWNS]
    enriched = enrich(make({"customer": homes}), dataclasses.replace(towns, lookups=[by_field]))
    statuses = enriched["weather_status"]
    assert (statuses.to_pylist() if make is pa.table else list(statuses)) == STATUS
    assert len(service.log) == 4


def test_a_pandas_frame_keeps_index_types_and_attributes(towns):
    index = pd.Index([7, 7, 1, 2, 3, 4], name="place")
    frame = pd.DataFrame(
        {"town": pd.Categorical(TOWNS), 5: 1.5, "n": pd.array([1, None] * 3, "Int8")}, index=index
    )
    frame.attrs["source"] = "survey"
    enriched = enrich(frame, towns)
    pd.testing.assert_frame_equal(enriched[["town", 5, "n"]], frame)
    assert enriched.attrs == {"source": "survey"}
    assert enriched["id"].tolist()[0] == 2**60 + 4  # beside nulls, as a whole number
    assert str(enriched["degrees"].dtype) == "Int32"
    assert "degrees" not in frame


def test_a_polars_frame_keeps_its_types(towns):
    frame = pl.DataFrame({"town": TOWNS, "x": [Decimal("1.50")] * 6}).with_columns(
        pl.col("town").cast(pl.Categorical)
    )
    enriched = enrich(frame, towns)
    assert enriched.select(frame.columns).equals(frame)
    assert enriched.schema["town"] == pl.Categorical
    assert enriched["degrees"].to_list() == DEGREES


def test_a_frame_needs_no_event_time_and_no_day_column(towns, service):
    ordered = declare(
        service.url,
        mode="key_ordered",
        key=["n"],
        event_time=EventTime("at", max_out_of_orderness=dt.timedelta(1)),
    )
    assert enrich(pa.table({"town": TOWNS}), ordered)["degrees"].to_pylist() == DEGREES


def test_enrich_works_inside_a_running_event_loop(towns):
    async def cell():
        return enrich(pa.table({"town": TOWNS}), towns)

    assert asyncio.run(cell())["degrees"].to_pylist() == DEGREES


@pytest.mark.parametrize(
    ("frame", "message"),
    [
        ([1], "this is a builtins.list"),
        (pl.LazyFrame({"town": TOWNS}), r"LazyFrame\. Call collect\(\) on it"),
        (pd.Series(TOWNS), r"Series\. Call to_frame\(\) on it"),
        (pa.table({"twn": TOWNS}), "keys.town: no column 'town' in the frame. Did you mean 'twn'"),
        (pa.table({}), "keys.town: no column 'town' in the frame. It has: none"),
        (pa.table({"town": TOWNS, "Degrees": TOWNS}), "'degrees' exists in the input"),
        (
            pa.table([TOWNS, TOWNS], ["town", "Town"]),
            "several columns of the frame are named 'town'",
        ),
        (pd.DataFrame({"town": ["a", 1]}), "has values of several types"),
        (pd.DataFrame({"town": [1, None]}), "give a frame of Spark. 'town' has fractions: in pandas"),
        (pd.DataFrame({"town": ["oslo", b"rom"]}), "values of type binary and others"),
        (
            pd.DataFrame({"town": [dt.date(2026, 1, 1), dt.datetime(2026, 1, 1, 5)]}),  # noqa: DTZ001
            "values of type date32.* and others",
        ),
        (
            pd.DataFrame({"town": pd.concat([BEGIN.to_series(), BEGIN.tz_localize("UTC").to_series()])}),
            "times with a zone and times without",
        ),
        (pd.DataFrame({"town": [BEGIN[0], 7]}, dtype=object), "values of type timestamp.* and others"),
        (pd.DataFrame({"town": [dt.date(2026, 1, 1), 7]}), "values of type date32.* and others"),
        (pd.DataFrame({"town": [BEGIN[0], Decimal(7)]}), "values of type timestamp.* and others"),
        (pd.DataFrame({"town": [dt.date(2026, 1, 1), np.int64(7)]}), "values of type date32.* and others"),
        (
            pd.DataFrame({"town": pd.Categorical([dt.date(2026, 1, 1), 7.5])}),
            "values of type date32.* and others",
        ),
        (
            pd.DataFrame({"town": [BEGIN[0] + pd.Timedelta(1)]}, dtype=object),
            "'town' has times below a microsecond, which no key can have; round them",
        ),
        (pd.DataFrame({"town": [2**64, 1]}, dtype=object), "several types, or of one that no key"),
        (pd.DataFrame({"town": pd.arrays.SparseArray([1, 0])}), "Sparse pandas data"),
        (pl.DataFrame({"town": [object()]}), "'town' is Object, which no key can have"),
        (pl.DataFrame({"town": [1]}, {"town": pl.Int128}), "'town' is Int128, which no key"),
        (pa.table({"town": pa.array([(1, 2, 3)], pa.month_day_nano_interval())}), "no key can have"),
        (pd.DataFrame({"town": [1]}, dtype="uint64"), "'town' is uint64, which no key can have. Cast"),
        (pd.DataFrame({"town": [dt.time(1)]}), "frame: 'town' is time64.*, which no key can have"),
        (pd.DataFrame({"town": ["oslo", "\ud83d"]}), "has a text that is not Unicode: surrogates"),
        (
            pa.table({"town": pa.array([2**53], pa.timestamp("s"))}),
            "'town' has times outside the years -290308 to 294247",
        ),
    ],
    ids=[
        "list", "lazy", "series", "missing", "empty", "answer", "ambiguous", "mixed", "number", "bytes",
        "times", "zones", "numbered times", "numbered days", "decimals", "numpy days", "categories", "nanoseconds", "large", "sparse", "objects", "long", "interval", "unsigned", "time", "surrogate",
        "late",
    ],
)  # fmt: skip
def test_a_frame_that_does_not_fit_is_refused_before_any_call(towns, service, frame, message):
    with pytest.raises(DeclarationError, match=message):
        enrich(frame, towns)
    assert service.log == []


def test_a_row_that_fails_is_named_by_its_place_in_the_frame(towns):
    (weather,) = towns.lookups
    strict = dataclasses.replace(towns, lookups=[dataclasses.replace(weather, on_miss="fail")])
    with pytest.raises(RowFailed, match=r"It is row 2 of the frame \(the first is 0\)\.$"):
        enrich(pa.table({"town": TOWNS}), strict)


def test_rows_that_failed_are_counted_in_the_log_with_the_commonest_reason(towns, caplog):
    (weather,) = towns.lookups
    wrong = dataclasses.replace(weather, returns="degrees DATE")
    frame = pd.DataFrame({"town": [*TOWNS, "oslo", "bergen"]})
    enriched = enrich(frame, dataclasses.replace(towns, lookups=[wrong]))
    assert enriched["weather_status"].value_counts()["error"] == 6
    assert enriched.columns.tolist()[1:] == ["degrees", "weather_status", "weather_answered_at"]
    (line,) = (record.getMessage() for record in caplog.records if record.name == "tidegate.frames")
    assert line.startswith(
        "lookup weather: 6 rows failed, most often: the answer does not fit: deg"
    )


@pytest.mark.parametrize("name", ["_source_row", "_Partition", "_weather_key", "__key_0_0"])
def test_a_key_of_a_column_that_a_run_writes_is_refused(towns, service, name):
    (weather,) = towns.lookups
    keyed = dataclasses.replace(weather, keys={"town": f"`{name}`"})
    with pytest.raises(DeclarationError, match="is a column that Tidegate writes"):
        enrich(pa.table({name: TOWNS}), dataclasses.replace(towns, lookups=[keyed]))
    assert service.log == []


def test_whole_numbers_in_pandas_arrays_with_a_null_keep_their_digits(towns, service):
    async def answer(_request):
        return web.json_response({"ids": [2**62 + 1, None], "one": {"ids": [None, 2**53 + 1]}})

    service.answer = answer
    (weather,) = towns.lookups
    listed = dataclasses.replace(
        weather, returns="ids ARRAY<BIGINT>, one STRUCT<ids: ARRAY<BIGINT>>"
    )
    rows = enrich(
        pd.DataFrame({"town": ["oslo", None]}), dataclasses.replace(towns, lookups=[listed])
    )
    assert list(rows["ids"][0]) == [2**62 + 1, None]
    assert list(rows["one"][0]["ids"]) == [None, 2**53 + 1]


def test_a_cap_stops_enrich_and_the_same_call_continues(towns, service):
    rows = pa.table({"town": [f"town{n}" for n in range(20)]})
    with pytest.raises(RunStopped, match=r"is kept; run again, and only the rest is asked\.$"):
        enrich(rows, towns, max_cost="1.00 USD")
    assert 0 < len(service.log) <= 4
    enrich(rows, towns)
    assert len(service.log) == len(set(service.log)) == 20


def test_two_enrich_calls_at_once_are_each_billed_for_their_calls(towns, service):
    both, answer = threading.Barrier(2, timeout=30), service.answer
    firsts = {"/a0", "/b0"}

    async def answer_together(request):
        if request.path in firsts:  # both are at work
            await asyncio.to_thread(both.wait)
        return await answer(request)

    service.answer = answer_together

    def ask(letter):
        (weather,) = towns.lookups
        one = dataclasses.replace(
            weather, name=letter, returns=f"{letter}_v INT", paths={f"{letter}_v": "$.degrees"}
        )
        rows = pa.table({"town": [f"{letter}{n}" for n in range(20)]})
        enrich(rows, dataclasses.replace(towns, name=letter, lookups=[one]))

    with ThreadPoolExecutor(2) as pool:
        list(pool.map(ask, "ab"))
    month = f"{dt.datetime.now(dt.UTC):%Y-%m}"
    costs = list_costs(month).totals()
    assert costs == {"USD": Decimal("10.00")}, "40 requests"


def test_a_cap_is_settled_by_bills_between_the_levels_of_a_chain(towns, service):
    async def answer(request):
        return web.json_response({"town": f"{request.path[-2:]}x", "tokens": 2})

    service.answer = answer
    prices = [Price("0.01 USD", per="token", at_most=100)]
    model = Service(name="model", url=service.url, max_concurrency=4, prices=prices)
    first, second = (
        HttpLookup(
            name=name, service=model, request=f"GET /{name}/{{town}}", keys={"town": key},
            returns=f"{name}_town STRING", paths={f"{name}_town": "$.town"},
            bill={"tokens": "$.tokens"}, timeout=5.0,
        )
        for name, key in (("first", "town"), ("second", "first_town"))
    )  # fmt: skip
    rows = pa.table({"town": [f"t{n:02}" for n in range(30)]})
    enrich(rows, dataclasses.replace(towns, lookups=[first, second]), max_cost="5.00 USD")
    assert len(service.log) == 60  # for 1.20 USD, although each might have cost 1 USD


def test_costs_in_two_currencies_are_not_added(towns, service):
    eur = Service(name="eur", url=service.url, max_concurrency=2, prices=Price("0.25 EUR"))
    other = HttpLookup(
        name="other", service=eur, request="GET /{k}", keys={"k": "town"},
        returns="other INT", paths={"other": "$.score"}, timeout=5.0,
    )  # fmt: skip
    costs = []
    both = dataclasses.replace(towns, lookups=[*towns.lookups, other])
    enrich_frame(
        pa.table({"town": ["a", "b"]}),
        both,
        RunOptions(),
        lambda event: costs.append(event["cost"]),
    )
    assert costs[-1] == "0.50 USD, 0.50 EUR"


def test_the_progress_bar_shows_share_calls_cost_and_time():
    event = {
        "rows": 120,
        "rows_total": 480,
        "unit": "keys",
        "calls": 120,
        "cost": "0.30 USD",
        "left_s": 42.0,
    }
    assert bar_line(event) == (
        "[======                  ] 120 of 480 keys, 120 calls, 0.30 USD, 42 s left"
    )


INTERRUPTED = """
import signal, sys
import pyarrow as pa
from tests.tidegate.test_frames import declare
from tidegate import enrich
signal.signal(signal.SIGINT, signal.default_int_handler)
enrich(pa.table({"town": [f"town{n}" for n in range(300)]}), declare(sys.argv[1]))
"""


@pytest.mark.process
def test_an_interrupt_loses_no_answer(towns, service):
    answered = []

    async def slow(request):
        await asyncio.sleep(0.05)
        answered.append(request.path)
        return web.json_response({"degrees": 1, "id": 1})

    service.answer = slow
    environment = os.environ | {"PYTHONPATH": str(ROOT)}
    process = subprocess.Popen(
        [sys.executable, "-c", INTERRUPTED, service.url], env=environment, stderr=subprocess.PIPE
    )
    while len(answered) < 30:
        time.sleep(0.01)
        assert process.poll() is None, process.stderr.read().decode()
    process.send_signal(signal.SIGINT)
    assert b"KeyboardInterrupt" in process.communicate(timeout=60)[1]
    assert len(answered) < 300
    enrich(pa.table({"town": [f"town{n}" for n in range(300)]}), towns)
    assert len(answered) - len(set(answered)) <= 3  # those in flight


@pytest.mark.spark
def test_a_spark_frame_is_called_once_however_often_it_is_used(towns, service, spark):
    at = dt.datetime(2026, 11, 19, 12, tzinfo=dt.UTC)
    rows = [(name, n, [n], Decimal("1.50"), at) for n, name in enumerate(TOWNS)]
    types = "town STRING, n INT, list ARRAY<INT>, price DECIMAL(10, 2), at TIMESTAMP"
    frame = spark.createDataFrame(rows, types).repartition(2)
    enriched = enrich(frame, towns)
    assert enriched.select(frame.columns).schema == frame.schema
    assert len(service.log) == 4
    found = enriched.orderBy("n").collect()
    assert [row["degrees"] for row in found] == DEGREES
    assert [row["weather_status"] for row in found] == STATUS
    assert [tuple(row)[:5] for row in found] == [tuple(row) for row in frame.orderBy("n").collect()]
    assert enriched.union(enriched).count() == 12
    enrich(frame, towns).show()
    assert len(service.log) == 4


@pytest.mark.spark
def test_a_spark_frame_of_no_files_prints_no_error(towns, service, spark, capfd):
    logger = PySparkLogger.getLogger("DataFrameQueryContextLogger")
    printed = PySparkLogger.getLogger("printed")  # its handler writes to the stderr of now
    logger.addHandler(printed.handlers[0])
    try:
        enrich(spark.createDataFrame([("oslo",)], "town STRING"), towns)
    finally:
        logger.removeHandler(printed.handlers[0])
    assert "ERROR" not in capfd.readouterr().err


def test_enrich_without_pyspark_names_the_line_that_installs_it(towns, service, monkeypatch):
    monkeypatch.setitem(extras.EXTRAS, "spark", ("PySpark", "pyspark_is_not_here"))
    with pytest.raises(DeclarationError, match=r"^tidegate.enrich needs PySpark; it is not inst"):
        enrich(pa.table({"town": ["oslo"]}), towns)
    assert service.log == []


@pytest.mark.spark
def test_workers_of_a_spark_frame_without_the_package_are_named_with_the_cure(towns, spark):
    @udf("string")
    def another_python(_):  # fails as it does where it has to import the tasks
        raise ModuleNotFoundError("No module named 'tidegate'")

    frame = spark.range(1).select(another_python("id").alias("town"))
    with pytest.raises(DeclarationError, match="PYSPARK_PYTHON"):
        enrich(frame, towns)


@pytest.mark.spark
def test_keys_of_a_spark_frame_are_evaluated_in_utc_in_any_session(towns, service, spark):
    (weather,) = towns.lookups
    hourly = dataclasses.replace(weather, keys={"town": "date_format(at, 'yyyyMMddHH')"})
    zone = "spark.sql.session.timeZone"
    frame = spark.sql("SELECT timestamp_micros(0) AS at")
    spark.conf.set(zone, "America/New_York")
    try:
        enrich(frame, dataclasses.replace(towns, lookups=[hourly]))
        assert service.log == ["/1970010100"]
        assert spark.conf.get(zone) == "America/New_York"
    finally:
        spark.conf.set(zone, "UTC")


@pytest.mark.spark
@pytest.mark.parametrize(
    ("columns", "message"),
    [
        ("'v' AS `a.b`", "has a dot in its name"),
        ("'v' AS `a``b`", "has a backtick in its name"),
        ("'v' AS a, 'w' AS A", "differ only in case"),
        ("'v' AS _weather_key", "is a column that Tidegate writes"),
        ("'v' AS _source_file, 1L AS _source_row", "is a column that Tidegate writes"),
        ("'v' AS __key_0_0", "means something else to a run"),
        ("INTERVAL '1' YEAR AS a", "'a' is interval year, which no Python worker of Spark reads"),
        (
            "array(struct()) AS a",
            "'a' is array<struct<>>, and Parquet has no struct without fields",
        ),
        ("array() AS a", "'a' is array<void>, which no Python worker of Spark reads"),
    ],
)
def test_a_spark_frame_that_does_not_fit_is_refused(towns, service, spark, columns, message):
    with pytest.raises(DeclarationError, match=message):
        enrich(spark.sql(f"SELECT 'oslo' AS town, {columns}"), towns)
    assert service.log == []


def test_the_examples_of_the_frames_page_give_the_printed_results(tmp_path, monkeypatch, service):
    monkeypatch.chdir(tmp_path)

    async def answer(request):
        return web.json_response({"degrees": 1})

    service.answer = answer
    monkeypatch.setenv("WEATHER_URL", service.url)
    names = {}
    for block in blocks("docs/frames.md", "python"):
        exec(compile(block, "docs/frames.md", "exec"), names)
    assert len(service.log) == 3
