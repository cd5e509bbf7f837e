"""The assets of an enrichment: its input, the enriched days, and small tables made from them."""

import datetime as dt
import os
import warnings
from collections.abc import Callable, Iterator
from typing import Any

import dagster as dg

from jobs.declare.enrichment import Summary
from jobs.declare.inputs import TABLES
from jobs.declare.published.windows import Window
from orchestration.common.report_server import report_url
from orchestration.dagster.assets import columns, metadata
from orchestration.dagster.assets.checks import check_specs
from orchestration.dagster.assets.day_config import DayConfig
from orchestration.dagster.assets.day_step import enrich_days
from orchestration.dagster.assets.days_reporter import Event
from orchestration.dagster.declared import Declared
from orchestration.dagster.errors import as_failure
from orchestration.dagster.resources import SparkProgram

# environment variable: most days of a backfill in one run; 1: each day has its own Spark
DAYS_PER_RUN = "TIDEGATE_DAYS_PER_RUN"
POOL = "spark"  # dagster.yaml limits how many of its steps run at a time
LOOK_BACK = dt.timedelta(days=7)  # older days need a backfill
CRASH = dg.RetryPolicy(max_retries=1, delay=15)  # s, after which a killed Spark is gone

# Only where a Dagster asset writes the input: runs a day of the last week once its input is
# updated. Nothing else starts a day that never ran, because its calls may cost money.
AFTER_INPUT = (
    dg.AutomationCondition.any_deps_updated().since(
        dg.AutomationCondition.newly_requested() | dg.AutomationCondition.newly_updated()
    )
    & dg.AutomationCondition.in_latest_time_window(lookback_delta=LOOK_BACK)
    & ~dg.AutomationCondition.any_deps_missing()
    & ~dg.AutomationCondition.any_deps_in_progress()
    & ~dg.AutomationCondition.in_progress()
).with_label("after_input")


def day_asset(
    declared: Declared, **fields: Any
) -> Callable[[Callable[..., Any]], dg.AssetsDefinition]:
    """Return `dg.asset` with a partition per day, of which a backfill takes several per run.

    The backfill policy is the same for every asset of a job; otherwise Dagster makes a run per day.
    """
    days = dg.BackfillPolicy.multi_run(int(os.environ.get(DAYS_PER_RUN, "31")))
    with warnings.catch_warnings():
        # backfill_policy may change in another version; Dagster's is pinned
        warnings.simplefilter("ignore", dg.BetaWarning)
        asset: Callable[[Callable[..., Any]], dg.AssetsDefinition] = dg.asset(
            partitions_def=declared.days,
            backfill_policy=days,
            group_name=declared.group,
            owners=list(declared.enrichment.owners),
            automation_condition=AFTER_INPUT if declared.input_is_foreign else None,
            **fields,
        )
    return asset


def raw_asset(declared: Declared) -> dg.AssetSpec:
    """Return the input, written by somebody else; each run observes the day it read."""
    enrichment = declared.enrichment
    kind = enrichment.input.format
    files = (
        f"The days of the {kind.title()} table" if kind in TABLES else f"Files by day ({kind}) at"
    )
    return dg.AssetSpec(
        declared.raw_key,
        description=f"{files} {enrichment.input.place}, written by others; observed by each run.",
        group_name=declared.group,
        owners=list(enrichment.owners),
        kinds={kind},
        partitions_def=declared.input_days,
        metadata={"path": enrichment.input.place},
    )


def enriched_asset(declared: Declared) -> dg.AssetsDefinition:
    @day_asset(
        declared,
        key=declared.key,
        deps=[_input(declared)],
        code_version=declared.facts.fingerprint,
        freshness_policy=_freshness_policy(declared),
        description=_described(declared),
        kinds={"spark", "delta"} | ({"iceberg"} if declared.enrichment.output.iceberg else set()),
        check_specs=check_specs(declared),
        metadata={
            "path": declared.enrichment.output.path,
            **metadata.shown(declared),
            "declared_in": declared.reference,
            **metadata.runbook(declared),
            "dagster/column_schema": columns.described(declared, columns.added(declared)),
            "dagster/column_lineage": columns.lineage(declared),
        },
        pool=POOL,
        retry_policy=CRASH,
        # a run of several days logs its materializations instead (days_reporter), and yields none
        output_required=False,
    )
    def enriched(
        context: dg.AssetExecutionContext, config: DayConfig, tidegate_spark: SparkProgram
    ) -> Iterator[Event]:
        yield from enrich_days(context, declared, tidegate_spark, config.mode)

    return enriched


def _input(declared: Declared) -> dg.AssetDep:
    """Return the dependency on the input. A day has the same name in every zone, while Dagster
    compares times and refuses two zones.
    """
    zones = {
        days.timezone
        for days in (declared.days, declared.input_days)
        if isinstance(days, dg.DailyPartitionsDefinition)
    }
    is_by_name = len(zones) > 1 and not declared.enrichment.input.asset_key
    mapping = dg.IdentityPartitionMapping() if is_by_name else None
    return dg.AssetDep(declared.raw_key, partition_mapping=mapping)


def _described(declared: Declared) -> str:
    """Return the description with links to the reports and the runbook.

    Dagster makes these links anew at each load, while links in events keep their first address.
    """
    runbook = declared.enrichment.runbook
    links = f"[Reports of all days]({report_url(declared.name)})"
    links += f", [runbook]({runbook})" if runbook else ""
    return (
        f"{declared.enrichment.description}\n\n{links}. A red day has its reason and next step "
        "there, under Events, and at the end of its run."
    ).strip()


def _freshness_policy(declared: Declared) -> dg.FreshnessPolicy | None:
    """Return Dagster's freshness policy, for its badges and alerts.

    It looks at the last materialization of any day, so a backfill of old days turns it green; only
    the check published_in_time looks at the day that is due. A table whose days have ended is never
    due.
    """
    if declared.enrichment.publish_by is None or declared.enrichment.end is not None:
        return None
    hour, minute = declared.enrichment.publish_by.split(":")
    cron, zone = f"{int(minute)} {int(hour)} * * *", declared.enrichment.zone
    return dg.FreshnessPolicy.cron(cron, dt.timedelta(days=1), timezone=zone)


def dead_letters_asset(declared: Declared) -> dg.AssetSpec:
    """Return the asset of rows without an answer. Once the table exists, each run that publishes a
    day materializes its part.
    """
    kept = {
        lookup.name: ", ".join(lookup.dead_letters)
        for lookup in declared.facts.lookups
        if lookup.dead_letters
    }
    return dg.AssetSpec(
        declared.dead_letters_key,
        deps=[declared.key],
        description=(
            f"Rows of {declared.name} that ended as "
            f"{'; '.join(f'{outcomes} at {lookup}' for lookup, outcomes in kept.items())}, each "
            "with the reason. They stay in the published day too, without an answer. Written by "
            "the run that publishes the day; the first dead letter makes the table."
        ),
        group_name=declared.group,
        owners=list(declared.enrichment.owners),
        kinds={"delta"},
        partitions_def=declared.days,
        metadata={"path": declared.dead_letters_table},
    )


def window_asset(declared: Declared, window: Window) -> dg.AssetsDefinition:
    tables = {table.what: table.path for table in declared.enrichment.tables()}

    @day_asset(
        declared,
        key=declared.beside(window.name),
        deps=[declared.key],
        description=window.description or f"Windows over the event times of {declared.name}.",
        kinds={"delta"},
        metadata={
            "path": tables[f"window {window.name}"],
            "rows_in_no_window": tables[f"dropped rows of window {window.name}"],
            "aggregates": dg.MetadataValue.md(f"```sql\n{window.sql}\n```"),
        },
    )
    def windowed(context: dg.AssetExecutionContext) -> dg.MaterializeResult[None]:
        from jobs.tables.derived.window_tables import publish_windows
        from jobs.tables.records.published_runs import last_published

        def publish(day: str) -> int:
            record = last_published(declared.name, day, table=declared.enrichment.output.path)
            if record is None:
                raise dg.Failure(
                    f"{declared.name}: no run has published {day} here; run the day first."
                )
            return publish_windows(declared.enrichment, window, record)

        return _publish_days(context, publish)

    return windowed


def summary_asset(declared: Declared, summary: Summary) -> dg.AssetsDefinition:
    @day_asset(
        declared,
        key=declared.beside(summary.name),
        deps=[declared.key],
        description=summary.description or f"Summary of {declared.name}.",
        kinds={"delta"},
        metadata={"query": dg.MetadataValue.md(f"```sql\n{summary.sql}\n```")},
    )
    def summarized(context: dg.AssetExecutionContext) -> dg.MaterializeResult[None]:
        from jobs.tables.derived.summaries import summarize

        return _publish_days(context, lambda day: summarize(declared.enrichment, summary, day))

    return summarized


def _publish_days(
    context: dg.AssetExecutionContext, publish: Callable[[str], int]
) -> dg.MaterializeResult[None]:
    """Publish the days of the step one after the other; `publish` returns the rows of a day."""
    for day in context.partition_keys:
        with as_failure():
            rows = publish(day)
        context.add_asset_metadata({"dagster/row_count": rows}, partition_key=day)
    return dg.MaterializeResult()
