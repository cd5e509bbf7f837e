"""The summaries of an enrichment as assets, materialized here."""

import dataclasses

import dagster as dg

from orchestration.dagster.assets.enriched import summary_asset
from orchestration.dagster.declared import Declared
from tests.jobs.commands.conftest import towns_in
from tidegate import Summary

DAY = "2013-01-10"


def test_a_failed_summary_fails_with_only_its_sentence(tmp_path, monkeypatch):
    towns = towns_in(tmp_path, monkeypatch)
    towns.publish(DAY, range(3))
    wrong = Summary(name="wrong", sql="SELECT nothing FROM towns")
    enrichment = dataclasses.replace(towns.enrichment, start=DAY)
    asset = summary_asset(Declared("declared.towns:towns", enrichment), wrong)
    with dg.DagsterInstance.ephemeral() as instance:
        done = dg.materialize([asset], partition_key=DAY, instance=instance, raise_on_error=False)
    (failed,) = (event for event in done.all_events if event.is_step_failure)
    assert failed.step_failure_data.user_failure_data is not None  # Failure, and no traceback
    assert "nothing" in failed.step_failure_data.error.message
