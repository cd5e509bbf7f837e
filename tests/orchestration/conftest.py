"""A project folder of its own for real runs: raw days, the slow services, and a persistent
Dagster.
"""

import datetime as dt
import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import dagster as dg
import pytest
from dagster import DagsterEventType

from demo import data
from demo.run_days import RunEnd, run_days
from demo.surroundings import environment
from demo.weather_service import WeatherService, running
from orchestration.dagster.home import dagster_home
from tests.support.pages import browser_page

DAYS = ("2013-01-10", "2013-01-11", "2013-01-12", "2013-01-13", "2013-01-14")


@dataclass(frozen=True)
class Project:
    """What a test drives and looks at."""

    root: Path
    service: WeatherService
    instance: dg.DagsterInstance

    def run(self, definitions: dg.Definitions, day: str) -> RunEnd:
        """The nightly job for one day, as `make demo` runs it."""
        (job,) = (
            job
            for job in definitions.get_repository_def().get_all_jobs()
            if job.name.endswith("_nightly")
        )
        outcomes: list[RunEnd] = []
        run_days(job, [day], self.instance, outcomes.append)
        return outcomes[0]

    def events(self, run_id: str, kind: DagsterEventType) -> list:
        entries = self.instance.all_logs(run_id, of_type=kind)
        return [entry.dagster_event.event_specific_data for entry in entries]

    def log(self, run_id: str) -> list[str]:
        return [
            entry.user_message
            for entry in self.instance.all_logs(run_id)
            if not entry.is_dagster_event
        ]

    def materialized(self, run_id: str) -> dict[str, dict]:
        """Metadata by asset."""
        found = [
            event.materialization
            for event in self.events(run_id, DagsterEventType.ASSET_MATERIALIZATION)
        ]
        return {event.asset_key.to_user_string(): plain(event.metadata) for event in found}

    def observed(self, run_id: str, asset: str = "flights_enriched") -> list[dict]:
        found = [
            event.asset_observation
            for event in self.events(run_id, DagsterEventType.ASSET_OBSERVATION)
        ]
        return [
            {"partition": event.partition} | plain(event.metadata)
            for event in found
            if event.asset_key.to_user_string() == asset
        ]

    def judged(self, run_id: str) -> dict:
        """Check results by name."""
        found = self.events(run_id, DagsterEventType.ASSET_CHECK_EVALUATION)
        return {evaluation.check_name: evaluation for evaluation in found}


def plain(metadata) -> dict:
    return {key: value.value for key, value in metadata.items()}


@pytest.fixture(scope="module")
def dagster_project(tmp_path_factory) -> Iterator[Project]:
    root = tmp_path_factory.mktemp("dagster_project")
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(root)
        data.prepare(root / "data", [dt.date.fromisoformat(day) for day in DAYS])
        patch.setenv("DAGSTER_HOME", str(dagster_home()))
        # where a test puts modules of its own, for itself and for Spark
        patch.syspath_prepend(str(root))
        patch.setenv("PYTHONPATH", str(root), prepend=os.pathsep)
        with (
            running(
                root / "data" / "demo", root / "data" / "demo" / "calls.jsonl", scale=0.2
            ) as service,
            dg.DagsterInstance.get() as instance,
        ):
            for name, value in environment(service.url).items():
                patch.setenv(name, value)
            yield Project(root, service, instance)


@pytest.fixture
def page(address, request):
    """A page of a browser at the `address` of the test's module."""
    with browser_page(address, request.node.name) as page:
        yield page
