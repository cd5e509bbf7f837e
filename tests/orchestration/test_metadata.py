"""What the page of a day shows is in the record of its run, under keys that plot over the days."""

import dataclasses

import pytest

from data_quality.catalogue import named_expectations
from data_quality.next_step import next_step
from enrichments.flights import flights
from jobs.declare.enrichment import Expectation
from jobs.schema.records import (
    Billed,
    DayFacts,
    DayMetrics,
    DayRecord,
    DeclaredFacts,
    LookupMetrics,
    RequestMetrics,
    Verdict,
)
from jobs.tables.records import run_records
from orchestration.dagster.assets.metadata import figures_metadata, runbook
from orchestration.dagster.declared import Declared

WEATHER = LookupMetrics(
    name="weather", outcomes={"ok": 90, "miss": 7, "timeout": 3}, calls=100, retried=4, wall_s=2.0,
    limit_s=1.6, latency_p50_ms=20.0, latency_p99_ms=99.0, from_ledger=5, shared=6, stored=97,
    throttled_s=0.5, down_s=0.25, limited_by="service",
    billed=Billed(104, 7, "request", "0.4160", "USD", saved="0.0200"), throttled=2,
    oldest_answer_at="2026-11-08T14:16:00+00:00",
)  # fmt: skip


def record(
    run_id: str = "now", started_at: str = "2026-11-20T02:15:00+00:00", fingerprint: str = "a"
) -> DayRecord:
    return find_record(
        dataclasses.replace(flights.facts(), fingerprint=fingerprint), run_id, started_at
    )


def find_record(declared: DeclaredFacts, run_id: str, started_at: str) -> DayRecord:
    facts = DayFacts(
        declared, "2013-01-10", run_id, (), (), "", (), (), started_at, "2026-11-20T02:16:00+00:00"
    )
    figures = DayMetrics(100, 100, 2, (WEATHER,), job_s=2.0)
    return DayRecord(facts, figures, state="published", published_version=7)


@pytest.fixture(autouse=True)
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)


def test_the_metadata_of_a_day_are_its_figures():
    assert figures_metadata(record()) == {
        "rows_in": 100, "dead_letters": 3, "job_s": 2.0, "checks": "0 passed", "rows_late": 2,
        "published_version": 7, "weather/rows_ok": 90, "weather/rows_miss": 7,
        "weather/rows_timeout": 3, "weather/rows_error": 0, "weather/requests_sent": 100,
        "weather/requests_retried": 4, "weather/answers_from_ledger": 5, "weather/cost_usd": 0.416,
        "weather/latency_p99_ms": 99.0, "weather/limited_by": "service",
    }  # fmt: skip


def test_a_rare_outcome_has_a_figure_on_the_days_that_it_occurs():
    rare = dataclasses.replace(WEATHER, outcomes={"ok": 98, "skipped": 1, "unknown": 1})
    figures = dataclasses.replace(record().figures, lookups=(rare,))
    reported = figures_metadata(dataclasses.replace(record(), figures=figures))
    rows = {key: value for key, value in reported.items() if key.startswith("weather/rows_")}
    assert sum(rows.values()) == 100
    assert rows["weather/rows_skipped"] == rows["weather/rows_unknown"] == 1
    assert "weather/rows_fallback" not in rows


def test_unread_files_beside_the_input_are_named():
    assert "not_read" not in figures_metadata(record())
    facts = dataclasses.replace(record().facts, unread=("late/", "2 rows with date = null"))
    reported = figures_metadata(dataclasses.replace(record(), facts=facts))
    assert reported["not_read"] == "late/, 2 rows with date = null"


def test_requests_are_the_counted_requests_if_counted():
    batched = dataclasses.replace(WEATHER, requests=RequestMetrics(7, 2, 1, 5, 110))
    figures = dataclasses.replace(record().figures, lookups=(batched,))
    reported = figures_metadata(dataclasses.replace(record(), figures=figures))
    assert [reported[f"weather/requests_{name}"] for name in ("sent", "retried")] == [7, 2]


def test_a_lookup_that_was_never_called_has_no_times_and_no_costs():
    idle = dataclasses.replace(WEATHER, latency_p99_ms=None, limited_by="", billed=None)
    figures = dataclasses.replace(record().figures, lookups=(idle,))
    reported = figures_metadata(
        dataclasses.replace(record(), figures=figures, published_version=None)
    )
    absent = ("weather/latency_p99_ms", "weather/limited_by", "weather/cost_usd")
    assert [key for key in (*absent, "published_version") if key in reported] == []


def test_a_changed_declaration_is_reported_at_the_first_run_that_has_it():
    assert "declaration_changed" not in figures_metadata(record())
    run_records.save(record("before", "2026-11-19T02:15:00+00:00"))
    assert "declaration_changed" not in figures_metadata(record())
    weather = dataclasses.replace(flights.lookups[0], timeout=9.0, version=2)
    changed = dataclasses.replace(
        flights, lookups=[weather, flights.lookups[1]], publish_by="07:00"
    ).facts()
    reported = figures_metadata(find_record(changed, "now", "2026-11-20T02:15:00+00:00"))
    assert reported["declaration_changed"] == (
        "lookups.weather.timeout, lookups.weather.version, publish_by"
    )
    runs = [
        record("before", "2026-11-19T02:15:00+00:00"),
        find_record(changed, "later", "2026-11-21T02:15:00+00:00"),
    ]
    # of a run that is told late
    assert "declaration_changed" not in figures_metadata(record(), runs)


def test_a_runbook_is_linked_where_one_is_declared_and_is_no_part_of_the_declaration_that_changes():
    with_runbook = dataclasses.replace(flights, runbook="https://wiki.example/flights")
    assert (
        runbook(Declared("a:flights", with_runbook))["runbook"].url
        == "https://wiki.example/flights"
    )
    assert runbook(Declared("a:flights", flights)) == {}
    assert (with_runbook.fingerprint, with_runbook.facts()) == (
        flights.fingerprint,
        flights.facts(),
    )


def step_after(red: str, **declared: object) -> str:
    """The next step of a day of flights, declared otherwise in this, that this check holds back."""
    facts = dataclasses.replace(flights, **declared).facts()
    verdicts = (Verdict(red, "failed", "error", "0 lost"),)
    return next_step(
        dataclasses.replace(
            find_record(facts, "now", "2026-11-20"), verdicts=verdicts, state="held back"
        )
    )


def test_a_day_held_back_is_run_again_by_its_job_or_command():
    job, command = (
        "the job flights_enriched_nightly",
        "`tidegate run flights_enriched --day 2013-01-10`",
    )
    assert step_after("every_row_once") == (
        f"Fix the cause, then run the day again: {command}, {job} in Dagster, or clear the day's "
        "task in Airflow."
    )


def test_the_next_step_after_too_many_errors_is_a_replay():
    replay = (
        "or run the day in the mode replay: by the job flights_enriched_nightly in Dagster, by the "
        "DAG flights_enriched in Airflow"
    )
    assert replay in step_after("weather__errors_tolerated")
    assert "replay" not in step_after("weather__errors_tolerated", ledger=None)
    without_letters = [dataclasses.replace(lookup, on_timeout="null") for lookup in flights.lookups]
    assert "replay" not in step_after("weather__errors_tolerated", lookups=without_letters)


def test_the_next_step_after_wrong_answers_names_the_refresh_of_stored_answers():
    own = Expectation("expect_column_values_to_be_in_set", column="visibility_m", value_set=[1])
    ((name, _),) = named_expectations(dataclasses.replace(flights, expectations=[own]).facts())
    assert "`tidegate refresh`, the job tidegate_refresh_answers in Dagster" in step_after(
        "weather__answers_in_range"
    )
    assert "tidegate_refresh_answers" in step_after(name, expectations=[own])
    assert "tidegate_refresh_answers" not in step_after("weather__answers_in_range", ledger=None)
