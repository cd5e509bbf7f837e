"""One day of one enrichment as Dagster runs it: enrich and check with Spark, then publish, or hold back and say why."""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import dagster as dg

from jobs import records
from jobs.enrich_day import STOPPED
from jobs.nightly import publish_or_hold_back
from jobs.schema import DayRecord
from jobs.spark_program import Ended
from orchestration import metadata
from orchestration.checks import check_results
from orchestration.declared import Declared
from orchestration.resources import SparkProgram

Event = dg.AssetCheckResult | dg.MaterializeResult[None]
REPORTS = Path("data/reports")
AGAIN = "materialize the day again; the days published before stay as they are."
MEND = f"Open the report, mend the cause, then {AGAIN}"
IN_WORDS = {"running": "Running", "published": "Published"}  # every other state is told as "Not published"


def enrich_day(context: dg.AssetExecutionContext, declared: Declared, spark: SparkProgram) -> Iterator[Event]:
    """Enrich, check, publish, and only then materialize; what the checks say is told in every case.

    Raises:
        dagster.Failure: the day is not published; one sentence says why. Only a crash may be tried again by itself.
    """
    run = DayRun.of(context, declared)
    run.observe("running", "Spark enriches and checks the day.", "Nothing.")
    ended = run.with_spark(spark)
    yield from check_results(declared, ended.record, run.report)
    if ended.record is None:
        raise run.unwritten(ended)
    record = run.published_or_held_back(ended.record)
    run.observe_record(record)
    if record.state == "published":
        yield dg.MaterializeResult(metadata=run.metadata(record))
    run.render_report()
    if record.state != "published":
        raise run.failure(record.reason, MEND)


@dataclass(frozen=True)
class DayRun:
    """One run of one day, and how it speaks to Dagster."""

    context: dg.AssetExecutionContext
    declared: Declared
    day: str
    run_id: str  # its own for every try, so that no two write into one folder

    @classmethod
    def of(cls, context: dg.AssetExecutionContext, declared: Declared) -> "DayRun":
        tries = context.retry_number
        run_id = context.run.run_id
        return cls(context, declared, context.partition_key, f"{run_id}-{tries}" if tries else run_id)

    @property
    def log(self) -> Path:
        """Takes all that Spark prints."""
        return records.spark_log(self.declared.name, self.day, self.run_id)

    @property
    def report(self) -> str:
        return metadata.report_url(self.declared.name, self.day)

    def failure(self, reason: str, next_step: str, *, allow_retries: bool = False) -> dg.Failure:
        metadata = {"next_step": dg.MetadataValue.text(next_step), **self.links()}
        return dg.Failure(f"Not published: {reason}", metadata=metadata, allow_retries=allow_retries)

    def links(self) -> dict[str, dg.MetadataValue]:
        return {
            "report": dg.MetadataValue.url(self.report),
            "spark_log": dg.MetadataValue.url(metadata.log_url(self.declared.name, self.day, self.run_id)),
        }

    def with_spark(self, spark: SparkProgram) -> Ended:
        try:
            return spark.run(self.context, self.declared.reference, day=self.day, run_id=self.run_id, log=self.log)
        except dg.DagsterExecutionInterruptedError as cancel:
            # passed on as it is, the policy for crashes would start the cancelled day anew
            reason, next_step = "somebody cancelled the run; its Spark is ended.", f"To have the day, {AGAIN}"
            self.observe("cancelled", reason, next_step)
            raise self.failure(reason, next_step) from cancel

    def published_or_held_back(self, record: DayRecord) -> DayRecord:
        from data_quality import verdict_store

        return publish_or_hold_back(record, verdict_store.save)

    def unwritten(self, ended: Ended) -> dg.Failure:
        """The failure of a run that left no files to publish, told on the asset's page too."""
        state = "stopped: service" if ended.code == STOPPED else "failed"
        again = ended.crashed and self.context.retry_number == 0
        next_step = "Nothing: it is tried once more by itself." if again else f"Once that is mended, {AGAIN}"
        self.observe(state, ended.reason, next_step)
        self.render_report()
        return self.failure(ended.reason, next_step, allow_retries=ended.crashed)

    def observe(self, state: str, reason: str, next_step: str) -> None:
        """Dagster shows no metadata of a failed step and leaves the last success standing: this stands beside it."""
        self.context.log_event(
            dg.AssetObservation(
                asset_key=self.declared.key,
                partition=self.day,
                description=f"{IN_WORDS.get(state, f'Not published ({state})')}: {reason}",
                metadata={
                    "state": state,
                    "reason": dg.MetadataValue.md(reason),
                    "next_step": dg.MetadataValue.md(next_step),
                    "readers_see": metadata.readers_see(self.declared.facts, self.day),
                    **self.links(),
                },
            )
        )

    def observe_record(self, record: DayRecord) -> None:
        """What came of the day, and what was read for it."""
        if record.state == "published":
            checks = len(record.verdicts)
            self.observe("published", f"{checks} checks ran on {record.figures.rows_out:,} rows.", "Nothing.")
        else:
            self.observe("held back", record.reason, MEND)
        self.context.log_event(
            dg.AssetObservation(
                asset_key=self.declared.raw_key,
                partition=self.day,
                metadata={"dagster/row_count": record.figures.rows_in, "files": len(record.facts.input_files)},
            )
        )

    def metadata(self, record: DayRecord) -> dict[str, Any]:
        return {
            "state": "published",
            "readers_see": metadata.readers_see(self.declared.facts, self.day),
            **metadata.published_metadata(self.declared, record),
            **metadata.figures_metadata(record),
            **self.links(),
        }

    def render_report(self) -> None:
        """The page of every day of the enrichment and its index, from all records there are."""
        from data_quality import report

        report.render(self.declared.name, records.latest(self.declared.name), REPORTS / self.declared.name)
