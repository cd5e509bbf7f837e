"""Rows of a DataFrame enriched in a real local Spark: shares, identity and columns."""

import asyncio
import datetime as dt
import decimal
import itertools
import json
import math

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyspark.sql import types as T  # noqa: N812 - Spark's own name for it

from jobs.errors import AccessRefused, TidegateError
from jobs.input.keys.arrow_keys import read_key_tuples
from jobs.ledger.keys import key_text
from jobs.limits.fair_shares import even_shares
from jobs.run.engines.spark_failures import explain_error, task_error
from jobs.run.engines.spark_session import PARALLELISM, keep_tasks, session
from jobs.run.enrich import write_out
from jobs.run.metrics.run_metrics import count
from jobs.run.plan.planner import calls_in_flight, plan_tasks
from jobs.schema import columns as schema
from tests.support.variants import first_of
from tidegate import (
    AsyncFunctionLookup,
    Batch,
    DeclarationError,
    Enrichment,
    EventTime,
    HttpLookup,
    Input,
    Output,
    Retry,
    Service,
)  # fmt: skip


# -- shares
# --------------------------------------------------------------------------------------------------
def lookup(name="weather", **fields):
    standard = {
        "name": name, "service": allows(name), "request": "GET /{k}", "keys": {"k": "id"},
        "returns": f"{name}_x DOUBLE", "paths": {f"{name}_x": "$.temp_c"}, "timeout": 30.0,
    }  # fmt: skip
    return HttpLookup(**standard | fields)


def allows(name="weather", url="http://127.0.0.1:1", max_concurrency=4):
    return Service(name=name, url=url, max_concurrency=max_concurrency)


def enrichment(*lookups, row_id=("id",), **fields):
    return Enrichment(
        name="things", input=Input(path="data/raw/things", row_id=list(row_id)),
        lookups=list(lookups), output=Output(path="data/published/things"), **fields,
    )  # fmt: skip


@given(
    groups=st.lists(st.tuples(st.integers(1, 4), st.integers(4, 40)), min_size=1, max_size=3),
    tasks=st.integers(1, 8),
)
def test_all_lookups_of_a_service_together_stay_within_its_concurrency(groups, tasks):
    lookups = [
        lookup(f"s{n}l{m}", service=allows(f"s{n}", max_concurrency=total))
        for n, (members, total) in enumerate(groups)
        for m in range(members)
    ]
    found = calls_in_flight(lookups)
    assert min(found) >= 1
    per_service = iter(found)
    for members, total in groups:
        own = list(itertools.islice(per_service, members))
        assert sum(own) == total
        assert sum(sum(even_shares(share, tasks)) for share in own) == total


# -- the plan
# --------------------------------------------------------------------------------------------------


@pytest.fixture
def things(spark, tmp_path):
    """Forty rows in four files, read by four tasks."""
    path = str(tmp_path / "things")
    spark.range(0, 40, 1, 4).selectExpr("id", "timestamp_seconds(id * 60) AS at").write.parquet(
        path
    )
    packing = ("spark.sql.files.maxPartitionBytes", "spark.sql.files.openCostInBytes")
    for setting in packing:
        spark.conf.set(setting, "4k")  # no two of these small files fit into one task
    yield spark.read.parquet(path)
    for setting in packing:
        spark.conf.unset(setting)


@pytest.mark.spark
@pytest.mark.parametrize(
    ("allowed", "tasks", "divided"),
    [(1, 1, (1,)), (2, 2, (1, 1)), (5, 2, (3, 2)), (100, 2, (50, 50))],
)
def test_there_are_as_many_tasks_as_shares_and_at_most_as_many_as_calls(
    things, allowed, tasks, divided
):
    assert things.rdd.getNumPartitions() == 4
    prepared, plan = plan_tasks(things, enrichment(lookup(service=allows(max_concurrency=allowed))))
    assert prepared.rdd.getNumPartitions() == tasks
    assert plan.shares == (divided,)


@pytest.fixture
def parallelism(spark):
    """Sets how many slots Spark takes itself to have where it divides files, as executors come and
    go.
    """
    yield lambda slots: spark.conf.set(PARALLELISM, slots)
    spark.conf.unset(PARALLELISM)
    spark.conf.unset("spark.sql.files.openCostInBytes")


@pytest.mark.spark
def test_executors_that_join_do_not_raise_the_number_of_tasks_above_the_shares(
    spark, tmp_path, parallelism
):
    spark.range(0, 1000, 1, 1).write.parquet(str(tmp_path / "things"))
    spark.conf.set("spark.sql.files.openCostInBytes", "1")
    parallelism(1)
    things = spark.read.parquet(str(tmp_path / "things"))
    prepared, plan = plan_tasks(things, enrichment(lookup(service=allows(max_concurrency=100))))
    parallelism(8)
    assert things.select("id").rdd.getNumPartitions() >= 8
    assert prepared.select("id").rdd.getNumPartitions() == len(plan.shares[0]) == 1


@pytest.mark.spark
def test_the_files_of_a_day_are_divided_alike_each_time(spark, parallelism):
    parallelism(7)
    keep_tasks(spark)
    assert spark.conf.get(PARALLELISM) == str(spark.sparkContext.defaultParallelism)


@pytest.mark.spark
def test_the_smallest_of_several_services_decides_how_many_tasks_there_are(things):
    weather, plane = (
        lookup(service=allows(max_concurrency=8)),
        lookup("plane", service=allows("p", max_concurrency=1)),
    )
    prepared, plan = plan_tasks(things, enrichment(weather, plane))
    assert prepared.rdd.getNumPartitions() == 1
    assert plan.shares == ((8,), (1,))


@pytest.mark.spark
def test_names_of_lookups_and_keys_that_join_to_the_same_text_are_distinguished(
    things, service, enrich
):
    def one(name, key):
        return lookup(
            name, service=Service(name=name, url=service.url, max_concurrency=2),
            keys={key: f"id * {len(name)}"}, request=f"GET /{name}/{{{key}}}",
        )  # fmt: skip

    rows = enrich(things, enrichment(one("a", "b_c"), one("a_b", "c"))).collect()
    assert len(rows) == 40
    assert sorted(service.log) == sorted(
        [f"/a/{n}" for n in range(40)] + [f"/a_b/{3 * n}" for n in range(40)]
    )


# -- counted at the service
# --------------------------------------------------------------------------------------------
async def slowly(request):
    from aiohttp import web

    await asyncio.sleep(0.01)
    return web.json_response({"temp_c": 1.5})


@pytest.mark.spark
@pytest.mark.parametrize("allowed", first_of([3, 1, 8]))
def test_all_tasks_together_stay_within_the_declared_concurrency(things, service, allowed, enrich):
    service.answer = slowly
    declared = enrichment(
        lookup(service=Service(name="w", url=service.url, max_concurrency=allowed))
    )
    rows = enrich(things, declared).collect()
    assert sorted(row["id"] for row in rows) == list(range(40))
    assert sorted(service.log) == sorted(f"/{n}" for n in range(40))
    assert service.highest_in_flight <= allowed


@pytest.mark.spark
@pytest.mark.parametrize("allowed", first_of([2, 1, 3]))
def test_a_batch_counts_as_a_call_over_all_tasks(things, service, allowed, enrich):
    asked = []

    async def answer(request):
        from aiohttp import web

        keys = await request.json()
        asked.append(keys)
        await asyncio.sleep(0.01)
        return web.json_response([{"temp_c": float(key)} for key in keys])

    service.answer = answer
    declared = enrichment(
        lookup(
            service=Service(name="w", url=service.url, max_concurrency=allowed),
            request="POST /many",
            batch=Batch(max_items=4, max_wait=10.0, item="{k}"),
        )
    )
    rows = enrich(things, declared).collect()
    assert {row["id"]: row["weather_x"] for row in rows} == {key: float(key) for key in range(40)}
    assert sorted(key for keys in asked for key in keys) == list(range(40))
    assert [len(keys) for keys in asked] == [4] * 10
    assert service.highest_in_flight <= allowed


@pytest.mark.spark
def test_two_lookups_of_a_service_together_stay_within_its_concurrency(things, service, enrich):
    service.answer = slowly
    both = Service(name="w", url=service.url, max_concurrency=4)
    declared = enrichment(
        lookup("a", service=both, request="GET /a/{k}"),
        lookup("b", service=both, request="GET /b/{k}"),
    )
    rows = enrich(things, declared).collect()
    assert [row["a_status"] for row in rows] == [row["b_status"] for row in rows] == ["ok"] * 40
    assert len(service.log) == 80
    assert service.highest_in_flight <= 4


# -- identity
# --------------------------------------------------------------------------------------------------
@pytest.mark.spark
def test_rows_of_files_are_named_by_file_and_row_number(things, service, enrich):
    declared = enrichment(
        lookup(service=Service(name="w", url=service.url, max_concurrency=4)), row_id=()
    )
    rows = enrich(things, declared).collect()
    named = {(row[schema.SOURCE_FILE], row[schema.SOURCE_ROW]): row["id"] for row in rows}
    assert len(named) == 40
    assert all(file.startswith("file:/") and file.endswith(".parquet") for file, _ in named)
    assert {number for _, number in named} == set(range(10))


@pytest.mark.spark
def test_rows_that_are_not_read_from_files_need_a_row_id(spark, service, enrich):
    made = spark.range(5)
    asked = lookup(service=Service(name="w", url=service.url, max_concurrency=4))
    with pytest.raises(
        DeclarationError,
        match="row_id is not declared, and the rows are not read straight from files",
    ):
        enrich(made, enrichment(asked, row_id=()))
    rows = enrich(made, enrichment(asked)).collect()
    assert [(row[schema.SOURCE_FILE], row[schema.SOURCE_ROW]) for row in rows] == [(None, None)] * 5


@pytest.mark.spark
def test_column_names_match_in_any_case(things, service, enrich):
    asked = lookup(service=Service(name="w", url=service.url, max_concurrency=4), keys={"k": "ID"})
    declared = enrichment(
        asked,
        row_id=["Id"],
        event_time=EventTime("AT", max_out_of_orderness=dt.timedelta(0)),
        mode="key_ordered",
        key=["iD"],
    )
    rows = enrich(things, declared).collect()
    assert len(rows) == 40
    assert set(rows[0].asDict()) >= {"id", "at"}


@pytest.mark.spark
def test_a_comment_at_the_end_of_a_key_or_a_condition_is_no_part_of_it(things, service, enrich):
    asked = lookup(
        service=Service(name="w", url=service.url, max_concurrency=4), keys={"k": "id -- its number"},
        when="id < 3 -- a trial", on_null_key="fail",
    )  # fmt: skip
    assert len(enrich(things, enrichment(asked)).collect()) == 40
    assert sorted(service.log) == ["/0", "/1", "/2"]


@pytest.mark.spark
@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"keys": {"k": "no_such_function(id)"}}, "keys: Spark refuses them: [UNRESOLVED_ROUTINE]"),
        (
            {"keys": {"k": "json_tuple('{}', 'a')"}},
            "keys: Spark refuses them: [UNSUPPORTED_GENERATOR",
        ),
    ],
)
def test_a_declaration_that_does_not_fit_the_frame_is_refused_before_any_task_runs(
    things, change, message, enrich
):
    with pytest.raises(DeclarationError) as refused:
        enrich(things, enrichment(lookup(**change)))
    assert message in str(refused.value)
    assert "\n" not in str(refused.value)


@pytest.mark.spark
@pytest.mark.parametrize(
    ("expression", "kind"),
    [
        ("at - timestamp'2013-01-10'", "interval day to second"),
        ("make_ym_interval(1)", "interval year to month"),
        ("make_interval(1)", "interval"),
        ("array(at - at)", "array<interval day to second>"),
        ("named_struct('a', at - at)", "struct<a:interval day to second>"),
        ("map('a', id)", "map<string,bigint>"),
        ("parse_json('1')", "variant"),
    ],
)
def test_a_key_of_a_type_that_has_no_text_is_refused_with_the_cast(
    things, expression, kind, enrich
):
    with pytest.raises(DeclarationError) as refused:
        enrich(things, enrichment(lookup(keys={"k": expression})))
    assert str(refused.value) == (
        f"things: lookup weather: keys.k: {expression!r} is {kind}, which no key can hold. Cast "
        "it: "
        f'"cast({expression} as string)".'
    )
    plan_tasks(things, enrichment(lookup(keys={"k": f"cast({expression} as string)"})))


@pytest.mark.spark
def test_a_key_of_any_other_type_is_accepted(spark, service):
    made = spark.createDataFrame([exotic(1)], T.StructType.fromDDL(EXOTIC))
    names = [
        "id",
        "text",
        "price",
        "at",
        "local",
        "day",
        "bytes",
        "tiny",
        "small",
        "real",
        "flag",
        "tags",
        "place",
    ]
    declared = enrichment(*(lookup(f"of_{name}", keys={"k": name}) for name in names))
    prepared, plan = plan_tasks(made, declared)
    (batch,) = prepared.toArrow().to_batches()
    texts = [
        key_text(key) for columns in plan.layout.keys for key in read_key_tuples(batch, columns)
    ]
    assert texts == [
        "[1]", '["ü€1"]', '["1.0123456789"]', '["2013-01-10T05:30:00.000001Z"]',
        '["2013-01-10T05:30:00.000001"]', '["2013-01-10"]', '["Af8="]', "[1]", "[-1]",
        "[0.3333333432674408]", "[false]", "[[1,null]]", '[{"inner":{"y":[1.5,null]},"x":1}]',
    ]  # fmt: skip


@pytest.mark.spark
def test_a_session_with_speculation_is_refused_where_calls_must_not_repeat(spark):
    order = lookup("order", idempotent=False, retry=Retry(retries=0))
    # what a session made with it has; ours is made already
    spark.sparkContext._conf.set("spark.speculation", "true")
    try:
        with pytest.raises(
            DeclarationError,
            match=(
                r"lookup order: idempotent=False, and "
                r"spark\.speculation is on"
            ),
        ):
            plan_tasks(spark.range(2), enrichment(order))
    finally:
        spark.sparkContext._conf.set("spark.speculation", "false")
    plan_tasks(spark.range(2), enrichment(order))


# -- columns
# --------------------------------------------------------------------------------------------------
EXOTIC = """
    id BIGINT NOT NULL, text STRING, price DECIMAL(38,10), at TIMESTAMP, local TIMESTAMP_NTZ, day DATE, bytes BINARY,
    tiny TINYINT, small SMALLINT, real FLOAT, flag BOOLEAN, tags ARRAY<INT>, deep ARRAY<ARRAY<STRING>>,
    place STRUCT<x: INT NOT NULL, inner: STRUCT<y: ARRAY<DOUBLE>>>, counts MAP<STRING, STRUCT<n: INT>>,
    `odd name, and so on` STRING, span INTERVAL DAY TO SECOND, nothing STRING
"""


def exotic(n):
    at = dt.datetime.fromisoformat("2013-01-10T05:30:00Z") + dt.timedelta(microseconds=n)
    return (
        n, f"ü€{n}", decimal.Decimal(f"{n}.0123456789"), at, at.replace(tzinfo=None), at.date(), bytes([n, 255]), n, -n,
        n / 3, n % 2 == 0, [n, None], [[str(n)], None, []],
        (n, ([1.5, None],)) if n % 2 else (n, None), {"a": (n,), "b": None}, "x",
        dt.timedelta(seconds=n, microseconds=1), None,
    )  # fmt: skip


@pytest.mark.spark
@pytest.mark.parametrize("mode", ["ordered", "unordered"])
def test_columns_of_every_type_are_kept_unchanged(spark, service, mode, enrich):
    rows = [exotic(n) for n in range(30)] + [(99,) + (None,) * (len(exotic(0)) - 1)]
    made = spark.createDataFrame(rows, T.StructType.fromDDL(EXOTIC))
    declared = enrichment(
        lookup(service=Service(name="w", url=service.url, max_concurrency=4)), mode=mode
    )
    out = enrich(made, declared)
    carried = out.select(*(f"`{name}`" for name in made.columns))
    assert [field.dataType.simpleString() for field in carried.schema] == [
        field.dataType.simpleString() for field in made.schema
    ]
    assert sorted(carried.collect(), key=lambda row: row["id"]) == sorted(
        made.collect(), key=lambda row: row["id"]
    )


@pytest.mark.spark
def test_the_written_files_have_the_planned_schema(things, service, tmp_path, enrich):
    declared = enrichment(
        lookup(service=Service(name="w", url=service.url, max_concurrency=4)),
        mode="ordered", event_time=EventTime("at", max_out_of_orderness=dt.timedelta(minutes=5)),
    )  # fmt: skip
    promised = enrich(things, declared)
    files = sorted(map(str, tmp_path.glob("enriched-*/*.parquet")))
    written = things.sparkSession.read.parquet(*files)
    assert written.columns == promised.columns
    assert [field.dataType for field in written.schema] == [
        field.dataType for field in promised.schema
    ]
    figures = count(files, declared.facts(), rows_in=40, job_s=1.0)
    assert figures.rows_out == 40
    assert figures.rows_late == written.where(schema.LATE).count() < 40
    (weather,) = figures.lookups
    assert weather.outcomes["ok"] == weather.calls == 40
    assert set(weather.outcomes) == set(schema.OUTCOMES)
    assert sum(weather.outcomes.values()) == 40
    assert weather.limit_s <= weather.wall_s * 2
    assert json.loads(figures.to_json())["rows_in"] == 40


@pytest.mark.spark
def test_an_empty_input_gives_no_rows_and_figures_of_zero(things, service, tmp_path, enrich):
    declared = enrichment(lookup(service=Service(name="w", url=service.url, max_concurrency=4)))
    assert enrich(things.where("id < 0"), declared).count() == 0
    files = [str(path) for path in tmp_path.glob("enriched-*/*.parquet")]
    figures = count(files, declared.facts(), rows_in=0, job_s=0.0)
    assert (figures.rows_out, figures.lookups[0].calls, figures.lookups[0].latency_p50_ms) == (
        0,
        0,
        None,
    )
    assert service.log == []


@pytest.mark.spark
def test_a_run_stopped_in_a_task_reports_the_message_of_the_stop(things, service, tmp_path):
    from aiohttp import web

    async def refuses(request):
        return web.json_response({}, status=403)

    service.answer = refuses
    prepared, plan = plan_tasks(
        things, enrichment(lookup(service=Service(name="w", url=service.url, max_concurrency=2)))
    )
    with pytest.raises(Exception, match="denies access") as failed:
        write_out(prepared, plan, str(tmp_path / "out"))
    message = task_error(failed.value)
    assert isinstance(message, AccessRefused)
    assert message.state == "stopped: credentials"  # which nobody may try again by himself
    assert str(message) == f"w at {service.url} denies access: 403 Forbidden."


@pytest.mark.spark
def test_an_error_of_a_users_function_in_a_task_is_reported_as_an_error_of_the_function(
    things, enrich
):
    class Unconnected:
        async def close(self):
            raise ConnectionError("nobody listens\nat the door")

        async def async_invoke(self, keys):
            return []

    asks = AsyncFunctionLookup(
        name="asks",
        function=Unconnected,
        keys={"k": "id"},
        returns="x INT",
        timeout=1.0,
        max_concurrency=2,
    )
    with pytest.raises(Exception, match="nobody listens") as failed:
        enrich(things, enrichment(asks))
    message = task_error(failed.value)  # by the driver link, or by Spark: whichever comes first
    reported = str(message) if isinstance(message, TidegateError) else explain_error(message)
    cause = "its function cannot be closed: ConnectionError: nobody listens"
    assert reported.startswith(f"lookup asks: {cause}")


@pytest.mark.spark
def test_a_filter_over_files_finds_nan_and_minus_zero(spark, tmp_path):
    pq.write_table(pa.table({"n": [1.0, math.nan, -0.0]}), tmp_path / "file.parquet")
    rows = session("filters").read.parquet(str(tmp_path))
    assert [rows.where(rule).count() for rule in ("n > 5", "n = 0")] == [1, 1]
