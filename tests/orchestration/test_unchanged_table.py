"""A table whose changed rows only are enriched, in Dagster, by a run that finds none."""

import dataclasses

import dagster as dg

from data_quality.catalogue import checks
from jobs.schema.records import Verdict
from jobs.tables.records import run_records
from orchestration.dagster.declared import Declared
from orchestration.dagster.definitions import build_definitions
from tests.jobs.run.changes.test_changed_rows import give, never, show, towns  # noqa: F401  # a fixture
from tests.support.scripted_spark import scripted


def test_an_unchanged_table_is_published_with_its_counts_and_without_spark(towns):  # noqa: F811
    record = show(towns, {1: 0, 2: 0})
    give(towns, [2, 1])
    declared = Declared("declared.towns:towns", towns.enrichment)
    verdicts = (
        Verdict(check.name, "passed", check.severity, "") for check in checks(declared.facts)
    )
    run_records.save(dataclasses.replace(record, verdicts=tuple(verdicts)))
    job = build_definitions([declared], scripted(towns.enrichment, never)).resolve_job_def(
        "towns_nightly"
    )
    with dg.DagsterInstance.ephemeral() as instance:
        assert job.execute_in_process(partition_key="all", instance=instance).success
        event = instance.get_latest_materialization_event(declared.key)
    metadata = {name: value.value for name, value in event.asset_materialization.metadata.items()}
    assert {name: metadata[name] for name in ("rows_changed", "rows_kept", "rows_in", "dagster/row_count")} == {
        "rows_changed": 0, "rows_kept": 2, "rows_in": 0, "dagster/row_count": 2,
    }  # fmt: skip
    assert metadata["published_version"] == record.published_version
