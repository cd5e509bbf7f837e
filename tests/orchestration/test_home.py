"""Dagster's storage: SQLite on one machine, PostgreSQL for a team; the same rules for both."""

import dagster as dg
import pytest
import yaml

from orchestration.dagster.home import ONE_MACHINE, TEAM, dagster_home
from orchestration.dagster.sensors.dead_runs import end_dead_runs
from orchestration.definitions import defs
from tests.orchestration.test_outages import DAY, asked_again, tell


@pytest.fixture
def team(tmp_path, monkeypatch, postgres):
    """An instance with the team's settings, on a real PostgreSQL."""
    monkeypatch.chdir(tmp_path)
    access = {
        "host": postgres.host,
        "port": postgres.port,
        "user": postgres.user,
        "password": postgres.password,
    }
    for name, value in (access | {"db": postgres.new_database()}).items():
        monkeypatch.setenv(f"TIDEGATE_PG_{name.upper()}", str(value))
    monkeypatch.setenv("DAGSTER_HOME", str(dagster_home()))
    with dg.DagsterInstance.get() as instance:
        yield instance


def test_a_single_machine_needs_no_server_and_a_team_configures_a_database(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("TIDEGATE_PG_HOST", raising=False)
    assert (dagster_home() / "dagster.yaml").resolve() == ONE_MACHINE
    monkeypatch.setenv("TIDEGATE_PG_HOST", "db.example")
    assert (dagster_home() / "dagster.yaml").resolve() == TEAM


def test_a_file_of_settings_that_the_user_wrote_stays(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    settings = dagster_home() / "dagster.yaml"
    settings.unlink()
    settings.write_text("run_monitoring: {enabled: true, max_runtime_seconds: 14400}")
    assert "14400" in (dagster_home() / "dagster.yaml").read_text()


def test_both_storages_free_slots_retry_only_crashes_and_send_no_telemetry():
    one, team = (yaml.safe_load(path.read_text()) for path in (ONE_MACHINE, TEAM))
    for key in ("telemetry", "nux", "run_retries", "run_monitoring", "retention"):
        assert set(one[key]) <= set(team[key])
    for settings in (one, team):
        assert settings["telemetry"] == settings["nux"] == {"enabled": False}
        assert settings["run_retries"]["retry_on_asset_or_op_failure"] is False
        assert settings["run_monitoring"]["free_slots_after_run_end_seconds"] == 30
        (backfills,) = settings["concurrency"]["runs"]["tag_concurrency_limits"]
        assert backfills["limit"] < settings["concurrency"]["runs"]["max_concurrent_runs"]


def test_runs_events_sensors_and_slots_work_on_a_real_postgresql(team, postgres):
    for storage in (team.run_storage, team.event_log_storage, team.schedule_storage):
        assert type(storage).__name__.startswith("Postgres")
    run = defs.resolve_job_def("tidegate_maintenance").execute_in_process(instance=team)
    assert team.get_run_by_id(run.run_id).is_success
    end_dead_runs(team)
    tell(team, "stopped: service", "02:50")
    assert asked_again(team, "03:04") == []
    assert asked_again(team, "03:05") == [("flights_enriched_nightly", DAY)]
    # as the executor of a run does
    team.event_log_storage.initialize_concurrency_limit_to_default("spark")
    claim = team.event_log_storage.claim_concurrency_slot("spark", run.run_id, "step")
    assert claim.is_claimed
    assert not team.event_log_storage.claim_concurrency_slot(
        "spark", "another run", "step"
    ).is_claimed
    team.event_log_storage.free_concurrency_slots_for_run(run.run_id)
