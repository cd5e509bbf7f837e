"""The jobs that a person starts: replay and remap of a day, plan, refresh of answers, compaction,
vacuum.
"""

import dataclasses
import json

import dagster as dg
import pytest
from deltalake import DeltaTable

from demo.run_days import run_days
from enrichments.flights import flights
from orchestration.common.modes import Mode
from orchestration.dagster.assets.day_config import MODE, config_of_mode
from orchestration.dagster.declared import Declared
from orchestration.dagster.definitions import build_definitions
from orchestration.dagster.maintenance import DAYS_TO_RUN
from orchestration.dagster.resources import spark_program

pytestmark = [pytest.mark.spark, pytest.mark.proof]

DAY = "2013-01-10"
TABLE = "data/published/flights_enriched"


@pytest.fixture(scope="module")
def definitions(dagster_project):
    return build_definitions([Declared("enrichments.flights:flights", flights)], spark_program())


@pytest.fixture(scope="module")
def published(dagster_project, definitions):
    """A day that was published by the nightly job."""
    outcome = dagster_project.run(definitions, DAY)
    assert outcome.success, outcome
    return outcome


def start(project, definitions, mode: Mode, day: str = DAY):
    outcomes = []
    declared = Declared("enrichments.flights:flights", flights)
    run_days(
        definitions.resolve_job_def("flights_enriched_nightly"),
        [day],
        project.instance,
        outcomes.append,
        config_of_mode(declared, mode),
    )
    return outcomes[0]


def say(
    project, definitions, job: str, config: dict | None = None
) -> tuple[dg.ExecuteInProcessResult, list[str]]:
    """Runs a job without a day. Returns the run and the lines of its log."""
    result = definitions.resolve_job_def(job).execute_in_process(
        run_config=config, instance=project.instance
    )
    return result, project.log(result.run_id)


def test_a_replay_of_a_day_without_dead_letters_makes_no_call_and_keeps_the_day(
    dagster_project, definitions, published
):
    version, calls = DeltaTable(TABLE).version(), len(dagster_project.service.calls())
    before = dagster_project.materialized(published.run_id)["flights_enriched"]
    assert before["dead_letters"] == 0
    outcome = start(dagster_project, definitions, Mode.replay)
    assert outcome.success, outcome
    assert (DeltaTable(TABLE).version(), len(dagster_project.service.calls())) == (version, calls)
    assert (
        dagster_project.materialized(outcome.run_id)["flights_enriched"]["dagster/row_count"]
        == before["rows_in"]
    )
    assert (
        "no dead letters: nothing was called"
        in dagster_project.observed(outcome.run_id)[-1]["reason"]
    )


def test_a_replay_of_a_day_that_was_never_run_says_what_to_do(
    dagster_project, definitions, published
):
    outcome = start(dagster_project, definitions, Mode.replay, "2013-01-12")
    assert "2013-01-12 was never run to its end" in outcome.reason
    assert outcome.next_step == "Run the job flights_enriched_nightly for the day."


def test_a_remap_republishes_a_day_from_stored_responses_without_a_call(
    dagster_project, definitions, published
):
    version, calls = DeltaTable(TABLE).version(), len(dagster_project.service.calls())
    outcome = start(dagster_project, definitions, Mode.remap)
    assert outcome.success, outcome
    assert len(dagster_project.service.calls()) == calls
    assert DeltaTable(TABLE).version() == version + 1
    again = dagster_project.materialized(outcome.run_id)["flights_enriched"]
    before = dagster_project.materialized(published.run_id)["flights_enriched"]
    assert again["weather/requests_sent"] == again["plane/requests_sent"] == 0
    outcomes = [name for name in before if "/rows_" in name]
    assert "weather/rows_ok" in outcomes
    assert [again[name] for name in outcomes] == [before[name] for name in outcomes]


def test_a_run_with_its_mode_only_in_a_tag_is_refused_before_any_call(dagster_project, definitions):
    calls = len(dagster_project.service.calls())
    result = definitions.resolve_job_def("flights_enriched_nightly").execute_in_process(
        partition_key=DAY, tags={MODE: "remap"}, instance=dagster_project.instance,
        raise_on_error=False,
    )  # fmt: skip
    failure = result.failure_data_for_node("flights_enriched").user_failure_data
    assert failure.description == (
        "Not run: the tag tidegate/mode is remap, and no config has a mode, so the run would call "
        "as every night. Give it the config {ops: {flights_enriched: {config: {mode: remap}}}}."
    )
    assert len(dagster_project.service.calls()) == calls


def test_a_refresh_marks_matching_answers_and_requests_their_days(
    dagster_project, definitions, published
):
    config = {
        "ops": {
            "tidegate_mark_answers": {
                "config": {"lookup": "weather", "where": "answer.temp_c < -100"}
            }
        }
    }
    _, lines = say(dagster_project, definitions, "tidegate_refresh_answers", config)
    assert "0 stored answers of weather with answer.temp_c < -100" in lines
    config["ops"]["tidegate_mark_answers"]["config"] = {
        "lookup": "weather",
        "where": "answer.temp_c > -100",
        "do": True,
    }
    result, lines = say(dagster_project, definitions, "tidegate_refresh_answers", config)
    assert f"flights_enriched: 1 day uses them: {DAY}" in lines
    assert json.loads(dagster_project.instance.get_run_by_id(result.run_id).tags[DAYS_TO_RUN]) == {
        "flights_enriched": [DAY]
    }
    # asks anew for what was marked
    assert start(dagster_project, definitions, Mode.refreshed).success


def test_a_refresh_names_the_days_that_dagster_has_no_partition_of(dagster_project, published):
    later = dataclasses.replace(flights, start="2013-01-11")
    of_later = build_definitions([Declared("enrichments.flights:flights", later)], spark_program())
    op = {"config": {"lookup": "weather", "where": "answer.temp_c > -100"}}
    config = {"ops": {"tidegate_mark_answers": op}}
    _, lines = say(dagster_project, of_later, "tidegate_refresh_answers", config)
    assert (
        f"flights_enriched: Dagster has no partition {DAY}, and starts none: "
        "`tidegate run flights_enriched --day DAY` runs it."
    ) in lines


def test_jobs_for_plan_compaction_and_vacuum_report_their_results(
    dagster_project, definitions, published
):
    plan = {
        "ops": {"tidegate_count_keys": {"config": {"enrichment": "flights_enriched", "first": DAY}}}
    }
    _, lines = say(dagster_project, definitions, "tidegate_plan", plan)
    assert any("distinct keys" in line for line in lines)
    result, lines = say(dagster_project, definitions, "tidegate_maintenance")
    assert result.success
    assert any(line.startswith("weather: ") for line in lines)
    assert any(line.startswith(f"{TABLE}: ") for line in lines)


def test_the_streams_job_publishes_new_input(dagster_project, definitions, published):
    config = {
        "ops": {"tidegate_enrich_what_is_new": {"config": {"enrichment": "flights_enriched"}}}
    }
    result, lines = say(dagster_project, definitions, "tidegate_stream", config)
    assert result.success
    days = [line.split()[2] for line in lines if line.startswith("batch 0")]
    # the first is published already
    assert days == ["2013-01-11", "2013-01-12", "2013-01-13", "2013-01-14"]
    _, lines = say(dagster_project, definitions, "tidegate_stream", config)
    assert "0 batches, 0 rows" in lines
