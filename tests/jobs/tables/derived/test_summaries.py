"""The SQL of a summary: what it may be, refused in one sentence where it is wrong, before calls
where possible.
"""

import datetime as dt
from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable, write_deltalake

from jobs.errors import DeclarationError, TidegateError
from jobs.input.day import of_files
from jobs.run.plan.preflight import preflight
from jobs.tables.derived.summaries import summarize
from jobs.tables.derived.summary_sql import check_summaries
from tidegate import AsyncFunctionLookup, Enrichment, Input, Output, Summary

DAY, BEFORE = "2013-01-10", "2013-01-09"
TABLE = "data/published/things"


class Never:
    async def async_invoke(self, keys):
        raise AssertionError("nothing is called")


mood = AsyncFunctionLookup(
    name="mood",
    keys={"k": "id"},
    returns="score DOUBLE",
    timeout=1.0,
    max_concurrency=1,
    function=Never,
)


@pytest.fixture(autouse=True)
def project(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)


def declared(sql, **fields):
    return Enrichment(
        name="things", input=Input(path="data/raw/things", **fields), lookups=[mood],
        output=Output(path=TABLE), summaries=[Summary(name="s", sql=sql)],
    )  # fmt: skip


def publish(partition="date", **columns):
    """Three rows of the day, and one of the day before it."""
    days = [dt.date.fromisoformat(day) for day in (DAY, DAY, DAY, BEFORE)]
    rows = pa.table({"id": [1, 2, 3, 4], "town": ["b", "a", "b", "c"], **columns, partition: days})
    write_deltalake(TABLE, rows, partition_by=[partition])


def made(sql, **fields):
    """The rows of the summary of the day, as it is published."""
    enrichment = declared(sql, **fields)
    rows = summarize(enrichment, enrichment.summaries[0], DAY)
    table = DeltaTable("data/published/s").to_pyarrow_table().to_pylist()
    assert len(table) == rows
    return table


def unmade(sql):
    with pytest.raises(TidegateError) as reported:
        made(sql)
    assert str(reported.value).isprintable()
    return str(reported.value)


def check(sql, rows=None, **fields):
    """Of a day of input with one row of many types, or with these rows."""
    moment = dt.datetime(2013, 1, 10, 12, tzinfo=dt.UTC)
    every = {
        "id": [1], "town": ["b"], "local": pa.array([moment], pa.timestamp("us")),
        "utc": pa.array([moment], pa.timestamp("us", "UTC")), "small": pa.array([1], pa.int8()),
        "price": pa.array([1], pa.decimal128(9, 2)),
    }  # fmt: skip
    folder = declared(sql, **fields).input.folder(DAY)
    Path(folder).mkdir(parents=True, exist_ok=True)
    pq.write_table(pa.table(every if rows is None else rows), f"{folder}/part.parquet")
    preflight(declared(sql, **fields), DAY)


def refusal(sql, rows=None):
    with pytest.raises(DeclarationError) as refused:
        check(sql, rows)
    assert str(refused.value).isprintable()
    return str(refused.value)


def test_a_failing_summary_is_reported_and_the_day_stays_published():
    publish()
    message = unmade("SELECT CAST(town AS INT) AS number FROM things")
    assert message.startswith(f"things: summary s of {DAY} is not made: ")
    assert "Cannot cast string" in message
    assert (
        "The day itself is published: fix the sql, then run the same again, with the ledger's "
        "answers, or"
    ) in message


def test_an_invalid_summary_over_the_published_table_is_named():
    publish()
    assert (
        "things: summary s of 2013-01-10 is not made: Schema error: No field named nosuch."
        in unmade("SELECT nosuch FROM things")
    )


@pytest.mark.parametrize(
    "sql",
    [
        "SELECT * FROM things",
        "SELECT date, * EXCEPT (date) FROM things",
        'SELECT id, town, date AS "DATE", CAST(date AS TEXT) AS "Date" FROM things',
        "SELECT id, town, date_trunc('day', date) AS date FROM things",
    ],
)
def test_a_query_may_return_the_day_column_which_the_summary_has_once(sql):
    publish()
    rows = made(sql)
    assert sorted((row["id"], row["town"]) for row in rows) == [(1, "b"), (2, "a"), (3, "b")]
    assert {(*row,) for row in rows} == {("id", "town", "date")}
    assert {row["date"] for row in rows} == {dt.date(2013, 1, 10)}


def test_a_summary_that_returns_another_day_is_refused_with_that_day():
    publish()
    assert "'date' is the column of the day, and holds 2013-01-09 too; rename it." in unmade(
        "SELECT id, CASE id WHEN 2 THEN date '2013-01-09' ELSE date END AS date FROM things"
    )


@pytest.mark.parametrize("end", ["", ";", " ;\n", " -- the end"])
def test_a_query_may_begin_with_a_with_clause_and_end_with_a_semicolon_or_comment(end):
    publish()
    sql = (
        "WITH g AS (SELECT town, count(*) AS n FROM things GROUP BY town) SELECT * FROM g WHERE "
        f"n > 1{end}"
    )
    assert made(sql) == [{"town": "b", "n": 2, "date": dt.date(2013, 1, 10)}]


def test_a_query_keeps_its_order_and_its_limit():
    publish()
    assert [row["id"] for row in made("SELECT id FROM things ORDER BY id DESC LIMIT 2;")] == [3, 2]


@pytest.mark.parametrize("name", ["Date", "interval"])
def test_a_partition_column_in_capitals_or_with_the_name_of_a_word_of_sql_is_found(name):
    publish(name)
    for _ in ("made", "made again"):
        assert made("SELECT count(*) AS n FROM things", partition=name) == [
            {"n": 3, name: dt.date(2013, 1, 10)}
        ]


@pytest.mark.parametrize(
    ("sql", "message"),
    [
        ("SELECT nosuch FROM things", "Schema error: No field named nosuch."),
        (
            "SELECT id FROM thing",
            "table 'datafusion.public.thing' not found. It selects from things, in DataFusion's",
        ),
        ("SELCT id FROM things", "SQL error: ParserError("),
        ("SELECT sum(town) FROM things", "No function matches the given name and argument types"),
        (
            "SELECT count(*) AS date FROM things",
            "'date' is the column of the day, and int64 here; rename it.",
        ),
        ("SELECT DISTINCT date FROM things", "it gives no column besides 'date'."),
        ("CREATE VIEW other AS SELECT 1", "it gives no column besides 'date'."),
        (
            "SELECT a.id, b.id FROM things a JOIN things b ON a.id = b.id",
            "duplicate qualified field name",
        ),
        (
            "SELECT id, INTERVAL '1 day' AS span FROM things",
            "Invalid data type for Delta Lake: Interval(MonthDayNano).",
        ),
    ],
)
def test_a_wrong_summary_is_found_before_any_call(sql, message):
    refused = refusal(sql)
    assert refused.startswith("things: summary s: its sql is wrong: ")
    assert message in refused
    assert "bug report" not in refused
    assert "0: " not in refused


@pytest.mark.parametrize(
    "sql",
    [
        "SELECT 1 / count(*) AS share, CAST(min(town) AS INT) AS number FROM things",
        (
            "SELECT avg(score) AS mean, mood_status, max(mood_answered_at) AS last FROM things GROUP "
            "BY mood_status"
        ),
        "SELECT * FROM things WHERE local > utc AND local < date AND small + price > id",
        "SELECT date, count(*) AS n FROM things GROUP BY date;",
    ],
)
def test_a_right_summary_over_input_answers_status_and_day_passes(sql):
    check(sql)


def test_a_summary_may_read_published_columns_that_the_days_input_lacks():
    publish(only_before=[1.5] * 4)
    check("SELECT avg(only_before) AS mean, avg(score) AS score, min(local) AS first FROM things")
    assert "No field named neither" in refusal("SELECT neither FROM things")


def test_a_summary_over_types_that_only_spark_knows_is_not_checked(tmp_path):
    pq.write_table(pa.table({"id": [1], "nested": [[1]]}), tmp_path / "part.parquet")
    day = of_files([tmp_path / "part.parquet"])
    with pytest.raises(DeclarationError, match="No field named nosuch"):
        check_summaries(declared("SELECT nosuch FROM things"), day, DAY)
    old = tuple(replace(column, has_old_layout=True) for column in day.columns)
    check_summaries(declared("SELECT nosuch FROM things"), replace(day, columns=old), DAY)


def test_a_summary_is_not_checked_without_a_writable_temporary_folder(tmp_path, monkeypatch):
    pq.write_table(pa.table({"id": [1]}), "part.parquet")
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path / "nowhere"))
    check_summaries(
        declared("SELECT nosuch FROM things"), of_files([tmp_path / "part.parquet"]), DAY
    )
