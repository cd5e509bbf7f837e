"""Under Checks, Partitions a published day has passed its checks, however it was run; a red one has
failed them.
"""

import dataclasses
from collections.abc import Sequence
from pathlib import Path

import dagster as dg
import pytest

from data_quality import catalogue
from jobs.run.enrich_day import WRONG
from jobs.schema.records import DayRecord, Verdict
from orchestration.dagster.assets.day_status import latest_status
from orchestration.dagster.declared import Declared
from orchestration.dagster.definitions import build_definitions
from orchestration.dagster.sensors.reports_days import reports_days
from tests.jobs.commands.conftest import towns_in
from tests.support.check_partitions import checks_of_days
from tests.support.day_ranges import run_range
from tests.support.scripted_spark import scripted

pytestmark = pytest.mark.process

BUTTON, NIGHTLY, COMMAND, RED = "2013-01-10", "2013-01-11", "2013-01-12", "2013-01-13"
OF_RANGE, RED_OF_RANGE = "2013-02-01", "2013-02-02"
NOT_RUN = "input_day_complete"


class Days:
    """What the Spark program makes of each day: its files, and verdicts that all failed on a red
    day.
    """

    def __init__(self, towns, declared: Declared) -> None:
        self._towns = towns
        self._declared = declared
        self.without_files: dict[str, str] = {}  # day -> why

    def verdicts(self, day: str) -> Sequence[Verdict]:
        red = day in (RED, RED_OF_RANGE)
        for check in catalogue.checks(self._declared.facts):
            status = "not_run" if check.name == NOT_RUN else "failed" if red else "passed"
            yield Verdict(check.name, status, check.severity, f"{check.name} {status}")

    def run(self, day: str, run_id: str) -> DayRecord | dict[str, object]:
        if day in self.without_files:
            return {"kind": "failed", "reason": self.without_files[day], "status": WRONG}
        return self._towns.written(day, range(3), run_id, {}, self.verdicts(day))


@dataclasses.dataclass
class Setting:
    instance: dg.DagsterInstance
    declared: Declared
    definitions: dg.Definitions
    days: Days

    def run(self, job: str, partition: str, **selection) -> dg.ExecuteInProcessResult:
        return self.definitions.resolve_job_def(job).execute_in_process(
            partition_key=partition, instance=self.instance, raise_on_error=False, **selection
        )

    def run_range(self, first: str, last: str) -> dg.ExecuteInProcessResult:
        """The nightly job of several days at once, as a backfill asks for them."""
        return run_range(self.definitions, "towns_nightly", first, last, self.instance)

    def press_the_button(self, day: str) -> dg.ExecuteInProcessResult:
        job = self.definitions.resolve_implicit_global_asset_job_def()
        return job.execute_in_process(
            partition_key=day,
            instance=self.instance,
            asset_selection=[self.declared.key],
            raise_on_error=False,
        )

    def checks(self, status: str) -> dict[str, set[str]]:
        return checks_of_days(self.instance, self.declared, status)

    def all_but(self, *names: str) -> set[str]:
        return {check.name for check in catalogue.checks(self.declared.facts)} - set(names)


@pytest.fixture
def setting(tmp_path, monkeypatch, request):
    """With the summaries that the test asks for by `indirect`; else without."""
    towns = towns_in(tmp_path, monkeypatch)
    summaries = towns.enrichment.summaries if getattr(request, "param", False) else ()
    enrichment = dataclasses.replace(
        towns.enrichment, start="2013-01-10", end="2013-02-03", summaries=summaries
    )
    declared = Declared("declared.towns:towns", enrichment)
    days = Days(towns, declared)
    with dg.DagsterInstance.local_temp() as instance:
        yield Setting(
            instance, declared, build_definitions([declared], scripted(enrichment, days.run)), days
        )


def test_a_day_published_by_button_job_range_or_command_has_passed_its_checks(setting):
    assert setting.press_the_button(BUTTON).success
    assert setting.run("towns_nightly", NIGHTLY).success
    assert not setting.run_range(OF_RANGE, RED_OF_RANGE).success  # its second day is red
    publish(setting.days.run(COMMAND, "by a command"))
    reports_days([setting.declared])(dg.build_sensor_context(instance=setting.instance))
    published = {BUTTON, NIGHTLY, COMMAND, OF_RANGE}
    assert setting.checks("SUCCEEDED") == dict.fromkeys(setting.all_but(NOT_RUN), published)
    assert setting.checks("FAILED") == {key: {RED_OF_RANGE} for key in setting.all_but(NOT_RUN)}
    for status in ("IN_PROGRESS", "EXECUTION_FAILED", "SKIPPED"):
        assert setting.checks(status) == {}
    assert setting.instance.get_materialized_partitions(setting.declared.key) == published
    last = (
        setting.instance.fetch_materializations(setting.declared.key, limit=1)
        .records[0]
        .asset_materialization
    )
    assert last.metadata["checks"].value == (
        f"{len(setting.all_but(NOT_RUN))} passed, not run: {NOT_RUN}"
    )


@pytest.mark.proof
@pytest.mark.parametrize("setting", [True], indirect=True)
def test_days_run_together_are_each_materialized_once_with_their_summaries(setting):
    run = setting.run_range(BUTTON, COMMAND)
    assert run.success
    days = {BUTTON, NIGHTLY, COMMAND}
    assert setting.checks("SUCCEEDED") == dict.fromkeys(setting.all_but(NOT_RUN), days)
    for status in ("IN_PROGRESS", "EXECUTION_FAILED", "SKIPPED"):
        assert setting.checks(status) == {}
    for asset in (setting.declared.key, dg.AssetKey("by_town")):
        found = setting.instance.fetch_materializations(asset, limit=10).records
        assert sorted(event.partition_key for event in found) == sorted(days)


def test_a_red_day_fails_its_checks_is_not_materialized_and_stays_red_in_a_backfill(
    setting,
):
    run = setting.run("towns_nightly", RED)
    assert not run.success
    assert setting.instance.get_materialized_partitions(setting.declared.key) == set()
    assert setting.run("towns_nightly", BUTTON, tags={"dagster/backfill": "of old days"}).success
    assert setting.checks("FAILED") == {key: {RED} for key in setting.all_but(NOT_RUN)}
    assert setting.checks("EXECUTION_FAILED") == {}
    assert setting.run("towns_nightly", BUTTON).success  # again
    assert setting.checks("SUCCEEDED") == {key: {BUTTON} for key in setting.all_but(NOT_RUN)}


@pytest.mark.proof
def test_a_day_without_files_has_no_check_results_and_leaves_those_of_published_days(
    setting,
):
    assert setting.press_the_button(BUTTON).success
    setting.days.without_files = {
        day: f"there is no folder of {day}." for day in (BUTTON, NIGHTLY, OF_RANGE)
    }
    assert not setting.run("towns_nightly", BUTTON).success
    assert not setting.run("towns_nightly", NIGHTLY).success
    assert not setting.run_range(OF_RANGE, RED_OF_RANGE).success
    assert setting.checks("SUCCEEDED") == {key: {BUTTON} for key in setting.all_but(NOT_RUN)}
    assert setting.checks("EXECUTION_FAILED") == {}
    assert setting.checks("FAILED") == {key: {RED_OF_RANGE} for key in setting.all_but(NOT_RUN)}


@pytest.mark.proof
def test_each_red_day_is_on_the_page_of_all_days_with_a_working_link(setting):
    setting.days.without_files = {
        day: f"there is no folder of {day}." for day in (NIGHTLY, OF_RANGE)
    }
    for day in (BUTTON, NIGHTLY, RED):
        setting.run("towns_nightly", day)
    setting.run_range(OF_RANGE, RED_OF_RANGE)
    index = Path("data/reports/towns/index.html").read_text()
    assert "5 days" in index
    for day in (NIGHTLY, RED, OF_RANGE, RED_OF_RANGE):
        word = latest_status(setting.instance, setting.declared, day)
        assert f'class="cell failed" href="{day}/index.html" title="{day}: {word.state}. ' in index
        page = Path(f"data/reports/towns/{day}/index.html").read_text()
        assert "Next:" in page
        assert word.reason.split(";")[0] in page


def publish(record) -> None:
    from jobs.tables import publishing

    publishing.publish(record)
