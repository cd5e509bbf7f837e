"""A table without days: a run enriches the rows that are new, changed or past their ttl, and keeps
the others.
"""

import dataclasses
import datetime as dt
import re
import time
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from aiohttp import web
from deltalake import DeltaTable
from pyarrow import csv

from data_quality.day_quality import DayQuality
from data_quality.report.pages import render
from jobs.errors import DeclarationError, PublishConflict
from jobs.input.day import find_input
from jobs.ledger.answers import StoredAnswer
from jobs.ledger.changes.compaction import compact
from jobs.process.day_pipeline import DayPipeline
from jobs.run.changes.changed_rows import (
    compare,
    find_changes,
    hand_over,
    taken_over,
    with_kept_rows,
)
from jobs.run.day import run_day
from jobs.run.engines.stages import ThreadStage
from jobs.run.estimating.estimate import estimate
from jobs.run.estimating.text import estimate_text
from jobs.tables import audit
from jobs.tables.delta import copied_rows
from jobs.tables.delta.copied_rows import keep_rows
from jobs.tables.publishing import publish
from jobs.tables.records import run_records
from orchestration.common.day_results import describe_result
from tests.jobs.commands.conftest import as_written, key, towns_in
from tests.support.places import everywhere, place_of
from tests.support.scripted_spark import ScriptedSubmit
from tidegate import (
    Enrichment,
    Expectation,
    HttpLookup,
    Input,
    Ledger,
    Output,
    Service,
    Tolerance,
    Ttl,
)
from tidegate.__main__ import main
from tidegate.commands.days import line

MISSING = "nobody"


def customers(service, **more):
    mood = HttpLookup(
        name="mood", service=Service(name="s", url=service.url, max_concurrency=2),
        request="GET /{k}", keys={"k": "k"}, returns="score INT", timeout=5.0,
        **{"ttl": Ttl(miss=dt.timedelta(0))} | more,
    )  # fmt: skip
    return Enrichment(
        name="customers",
        input=Input(path="raw", partition="part", every=["all"], row_id=["id"], rows="changed"),
        lookups=[mood],
        output=Output(path="out"),
        ledger=Ledger("ledger"),
    )


async def length(request):
    key = request.path[1:]
    return web.json_response({"score": len(key)}) if key != MISSING else web.Response(status=404)


@pytest.fixture
def asked(tmp_path, monkeypatch, service):
    """Runs and publishes; gives the counts of the changes and the keys that were asked."""
    monkeypatch.chdir(tmp_path)
    service.answer = length

    def ran(run_id, enrichment=None):
        before = len(service.log)
        record = run_day(
            enrichment or customers(service), "all", run_id, checks="data_quality.day:check"
        )
        assert [verdict.sentence for verdict in record.verdicts if verdict.status == "failed"] == []
        publish(record)
        return tuple(record.facts.changes.counts.values()), sorted(
            path[1:] for path in service.log[before:]
        )

    return ran


def write(rows, **more):
    """rows: id -> key."""
    folder = Path("raw", "part=all")
    folder.mkdir(parents=True, exist_ok=True)
    columns = {"id": pa.array(rows, pa.int64()), "k": pa.array(rows.values(), pa.string()), **more}
    pq.write_table(pa.table(columns), folder / "a.parquet")


def rows_of(name="out", *columns):
    table = DeltaTable(name).to_pyarrow_table().sort_by("id").to_pylist()
    return [tuple(row[column] for column in columns or ("id", "k", "score")) for row in table]


@pytest.mark.spark
def test_a_run_enriches_new_changed_and_expired_rows_and_removes_deleted_rows(spark, asked):
    write({1: "a", 2: "bb", 3: "ccc", 4: MISSING})
    assert asked("r1") == ((4, 0, 0, 0, 0), ["a", "bb", "ccc", MISSING])
    write({1: "a", 3: "xxxx", 4: MISSING, 5: "eeeee"})
    assert asked("r2") == ((1, 1, 1, 1, 1), ["eeeee", MISSING, "xxxx"])
    assert rows_of() == [(1, "a", 1), (3, "xxxx", 4), (4, MISSING, None), (5, "eeeee", 5)]
    assert rows_of(audit.table_of("out"), "id", "run_id") == [
        (number, "r2") for number in (1, 3, 4, 5)
    ]
    render("customers", run_records.latest("customers"), Path("reports"))
    assert (
        "Rows: 1 new, 1 changed, 1 expired, 1 gone, 1 kept."
        in Path("reports/all/index.html").read_text()
    )
    write({1: "a", 5: "eeeee"})
    assert asked("r3") == ((0, 0, 0, 2, 2), [])
    assert rows_of() == [(1, "a", 1), (5, "eeeee", 5)]


@pytest.mark.proof
@pytest.mark.spark
def test_tolerated_shares_of_failures_and_nulls_count_the_whole_table(spark, asked, service):
    async def answer(request):
        if request.path.startswith("/bad"):
            return web.Response(status=400)
        return web.json_response({"score": None if request.path.startswith("/null") else 1})

    service.answer = answer
    declared = customers(service, ttl=Ttl(ok=dt.timedelta(days=9)), null_share={"score": 0.1})
    declared = dataclasses.replace(declared, tolerance=Tolerance(error=0.1))
    rows = {number: f"k{number}" for number in range(50)} | {
        number: f"null{number}" for number in range(50, 54)
    }
    write(rows | {number: f"bad{number}" for number in range(54, 58)})
    assert asked("r1", declared)[0] == (58, 0, 0, 0, 0)
    rows |= {0: "new", 50: "null"}
    write(rows | {number: f"bad{number}" for number in range(54, 58)})
    assert asked("r2", declared)[0] == (0, 2, 4, 0, 52)
    write(rows | {number: f"bad{number}" for number in range(54, 61)} | {61: "null", 62: "null"})
    record = run_day(declared, "all", "r3", checks="data_quality.day:check")
    assert [
        (verdict.check, verdict.sentence.partition(";")[0])
        for verdict in record.verdicts
        if verdict.status == "failed"
    ] == [
        ("mood__errors_tolerated", "error: 7 rows of 63, 11.11%"),
        ("mood__answers_in_range", "score is null in 10.71% of 56 answers"),
    ]


@pytest.mark.proof
@pytest.mark.spark
def test_expectations_are_judged_on_the_table_with_its_kept_rows(spark, asked, service):
    declared = dataclasses.replace(
        customers(service),
        expectations=[
            Expectation("expect_column_values_to_be_unique", column="k"),
            Expectation("expect_table_row_count_to_be_between", min_value=3),
        ],
    )
    write({1: "a", 2: "bb", 3: "ccc"})
    asked("r1", declared)
    for run_id, rows, red in (
        ("r2", {1: "a", 2: "bb", 3: "bb"}, "expect_column_values_to_be_unique__k"),
        ("r3", {1: "a", 2: "bb"}, "expect_table_row_count_to_be_between"),
    ):
        write(rows)
        verdicts = run_day(declared, "all", run_id, checks="data_quality.day:check").verdicts
        assert [
            verdict.check
            for verdict in verdicts
            if verdict.status != "passed" and verdict.holds_back
        ] == [red]


# -- what is compared, without Spark
# -----------------------------------------------------------------------------------
NOW = time.time_ns() // 1000
DECLARED = """
towns = replace(
    towns, lookups=[replace(weather, ttl=Ttl(ok=timedelta(days=10), miss=timedelta(days=1)), **{more})],
    input=replace(towns.input, every=["all"], rows="changed"),
)
"""


@pytest.fixture
def towns(tmp_path, monkeypatch, request):
    project = towns_in(tmp_path, monkeypatch, place_of(request, "data/published"))
    declare(project)
    return project


def declare(project, **more):
    project.declare()
    project.declare_too(
        "from datetime import timedelta",
        "from tidegate import Ttl",
        DECLARED.format(more=more or {}),
    )


def give(project, numbers, **columns):
    """The input: a row for each number, with more columns or with others."""
    folder = Path(project.enrichment.input.folder("all"))
    folder.mkdir(parents=True, exist_ok=True)
    rows = {
        "number": pa.array(numbers, pa.int32()),
        "town": [f" town-{number} " for number in numbers],
    } | columns
    pq.write_table(pa.table(rows), folder / "part-0.parquet")


def give_as_csv(project, numbers):
    """The same; a run compares and reads its copy as Parquet."""
    as_csv = 'input=replace(towns.input, format="csv", schema="number INT, town STRING")'
    project.declare_too(f"towns = replace(towns, {as_csv})")
    give(project, numbers)
    parquet = Path(project.enrichment.input.folder("all"), "part-0.parquet")
    csv.write_csv(pq.read_table(parquet), parquet.with_suffix(".csv"))
    parquet.unlink()


def show(project, ages, statuses=None, run_id="r1", **columns):
    """Publish a run: number of a row -> age of its answer in days."""
    record = project.written("all", ages, run_id, statuses or {})
    (file,) = record.facts.files
    at = pa.array(
        [NOW - round(days * 86_400e6) for days in ages.values()], pa.timestamp("us", "UTC")
    )
    rows = as_written(list(ages), [(statuses or {}).get(number, "ok") for number in ages])
    rows = rows.set_column(
        rows.column_names.index("weather_answered_at"), "weather_answered_at", at
    )
    for name, values in columns.items():
        rows = rows.append_column(name, values)
    pq.write_table(rows, file)
    now = dt.datetime.fromtimestamp(NOW / 1e6, dt.UTC).isoformat()
    facts = dataclasses.replace(
        record.facts, started_at=now, finished_at=now, input_columns=("number", "town", *columns)
    )
    return publish(dataclasses.replace(record, facts=facts))


def found(project, **more):
    changed = find_changes(
        project.enrichment, find_input(project.enrichment, "all"), "all", clock=lambda: NOW, **more
    )
    rows = pq.read_table(changed.input_day.files[0])["number"].to_pylist()
    return tuple(changed.changes.counts.values()), sorted(rows)


def test_rows_are_compared_by_id_whatever_their_order(towns):
    show(towns, {1: 0, 2: 0, 3: 0})
    give(towns, [3, 1, 4], town=[" town-3 ", "other", " town-4 "])
    assert found(towns) == ((1, 1, 0, 1, 1), [1, 4])


def test_a_row_is_due_by_the_time_to_live_of_its_outcome(towns):
    statuses = {3: "miss", 4: "miss", 5: "error", 6: "skipped"}
    show(towns, {1: 9.9, 2: 10, 3: 0.9, 4: 1, 5: 0, 6: 900}, statuses)
    give(towns, [1, 2, 3, 4, 5, 6])
    assert found(towns) == ((0, 0, 3, 0, 3), [2, 4, 5])
    assert found(towns, ignore_ttl=True) == ((0, 0, 1, 0, 5), [5])


def test_a_row_whose_answer_was_declared_expired_is_due(towns):
    show(towns, {1: 3, 2: 3, 3: 3})
    give(towns, [1, 2, 3])
    marked = {1: 4, 2: 2, 3: 3}  # days ago; 3 in the microsecond of the answer
    for number, days in marked.items():
        mark = StoredAnswer(key(number), "expired", None, NOW - round(days * 86_400e6), "refresh-1")
        towns.folder.write_part("refresh-1", f"0-0-{number}", [mark])
    assert found(towns) == ((0, 0, 2, 0, 1), [2, 3])
    compact(towns.folder, now_us=NOW)
    assert found(towns) == found(towns, ignore_ttl=True) == ((0, 0, 2, 0, 1), [2, 3])
    compact(towns.folder, now_us=NOW + 365 * 86_400_000_000)  # the table may run rarely
    assert found(towns) == ((0, 0, 2, 0, 1), [2, 3])


def test_a_changed_lookup_makes_all_rows_new_and_a_changed_ttl_none(towns):
    show(towns, {1: 0, 2: 0})
    give(towns, [1, 2])
    declare(towns, version=2)
    assert found(towns) == ((2, 0, 0, 0, 0), [1, 2])
    declare(towns)
    towns.declare_too(
        "towns = replace(towns, lookups=[replace(weather, ttl=Ttl(ok=timedelta(days=9)))])"
    )
    assert found(towns) == ((0, 0, 0, 0, 2), [])


def test_a_ttl_in_a_request_does_not_count_as_the_declared_ttl(towns):
    def give_ttl(days):
        body = f'{{"town": "{{town}}", "ttl": {{"days": {days}}}}}'
        towns.declare_too(
            f"towns = replace(towns, lookups=[replace(weather, request='POST /', body={body})])"
        )

    give_ttl(1)
    show(towns, {1: 0, 2: 0})
    give(towns, [1, 2])
    assert found(towns) == ((0, 0, 0, 0, 2), [])
    give_ttl(2)
    assert found(towns) == ((2, 0, 0, 0, 0), [1, 2])


@everywhere("towns", on_store=pytest.mark.proof)
def test_rows_of_a_run_killed_after_its_commit_are_compared_too(towns):
    record = show(towns, {1: 0, 2: 0})
    run_records.save(dataclasses.replace(record, state="written", published_version=None))
    give(towns, [1, 3])
    assert found(towns) == ((1, 0, 0, 1, 1), [3])


NAN = float("nan")
LISTS = pa.list_(pa.struct([("a", pa.int32())]))
FLOATS = pa.struct([("a", pa.list_(pa.float64()))])
IN_OTHER_CASE = pa.struct([("A", pa.list_(pa.float64()))])


@pytest.mark.parametrize(
    ("before", "now", "differ"),
    [
        (pa.array([1.0, NAN, None, 1.0]), pa.array([1.0, NAN, None, None]), [4]),
        (pa.array(["", None, "x", "x"]), pa.array(["", None, "", "x"]), [3]),
        (
            pa.array([[], None, [{"a": 1}], [{"a": 1}]], LISTS),
            pa.array([[], None, [{"a": 1}], [None]], LISTS),
            [4],
        ),
        (
            pa.array([{"a": [NAN]}, {"a": [1.0]}, None, {"a": [NAN]}], FLOATS),
            pa.array([{"A": [NAN]}, {"A": [1.0]}, None, {"A": [1.0]}], IN_OTHER_CASE),
            [4],
        ),
        (pa.array([1, 2, 3, 4], pa.int32()), pa.array([1, 2, 3, 5], pa.int64()), [4]),
    ],
)
def test_a_row_is_changed_if_a_value_differs(towns, before, now, differ):
    show(towns, dict.fromkeys(range(1, 5), 0), more=before)
    give(towns, [1, 2, 3, 4], more=now)
    assert found(towns) == ((0, len(differ), 0, 0, 4 - len(differ)), differ)


def test_ids_of_another_type_than_the_published_make_all_rows_new(towns):
    show(towns, {1: 0, 2: 0})
    give(towns, [1, 2], number=pa.array([NOW, NOW + 1], pa.timestamp("us", "UTC")))
    counts, rows = found(towns)
    assert (counts, len(rows)) == ((2, 0, 0, 0, 0), 2)


@pytest.mark.parametrize("went", ["went", "_went"])
def test_a_new_or_removed_column_changes_the_rows_that_have_a_value_in_it(towns, went):
    show(towns, {1: 0, 2: 0, 3: 0}, **{went: pa.array([1, None, None])})
    give(towns, [1, 2, 3], came=pa.array([None, 2, None], pa.int64()))
    assert found(towns) == ((0, 2, 0, 0, 1), [1, 2])


@pytest.mark.parametrize(
    ("numbers", "message"),
    [
        (
            [1, None],
            (
                "row_id: number: 'number' is null in 1 of 2 rows; with rows=\"changed\" each "
                "row needs an id"
            ),
        ),
        (
            [1, 2, 1],
            (
                'row_id: number: several rows have 1; with rows="changed" an id is of one row: '
                "name the columns"
            ),
        ),
    ],
)
def test_an_id_that_is_null_or_repeats_is_refused_before_a_call(towns, numbers, message):
    give(towns, numbers)
    with pytest.raises(DeclarationError, match=re.escape(message)):
        found(towns)


@pytest.mark.parametrize("fields", [{"every": "day"}, {"row_id": []}, {"rows": "new"}])
def test_changed_rows_need_row_ids_and_a_table_without_days(fields):
    with pytest.raises(DeclarationError, match="rows is "):
        Input(**{"path": "raw", "every": ["all"], "row_id": ["id"], "rows": "changed"} | fields)


@everywhere("towns", on_store=pytest.mark.proof)
def test_a_day_published_since_the_comparison_is_not_replaced(towns):
    show(towns, {1: 0})
    give(towns, [1, 2])
    changed = find_changes(
        towns.enrichment, find_input(towns.enrichment, "all"), "all", clock=lambda: NOW
    )
    show(towns, {1: 0, 2: 0}, run_id="r2")
    late = towns.written("all", [2], "r3", {})
    with pytest.raises(PublishConflict, match="another run published all of towns meanwhile"):
        publish(dataclasses.replace(late, facts=with_kept_rows(late.facts, changed, ThreadStage())))


def never(_day, _run_id):
    raise AssertionError("Spark was started")


def pipeline_without_spark(towns):
    return DayPipeline(
        reference="declared.towns:towns",
        enrichment=towns.enrichment,
        quality=DayQuality(),
        submit=ScriptedSubmit(enrichment=towns.enrichment, script=never),
    )


def test_an_unchanged_table_starts_no_spark_and_no_commit(towns):
    record = show(towns, {1: 0, 2: 0})
    give(towns, [2, 1])
    pipeline = pipeline_without_spark(towns)
    (outcome,) = pipeline.run(["all"])
    assert line(outcome) == (
        "all  published   0 rows (0 new, 0 changed, 0 expired, 0 gone, 2 kept), 0 calls, 0 answers "
        f"from the ledger; version {record.published_version}"
    )
    assert describe_result("towns", outcome)["figures"]["changes"]["kept"] == 2
    assert DeltaTable("data/published/towns").version() == record.published_version
    judged_otherwise = compare(
        dataclasses.replace(towns.enrichment, tolerance=Tolerance(error=0.1)), "all"
    )
    assert (judged_otherwise.changes.kept, judged_otherwise.input_day.rows) == (2, 0)


def test_an_unchanged_table_gets_a_summary_that_failed_before(towns):
    record = show(towns, {1: 0, 2: 0})
    give(towns, [2, 1])
    pipeline = pipeline_without_spark(towns)
    made = [outcome.summaries for _ in range(2) for outcome in pipeline.run(["all"])]
    assert made == [{"by_town": 2}, {}]
    assert DeltaTable("data/published/by_town").to_pyarrow_table().num_rows == 2
    assert DeltaTable("data/published/towns").version() == record.published_version


@pytest.mark.parametrize("give", [give, give_as_csv])
def test_the_program_uses_the_comparison_of_the_command_unless_the_input_changed(
    towns, tmp_path, give
):
    show(towns, {1: 0, 2: 0, 3: 0})
    give(towns, [1, 2, 4])
    changed, handed = compare(towns.enrichment, "all", clock=lambda: NOW), tmp_path / "all"
    assert taken_over(handed, find_input(towns.enrichment, "all")) is None
    hand_over(changed, handed)
    assert taken_over(handed, find_input(towns.enrichment, "all")) == changed
    assert changed == find_changes(
        towns.enrichment, find_input(towns.enrichment, "all"), "all", clock=lambda: NOW
    )
    give(towns, [1, 2, 5])
    assert taken_over(handed, find_input(towns.enrichment, "all")) is None


def test_a_plan_counts_only_keys_of_changed_rows(towns):
    declare(towns, keys={"town": "town"})
    show(towns, {1: 0, 2: 0, 3: 0})
    give(towns, [1, 2, 4], town=["new", " town-2 ", " town-4 "])
    planned = estimate(lambda: None, towns.enrichment, ["all"])
    assert (
        "  rows               2   because: 1 new, 1 changed, 0 expired, 1 gone, 1 kept\n"
        in estimate_text(planned)
    )
    assert planned.lookups[0].asked == 2


def forget(number):
    assert main(["forget", "weather", "--package", "declared", "--key", f"town=town-{number}"]) == 0


def test_a_forgotten_row_comes_back_as_new_and_forget_removes_kept_rows(towns):
    first = show(towns, {1: 0, 2: 0, 3: 0})
    forget(1)
    give(towns, [1, 2, 3])
    assert found(towns) == ((1, 0, 0, 0, 2), [1])
    changed = find_changes(
        towns.enrichment, find_input(towns.enrichment, "all"), "all", clock=lambda: NOW
    )
    record = towns.written("all", [1], "r2", {})
    facts = dataclasses.replace(
        record.facts,
        started_at=first.facts.started_at,
        finished_at=first.facts.finished_at,
        input_columns=("number", "town"),
    )
    publish(dataclasses.replace(record, facts=with_kept_rows(facts, changed, ThreadStage())))
    assert (
        numbers_in("data/published/towns") == numbers_in("data/published/towns__audit") == [1, 2, 3]
    )
    forget(2)
    assert numbers_in("data/published/towns") == numbers_in("data/published/towns__audit") == [1, 3]
    assert found(towns) == ((1, 0, 0, 0, 2), [2])


def numbers_in(table):
    return sorted(DeltaTable(table).to_pyarrow_table()["number"].to_pylist())


# -- the rows that stay
# ------------------------------------------------------------------------------------------------
def test_a_large_file_that_stays_whole_is_not_written_again_and_small_ones_are_joined(
    tmp_path, monkeypatch
):
    monkeypatch.setattr(copied_rows, "LEAST_ROWS", 3)
    sources = []
    for number, rows in enumerate([3, 2, 3, 1]):
        source = tmp_path / f"{number}.parquet"
        pq.write_table(pa.table({"n": range(10 * number, 10 * number + rows)}), source)
        sources.append((str(source), pa.array([True] * rows)))
    sources[2] = sources[2][0], pa.array([False, True, False])
    kept = keep_rows(sources, str(tmp_path / "kept"), ThreadStage().run)
    assert [pq.read_table(file.place)["n"].to_pylist() for file in kept] == [
        [0, 1, 2],
        [10, 11, 21, 30],
    ]
    assert [file.rows for file in kept] == [3, 4]
    assert Path(kept[0].place).stat().st_ino == (tmp_path / "0.parquet").stat().st_ino
