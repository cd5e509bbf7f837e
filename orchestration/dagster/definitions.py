"""Builds all that Dagster loads from a package's declarations: a new enrichment is a new file."""

from collections.abc import Sequence

import dagster as dg

from orchestration.dagster.assets.enriched import (
    dead_letters_asset,
    enriched_asset,
    raw_asset,
    summary_asset,
    window_asset,
)
from orchestration.dagster.declared import Declared, enrichments_in, with_distinct_inputs
from orchestration.dagster.maintenance import maintenance_jobs
from orchestration.dagster.names import Names
from orchestration.dagster.resources import SPARK, SparkProgram, spark_program
from orchestration.dagster.schedules import day_job, nightly_schedule
from orchestration.dagster.sensors.alerts import alerts
from orchestration.dagster.sensors.freshness import freshness_check
from orchestration.dagster.sensors.reports_days import reports_days
from orchestration.dagster.sensors.starts_days import starts_days
from orchestration.dagster.streams import stream_job


def build_definitions(
    all_declared: Sequence[Declared],
    spark: SparkProgram,
    executor: dg.ExecutorDefinition | None = None,
) -> dg.Definitions:
    all_declared = with_distinct_inputs(all_declared)
    # two enrichments may share an input; the project defines an input that its asset writes
    raw = {
        declared.raw_key: raw_asset(declared)
        for declared in all_declared
        if not declared.input_is_foreign
    }
    assets: list[dg.AssetsDefinition | dg.AssetSpec] = [*raw.values()]
    for declared in all_declared:
        assets.append(enriched_asset(declared))
        if declared.has_dead_letters:
            assets.append(dead_letters_asset(declared))
        assets += [window_asset(declared, window) for window in declared.enrichment.windows]
        assets += [summary_asset(declared, summary) for summary in declared.enrichment.summaries]
    jobs = [day_job(declared) for declared in all_declared]
    schedules = [
        nightly_schedule(declared, declared.enrichment.schedule, job)
        for declared, job in zip(all_declared, jobs, strict=True)
        if declared.enrichment.schedule is not None
    ]
    return dg.Definitions(
        assets=assets,
        asset_checks=[
            freshness_check(declared)
            for declared in all_declared
            if declared.enrichment.publish_by is not None
        ],
        jobs=[*jobs, stream_job(all_declared), *maintenance_jobs(all_declared)],
        schedules=schedules,
        sensors=[starts_days(all_declared, jobs), reports_days(all_declared), alerts(all_declared)],
        resources={SPARK: spark},
        executor=executor,
    )


def definitions_for(
    package: str,
    *,
    names: Names | None = None,
    spark: SparkProgram | None = None,
    executor: dg.ExecutorDefinition | None = None,
) -> dg.Definitions:
    """Return all that Dagster needs for a package's enrichments, to merge into a project's.

    Args:
        package: Holds the declarations.
        names: What Dagster calls the assets, jobs and sensors.
        spark: How Spark is started; by default as the environment sets it. A subclass may start it
            elsewhere (`SparkProgram.submit`).
        executor: Of all jobs of the code location. None: the project's, or Dagster's default.
            `signing_executor` notes in which process a run lives, so that a sensor ends a run whose
            machine went down; without it Dagster's run monitoring ends runs.

    Returns:
        Assets, checks, jobs, schedules, sensors, and the resource `tidegate_spark`.

    Raises:
        DeclarationError: The package does not exist, a module of it cannot be loaded, or two
            enrichments conflict.
    """
    return build_definitions(enrichments_in(package, names), spark or spark_program(), executor)
