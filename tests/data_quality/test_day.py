import datetime as dt
import json
from dataclasses import replace

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest
from honest_day import DAY, PLANE, WEATHER, honest_day

from data_quality.catalogue import checks
from data_quality.checks.order_held import OrderHeld
from data_quality.day import check
from data_quality.rows.run_output import _in_order_of_writing
from data_quality.rows.written_day import WrittenDay
from data_quality.validated_day import judge_validated
from jobs.schema.records import (
    DayMetrics,
    DayRecord,
    ExpectationFacts,
    LookupMetrics,
    RequestMetrics,
    RowChanges,
)

pytestmark = pytest.mark.spark


def written(facts):
    return pa.concat_tables([pq.read_table(file, partitioning=None) for file in facts.files])


def judge(spark, facts, figures=None, table=None):
    day = WrittenDay.of_table(
        spark, facts, written(facts) if table is None else table, metrics=figures
    )
    return {
        verdict.check: verdict for verdict in judge_validated(checks(facts.declared), day).verdicts
    }


def with_values(table, name, values):
    return table.set_column(table.schema.get_field_index(name), name, values)


@pytest.mark.proof
def test_a_missing_column_turns_only_the_checks_that_read_the_column_red(spark, tmp_path):
    facts, _ = honest_day(tmp_path, "ordered", sizes=(30,)).write()
    found = judge(spark, facts, table=written(facts).drop_columns(["_plane_latency_ms"]))
    red = {name: verdict.sentence for name, verdict in found.items() if verdict.status == "failed"}
    needed = {"plane__time_limit_held", "plane__answers_match", "outcomes_add_up"}
    assert red == dict.fromkeys(needed, "the files have no column _plane_latency_ms")
    assert all(found[name].holds_back for name in needed)


def test_a_check_that_breaks_on_the_files_is_red_and_the_other_checks_run(
    spark, tmp_path, monkeypatch
):
    def broken(*_):
        raise TypeError("no number")

    monkeypatch.setattr(OrderHeld, "summarize", broken)
    facts, _ = honest_day(tmp_path, "ordered", sizes=(30,)).write()
    found = judge(spark, facts)
    order = found.pop("order_held")
    assert (order.status, order.sentence) == ("failed", "the files cannot be judged: no number")
    assert found["watermarks_not_crossed"].status == found["every_row_once"].status == "passed"


def test_a_check_that_cannot_read_a_file_names_the_cause_and_the_other_checks_run(
    spark, tmp_path, monkeypatch
):
    def broken(*_):
        raise OSError("the disk is gone")

    monkeypatch.setattr(OrderHeld, "summarize", broken)
    facts, _ = honest_day(tmp_path, "ordered", sizes=(30,)).write()
    found = judge(spark, facts)
    order = found.pop("order_held")
    assert (order.status, order.sentence) == ("not_run", "not run: the disk is gone")
    assert found["watermarks_not_crossed"].status == found["every_row_once"].status == "passed"


def test_outcome_counts_that_differ_from_the_files_are_red(spark, tmp_path):
    facts, figures = honest_day(tmp_path, event_time=False, sizes=(40,), lookups=(PLANE,)).write()
    (plane,) = figures.lookups
    wrong = replace(
        figures,
        lookups=(replace(plane, outcomes=plane.outcomes | {"ok": plane.outcomes["ok"] + 2}),),
    )
    verdict = judge(spark, facts, wrong)["outcomes_add_up"]
    assert verdict.status == "failed"
    assert verdict.sentence.startswith(
        f"the run counted {plane.outcomes['ok'] + 2} ok for plane, the files have"
    )


def test_a_share_of_timeouts_and_errors_above_the_tolerance_is_red_with_causes(spark, tmp_path):
    day = honest_day(
        tmp_path, event_time=False, sizes=(200,), timeout_tolerance=0.001, error_tolerance=0.001
    )
    facts, _ = day.write()
    table, error = written(facts), "_plane_error"
    date = "expected DATE (such as 2013-01-10 or 20130110), got '20135'"
    typed = pc.replace_substring(table[error], "error", date)
    found = judge(spark, facts, table=with_values(table, error, typed))
    red = {name for name, verdict in found.items() if verdict.status == "failed"}
    assert red == {
        "weather__timeouts_tolerated",
        "plane__timeouts_tolerated",
        "plane__errors_tolerated",
    }
    errors = found["plane__errors_tolerated"]
    assert len(errors.evidence) == min(10, errors.unexpected_count)
    assert f"{errors.unexpected_count} times planes: expected DATE, got '…'" in errors.sentence


def test_an_answer_of_an_undeclared_type_is_red(spark, tmp_path):
    facts, _ = honest_day(tmp_path, event_time=False, sizes=(30,), lookups=(PLANE,)).write()
    table = written(facts)
    seats = with_values(table, "seats", table["seats"].cast(pa.string()))
    verdict = judge(spark, facts, table=seats)["plane__answers_in_range"]
    assert (verdict.status, verdict.sentence) == ("failed", "seats is string, declared int")


def test_an_answer_out_of_range_is_reported_with_its_bounds_and_its_value(spark, tmp_path):
    facts, _ = honest_day(tmp_path, event_time=False, sizes=(30,), lookups=(WEATHER,)).write()
    table = written(facts)
    hot = with_values(
        table, "temp_c", pc.if_else(pc.equal(table["_weather_status"], "ok"), 99.5, table["temp_c"])
    )
    sentence = judge(spark, facts, table=hot)["weather__answers_in_range"].sentence
    assert (
        " with an answer out of range (temp_c -60 .. 60, visibility_m >= 0) or out of place; "
        "first: "
    ) in sentence
    assert ", temp_c 99.5" in sentence


def test_expectations_of_the_user_are_judged_with_the_built_in_checks(spark, tmp_path):
    expectations = (
        ExpectationFacts("expect_column_values_to_not_be_null", {"column": "departure"}, "warn"),
        ExpectationFacts(
            "expect_column_values_to_be_between", {"column": "distance", "min_value": 0}
        ),
        ExpectationFacts("expect_column_to_be_lucky", {"column": "distance"}),
        ExpectationFacts(
            "expect_column_values_to_be_between", {"column": "distance", "smallest": 0}
        ),
        ExpectationFacts("expect_column_values_to_not_be_null", {"column": "not_there"}),
    )
    facts, _ = honest_day(
        tmp_path, event_time=False, sizes=(200,), lookups=(PLANE,), expectations=expectations
    ).write()
    found = judge(spark, facts)
    null_times = found["expect_column_values_to_not_be_null__departure"]
    assert (null_times.status, null_times.severity, null_times.holds_back) == (
        "failed",
        "warn",
        False,
    )
    assert 0 < null_times.unexpected_count < null_times.element_count == 200
    assert found["expect_column_values_to_be_between__distance"].status == "passed"
    unknown = found["expect_column_to_be_lucky__distance"]
    assert (unknown.status, unknown.sentence) == (
        "not_run",
        "not run: Great Expectations has no expect_column_to_be_lucky",
    )
    assert "smallest" in found["expect_column_values_to_be_between__distance_2"].sentence
    assert "not_there" in found["expect_column_values_to_not_be_null__not_there"].sentence
    assert {found[name].status for name in found if "not_there" in name or name.endswith("_2")} == {
        "not_run"
    }


@pytest.mark.proof
def test_an_expectation_whose_result_is_not_json_is_judged_as_any_other(spark, tmp_path):
    ranges = {"quantiles": [0.5], "value_ranges": [[0, 1]]}
    expectations = (
        ExpectationFacts(
            "expect_column_quantile_values_to_be_between",
            {"column": "distance", "quantile_ranges": ranges},
        ),
    )
    day = honest_day(
        tmp_path, event_time=False, sizes=(200,), lookups=(PLANE,), expectations=expectations
    )
    found = judge(spark, day.write()[0])
    assert found.pop("expect_column_quantile_values_to_be_between__distance").status == "failed"
    assert found["every_row_once"].status == "passed"


def test_a_red_expectation_names_its_first_rows(spark, tmp_path):
    query = "SELECT flight, distance FROM {batch} WHERE distance > 1000"
    expectations = (
        ExpectationFacts("unexpected_rows_expectation", {"unexpected_rows_query": query}),
        ExpectationFacts(
            "expect_column_values_to_be_between", {"column": "distance", "max_value": 1_000}
        ),
    )
    facts, _ = honest_day(
        tmp_path, event_time=False, sizes=(200,), expectations=expectations
    ).write()
    found = judge(spark, facts)
    by_query = found["unexpected_rows_expectation"]
    by_column = found["expect_column_values_to_be_between__distance"]
    far = written(facts).filter(pc.field("distance") > 1_000).select(["flight", "distance"])
    rows = {tuple(row.values()) for row in far.to_pylist()}
    for verdict in (by_query, by_column):
        assert verdict.unexpected_count == far.num_rows
        named = {(row["flight"], row["distance"]) for row in verdict.evidence}
        assert len(named) == 10
        assert named <= rows
    flight, distance = by_query.evidence[0].values()
    first = f"first: flight {flight}, distance {distance}"
    assert by_query.sentence == f"the query finds {far.num_rows} rows; {first}"
    assert by_column.sentence.startswith(f"{far.num_rows} of 200 unexpected; first: carrier ")


@pytest.mark.proof
def test_a_day_without_rows_passes_value_expectations_and_fails_table_expectations(spark, tmp_path):
    kinds = ("mean_to_be_between", "unique_value_count_to_be_between", "max_to_be_between")
    least = {"min_value": 1}
    expectations = (
        *(
            ExpectationFacts(f"expect_column_{kind}", {"column": "distance"} | least)
            for kind in kinds
        ),
        ExpectationFacts("expect_table_row_count_to_be_between", least),
    )
    facts, _ = honest_day(tmp_path, event_time=False, sizes=(0,), expectations=expectations).write()
    found = {verdict.check: verdict for verdict in check(spark, facts).verdicts}
    judged = {
        name: (verdict.status, verdict.sentence)
        for name, verdict in found.items()
        if "expect_" in name
    }
    assert judged.pop("expect_table_row_count_to_be_between") == ("failed", "observed 0")
    assert set(judged.values()) == {("passed", "the day has no rows to judge")}
    assert len(judged) == len(kinds)


def test_an_expectation_shows_no_personal_key(spark, tmp_path):
    columns = ["_plane_key", "_PLANE_error", "_plane_status"]
    everything = {"unexpected_rows_query": "SELECT * FROM {batch}"}
    day = honest_day(
        tmp_path, event_time=False, sizes=(200,), lookups=(replace(PLANE, hidden_key=True),),
        expectations=(
            *(
                ExpectationFacts("expect_column_values_to_be_null", {"column": name})
                for name in columns
            ),
            ExpectationFacts("unexpected_rows_expectation", everything),
        ),
    )  # fmt: skip
    found = judge(spark, day.write()[0])
    shown = [bool(found[f"expect_column_values_to_be_null__{name}"].evidence) for name in columns]
    assert shown == [False, False, True]
    assert found["unexpected_rows_expectation"].sentence == "the query finds 200 rows"


@pytest.mark.proof
def test_a_personal_value_is_not_in_the_reason_why_an_expectation_could_not_run(spark, tmp_path):
    of_texts = {"column": "carrier", "value_set": [1]}  # which Spark casts to numbers
    day = honest_day(
        tmp_path, event_time=False, sizes=(200,), lookups=(PLANE,), personal=("carrier",),
        expectations=(ExpectationFacts("expect_column_values_to_be_in_set", of_texts),),
    )  # fmt: skip
    facts = day.write()[0]
    not_run = judge(spark, facts)["expect_column_values_to_be_in_set__carrier"]
    texts = day.inputs["part-00000.parquet"]["carrier"].drop_null().to_pylist()
    assert not_run.status == "not_run"
    assert not any(text in not_run.sentence for text in texts)


def keep(
    day: str, *, rows: int, misses: int, state: str = "published", kept: int | None = None
) -> None:
    from pathlib import Path

    facts = honest_day(Path("/nowhere"), sizes=()).facts()
    lookups = (
        LookupMetrics(
            "weather", {"ok": rows - misses, "miss": misses}, rows, 0, 1.0, 1.0, 50.0, 200.0
        ),
    )
    record = DayRecord(
        replace(facts, day=day, changes=None if kept is None else RowChanges(rows, 0, 0, 0, kept)),
        DayMetrics(rows, rows, 0, lookups),
        state=state,
        published_at=day,
    )
    path = Path("data/runs/flights_enriched") / day / "r1.json"
    path.parent.mkdir(parents=True)
    path.write_text(record.to_json())
    (path.parent / "progress.json").write_text(json.dumps({"rows": 5}))


def test_a_day_is_compared_with_the_published_days_before_it(spark, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    day = dt.date.fromisoformat(DAY)
    for back, rows in ((1, 40), (7, 200), (14, 210), (21, 190), (35, 9_000)):
        keep((day - dt.timedelta(days=back)).isoformat(), rows=rows, misses=rows // 2)
    keep((day - dt.timedelta(days=28)).isoformat(), rows=9_000, misses=0, state="held back")
    facts, _ = honest_day(tmp_path, event_time=False, sizes=(100,), miss_change=0.1).write()
    found = judge(spark, facts)
    rows = found["input_day_complete"]
    assert (rows.status, rows.holds_back) == ("failed", False)
    assert rows.sentence == "100 rows; 200 on the same weekday of 3 weeks before"
    misses = found["weather__miss_share_usual"]
    assert (misses.status, misses.severity) == ("failed", "warn")
    assert "50.00% on the 4 days before" in misses.sentence
    assert found["plane__miss_share_usual"].sentence == "not run: no earlier days to compare with"


def test_an_empty_day_that_had_rows_before_warns_also_without_earlier_days(
    spark, tmp_path, monkeypatch
):
    monkeypatch.chdir(tmp_path)
    facts, _ = honest_day(tmp_path, event_time=False, sizes=(0,)).write()

    def judged():
        verdicts = check(spark, facts).verdicts
        return next(verdict for verdict in verdicts if verdict.check == "input_day_complete")

    assert judged().status == "not_run"
    keep(DAY, rows=200, misses=0)
    rows = judged()
    assert (rows.status, rows.holds_back) == ("failed", False)
    assert rows.sentence == "0 rows; 200 rows as the day is published"


def test_a_table_of_changed_rows_that_becomes_empty_warns_of_all_rows_that_readers_had(
    spark, tmp_path, monkeypatch
):
    """Its last run enriched none of them: only rows left it."""
    monkeypatch.chdir(tmp_path)
    facts, _ = honest_day(tmp_path, event_time=False, sizes=(0,)).write()
    keep(DAY, rows=0, misses=0, kept=4)
    verdicts = {verdict.check: verdict for verdict in check(spark, facts).verdicts}
    assert verdicts["input_day_complete"].sentence == "0 rows; 4 rows as the day is published"


def test_a_called_answer_that_is_missing_in_the_ledger_is_reported(spark, tmp_path):
    facts, figures = honest_day(
        tmp_path, event_time=False, sizes=(100,), ledger="data/ledger"
    ).write()
    rows = written(facts).to_pylist()
    answered = {
        name: sum(
            row[f"_{name}_status"] in ("ok", "miss") and row[f"_{name}_source"] == "call"
            for row in rows
        )
        for name in ("weather", "plane")
    }
    counted = {"weather": answered["weather"] - 2, "plane": answered["plane"] + 1}
    figures = replace(
        figures,
        lookups=tuple(replace(lookup, stored=counted[lookup.name]) for lookup in figures.lookups),
    )
    found = judge(spark, facts, figures)
    weather, plane = found["weather__calls_reconciled"], found["plane__calls_reconciled"]
    assert (weather.status, weather.holds_back) == ("failed", False)
    assert weather.sentence.startswith(
        f"2 of {answered['weather']} answers that came by call are not stored"
    )
    assert plane.status == "passed"
    assert plane.sentence.startswith(
        f"all {answered['plane']} answers that came by call are stored; 1 more are"
    )
    sent = {
        "weather": RequestMetrics(9, 0, 0, 9, 500),
        "plane": RequestMetrics(9, 0, 0, 9, answered["plane"] - 1),
    }
    kept = {"stored": 10**6}
    figures = replace(
        figures,
        lookups=tuple(
            replace(lookup, requests=sent[lookup.name], **kept) for lookup in figures.lookups
        ),
    )
    found = judge(spark, facts, figures)
    assert found["plane__calls_reconciled"].sentence == (
        f"1 of {answered['plane']} answers that came by call have no request; "
        f"9 requests with {answered['plane'] - 1} keys"
    )
    again = tuple(replace(lookup, rows_called=120, keys_called=115) for lookup in figures.lookups)
    paid_twice = judge(spark, facts, replace(figures, lookups=again))["weather__calls_reconciled"]
    assert (paid_twice.status, paid_twice.sentence) == (
        "failed",
        "5 of 120 calls repeat one of this run's 115 keys",
    )
    lost = sum(row["_weather_status"] == "skipped" for row in rows)
    table = written(facts)
    skipped = pc.equal(table["_weather_status"], "skipped")
    statuses = pc.replace_substring(table["_weather_status"], "skipped", "unknown")
    errors = pc.if_else(
        skipped, "asked before; the call must not be made twice", table["_weather_error"]
    )
    unknown = with_values(with_values(table, "_weather_status", statuses), "_weather_error", errors)
    found = judge(spark, facts, table=unknown)
    # nobody gave the counts of the ledger
    assert found["plane__calls_reconciled"].status == "not_run"
    assert found["outcomes_add_up"].status == "passed"
    assert f"{lost} unknown" in found["outcomes_add_up"].sentence
    assert found["weather__errors_tolerated"].sentence.startswith("unknown" if lost else "error")


def test_charts_count_every_row_that_needed_a_call(spark, tmp_path):
    facts, figures = honest_day(tmp_path, "unordered", sizes=(200, 0, 50)).write()
    picture = check(spark, facts, figures).pictures["weather"]
    called = sum(bool(row["_weather_attempts"]) for row in written(facts).to_pylist())
    assert sum(bar["rows"] for bar in picture["latency"]) == called
    assert sum(sum(slot["outcomes"].values()) for slot in picture["slots"]) == called
    assert json.loads(json.dumps(picture)) == picture


def test_the_files_of_a_task_are_ordered_by_their_numbers_beyond_999():
    names = [f"file:/x/part-00001-ab-c{number:03d}.snappy.parquet" for number in (0, 2, 999, 1000)]
    assert sorted([names[3], names[2], names[1], names[0]], key=_in_order_of_writing) == names
