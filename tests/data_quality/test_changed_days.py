"""What is changed in the files of a run, in values of any type, and in answers that only the ledger
knows better.
"""

import datetime as dt
import decimal
import shutil
from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from odd_days import DAY, KINDS, NOON, Moody, run

from data_quality.checks.input_unchanged import InputUnchanged
from data_quality.day import check
from data_quality.judging import Judging
from data_quality.rows.input_rows import InputRows
from data_quality.rows.written_day import WrittenDay
from jobs.declare.answers.answer_json import dump
from jobs.ledger.answers import StoredAnswer
from jobs.ledger.keys import key_text
from jobs.run.plan.options import RunOptions, plan_ledger
from jobs.run.written_answers import StoredAnswers
from jobs.schema.records import DayFacts, DeclaredFacts, LookupFacts
from tidegate import Enrichment, HttpLookup, Input, Ledger, Output, Retry, Service, Tolerance

pytestmark = pytest.mark.spark
MIDNIGHT = NOON.replace(hour=0, tzinfo=None)
CHANGES = [  # a column, what a row has there, and what it has then
    ("tiny", 127, -128),
    ("tiny", 0, None),
    ("single", 0.0, -0.0),
    ("double", None, float("nan")),
    ("double", 0.1, 0.1 + 2e-17),
    ("truth", False, None),
    ("born", dt.date(1582, 10, 9), dt.date(1582, 10, 19)),
    ("in_ms", NOON, NOON + dt.timedelta(hours=1)),
    ("local", MIDNIGHT, MIDNIGHT + dt.timedelta(microseconds=1)),
    ("lasted", dt.timedelta(0), None),
    ("text", "é", "e\u0301"),
    ("text", "a", "a "),
    ("text", "", None),
    ("text", "a", "A"),
    ("bytes", b"", b"\0"),
    ("bytes", b"", None),
    ("price", decimal.Decimal("1.1"), decimal.Decimal("1.01")),
    ("list", [], None),
    ("list", [None], []),
    ("list", [0.0], [-0.0]),
    ("list", [1.0, None], [None, 1.0]),
    ("lists", [["a"], ["b"]], [["a", "b"]]),
    ("lists", [[]], [None]),
    ("counts", [("a", 1)], [("a", None)]),
    ("counts", [("a", 1), ("b", 2)], [("a", 2), ("b", 1)]),
    ("counts", [], None),
    ("point", {"x": 0.0, "tags": ["a"], "more": []}, {"x": 0.0, "tags": ["a"], "more": None}),
    ("point", {"x": None, "tags": None, "more": None}, None),
    (
        "by_number",
        [(1, {"x": 0.0, "tags": [], "more": [("k", 0.0)]})],
        [(1, {"x": 0.0, "tags": [], "more": [("k", -0.0)]})],
    ),
]


@pytest.mark.proof
@pytest.mark.parametrize("reader", ["Arrow", "Spark"])
def test_a_change_of_any_carried_value_is_found_in_its_row_and_column(spark, tmp_path, reader):
    """Each change in a row of its own, and a null that moves from one column to the next."""
    names = list(dict.fromkeys(name for name, _, _ in CHANGES))
    size = len(CHANGES) + 3
    before = {name: [None] * size for name in names}
    after = {name: [None] * size for name in names}
    for row, (name, one, other) in enumerate(CHANGES):
        before[name][row], after[name][row] = one, other
    # hashed one after the other they are the same
    before["text"][size - 2], after["bytes"][size - 2] = "a", b"a"
    types = {name: KINDS[name][0] for name in names}
    given = pa.table({name: pa.array(values, types[name]) for name, values in before.items()})
    changed = pa.table({name: pa.array(values, types[name]) for name, values in after.items()})
    source, other = tmp_path / "input.parquet", tmp_path / "files.parquet"
    where = {
        "_source_file": [source.as_uri()] * size,
        "_source_row": pa.array(range(size), pa.int64()),
    }
    pq.write_table(given, source)
    lookup_free = LookupFacts("none", "function", "", (("x", "INT"),), None, 1)
    declared = DeclaredFacts("odd", "t", "raw", "date", "unordered", (lookup_free,), ())
    facts = DayFacts(
        declared, DAY, "r", (str(source),), tuple(names), "", (str(other),), (), "", ""
    )
    as_read = InputRows(spark, facts)
    if reader == "Arrow":
        facts = replace(facts, input_types=as_read.spark_types.json())

    def judged(table):
        written = pa.table(
            {name: table[name] for name in names} | where | {"_partition": pa.array([0] * size)}
        )
        pq.write_table(
            written.append_column("_input_seq", pa.array(range(size))), other, store_schema=False
        )
        return Judging([InputUnchanged(declared)], WrittenDay.of_run(spark, facts)).findings()[
            "input_unchanged"
        ]

    # as a run writes them
    given, changed = given.cast(as_read.columns), changed.cast(as_read.columns)
    assert judged(given).success
    found = judged(changed)
    wrong = {row["_source_row"]: row["differs"] for row in found.evidence}
    expected = {row: name for row, (name, _, _) in enumerate(CHANGES)} | {size - 2: "text, bytes"}
    assert (found.unexpected_count, wrong) == (len(expected), dict(list(expected.items())[:10]))
    for first in range(10, len(expected), 10):  # ten rows of evidence at a time
        rest = pa.concat_tables([given.slice(0, first), changed.slice(first)])
        rows = {row["_source_row"]: row["differs"] for row in judged(rest).evidence}
        assert rows == dict(list(expected.items())[first : first + 10])
    assert judged(given.set_column(0, names[0], given[names[0]].cast(pa.int16()))).sentence == (
        "tiny is smallint, in the input tinyint"
    )


def test_an_answer_that_differs_from_the_stored_answer_of_its_key_is_found(here, service, spark):
    """Answers by call and out of the ledger, whose file is changed in ways that only the ledger can
    tell.
    """
    service.answer = Moody(1)
    folder = here / "raw" / f"date={DAY}"
    folder.mkdir(parents=True)
    pq.write_table(pa.table({"id": pa.array(range(40), pa.int64())}), folder / "part.parquet")
    lookup = HttpLookup(
        name="rated", service=Service(name="rates", url=service.url, max_concurrency=8),
        request="GET /{k}", keys={"k": "id"}, returns="rate DOUBLE, name STRING", timeout=9.0,
        retry=Retry(retries=9, initial_delay=0.001),
    )  # fmt: skip
    enrichment = Enrichment(
        name="odd", input=Input(path="raw", row_id=["id"]), lookups=[lookup],
        output=Output(path="published"), tolerance=Tolerance(timeout=1.0, error=1.0),
        ledger=Ledger("ledger"), pii=["id"],
    )  # fmt: skip
    plan = plan_ledger(enrichment, lookup, "x", RunOptions())
    old = dt.datetime.now(dt.UTC) - dt.timedelta(days=3)
    keys = [key_text((number,), hidden=True) for number in range(10)]
    # of the first ten keys two answers are there, the younger one counts
    for days, rate in ((0, 0.25), (1, 0.5)):
        at = round((old + dt.timedelta(days=days)).timestamp() * 1e6)
        stored = [
            StoredAnswer(key, "ok", dump({"rate": rate, "name": "old"}), at, "before")
            for key in keys
        ]
        plan.open_folder().write_part(f"before-{days}", "0-0-0", stored)
    record = run(enrichment, "first")
    file = Path(record.facts.files[0])
    whole = pq.ParquetFile(file).read()
    statuses, sources = whole["rated_status"].to_pylist(), whole["_rated_source"].to_pylist()
    called = [row for row in range(40) if (statuses[row], sources[row]) == ("ok", "call")]
    known = [row for row in range(40) if sources[row] == "ledger"]
    assert len(known) == 10

    def judged(rows):
        pq.write_table(pa.Table.from_pylist(rows, whole.schema), file)
        kept = {"rated": (lookup, plan)}
        stored = StoredAnswers(kept, record.facts.run_id, record.facts.started_at)
        found = {
            verdict.check: verdict
            for verdict in check(spark, record.facts, record.figures, stored).verdicts
        }
        return found["rated__answers_match"]

    answered = statuses.count("ok") + statuses.count("miss")
    assert judged(whole.to_pylist()).sentence == (
        f"{answered} rows with an answer, each the stored one of its key"
    )
    rows = whole.to_pylist()
    missed = {"rate": None, "name": None, "rated_status": "miss", "_rated_status": "miss"}
    changes = {
        # the older answer of the same key, just as it is stored
        known[0]: {"rate": 0.25, "rated_answered_at": old},
        known[1]: {
            "rated_answered_at": rows[known[1]]["rated_answered_at"] - dt.timedelta(days=365)
        },
        known[2]: {"name": "ol d"},
        called[0]: {"rate": None},
        called[1]: {"name": rows[called[2]]["name"]},
        called[2]: missed,
    }
    # two rows exchange all that there is about the answer but its key
    one, other = called[3], called[4]
    for name in set(whole.column_names) - {
        "id",
        "_rated_key",
        "_source_row",
        "_input_seq",
        "_output_seq",
    }:
        rows[one][name], rows[other][name] = rows[other][name], rows[one][name]
    for row, values in changes.items():
        rows[row] |= values
    # the id is personal, so evidence names a row by its place in the input
    assert {row["_source_row"] for row in judged(rows).evidence} == {
        rows[row]["_source_row"] for row in [*changes, one, other]
    }
    shutil.rmtree("ledger")
    # those of calls may never have been kept
    assert judged(whole.to_pylist()).unexpected_count == len(known)


def test_a_day_without_a_row_is_judged_with_its_ledger(here, service):
    service.answer = Moody(1)
    folder = here / "raw" / f"date={DAY}"
    folder.mkdir(parents=True)
    pq.write_table(pa.table({"id": pa.array([], pa.int64())}), folder / "part.parquet")
    lookup = HttpLookup(
        name="rated", service=Service(name="rates", url=service.url, max_concurrency=8),
        request="GET /{k}", keys={"k": "id"}, returns="rate DOUBLE, name STRING", timeout=9.0,
    )  # fmt: skip
    enrichment = Enrichment(
        name="odd", input=Input(path="raw", row_id=["id"]), lookups=[lookup],
        output=Output(path="published"), ledger=Ledger("ledger"),
    )  # fmt: skip
    verdicts = {verdict.check: verdict.status for verdict in run(enrichment, "first").verdicts}
    assert verdicts["rated__answers_match"] == "passed"
    assert "failed" not in verdicts.values()
