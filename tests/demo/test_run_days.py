"""Dagster shows the days that `make demo` runs in its process, as it shows days of the workspace."""

import dagster as dg
import pytest

from demo.run_days import RunEnd, main, run_days

DAY = "2013-01-10"
NIGHTLY, FILE = "flights_enriched_nightly", "--outcomes=days.jsonl"


@pytest.mark.parametrize("fails", [False, True])
def test_a_run_is_listed_under_its_job_from_its_first_event_on(fails):
    origins = []

    @dg.asset(partitions_def=dg.DailyPartitionsDefinition("2013-01-01"))
    def days(context: dg.AssetExecutionContext) -> None:
        origins.append(context.instance.get_run_by_id(context.run.run_id).remote_job_origin)
        assert not fails

    defs = dg.Definitions(
        assets=[days], jobs=[dg.define_asset_job("days_nightly", selection=[days])]
    )
    outcomes: list[RunEnd] = []
    with dg.DagsterInstance.ephemeral() as instance:
        assert (
            run_days(defs.resolve_job_def("days_nightly"), [DAY], instance, outcomes.append)
            is not fails
        )
        (run,) = instance.get_runs()
        assert (run.run_id, run.tags["dagster/max_retries"], run.tags["dagster/partition"]) == (
            *(outcomes[0].run_id, "0", DAY),
        )
        for origin in (*origins, run.remote_job_origin):
            assert (origin.job_name, origin.location_name) == ("days_nightly", "tidegate")
        assert run.tags[".dagster/repository"] == "__repository__@tidegate"
        assert run.is_failure_or_canceled is fails


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ([NIGHTLY, DAY, "2013-1-11", FILE], f"{NIGHTLY} has no day '2013-1-11'; its last is 20"),
        (["tidegate_maintenance", DAY, FILE], "tidegate_maintenance has no day"),
        (["flights", DAY, FILE], "Could not find job 'flights'. Found: "),
        ([NIGHTLY, DAY, "--outcomes=none/days"], "No such file or directory: 'none/days'"),
    ],
)
def test_a_day_that_cannot_be_run_is_refused_before_the_first_day_starts(
    tmp_path, monkeypatch, capsys, arguments, words
):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("DAGSTER_HOME", str(tmp_path))
    with pytest.raises(SystemExit, match="2"):
        main(arguments)
    assert words in capsys.readouterr().err
