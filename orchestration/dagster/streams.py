"""A pass of a stream as a job: new input of an enrichment is enriched, checked and published."""

from collections.abc import Sequence

import dagster as dg

from jobs.wording import counted
from orchestration.dagster.assets.enriched import POOL
from orchestration.dagster.declared import Declared, declared_as, shared_name
from orchestration.dagster.errors import as_failure
from orchestration.dagster.resources import SparkProgram


class StreamPass(dg.Config):
    """The enrichment of the pass. most_files: in a batch; 0: all that are new."""

    enrichment: str
    most_files: int = 0


def stream_job(all_declared: Sequence[Declared]) -> dg.JobDefinition:
    """Return the job; the sensor that reports days reports what it published."""

    @dg.op(name=shared_name(all_declared, "enrich_what_is_new"), pool=POOL, out=dg.Out(dg.Nothing))
    def enrich_what_is_new(
        context: dg.OpExecutionContext, config: StreamPass, tidegate_spark: SparkProgram
    ) -> None:
        _enrich_what_is_new(
            context, config, declared_as(all_declared, config.enrichment), tidegate_spark
        )

    @dg.job(
        name=shared_name(all_declared, "stream"),
        description=(
            "What is new of an enrichment's input is enriched, checked and published, "
            "batch by batch."
        ),
    )
    def stream() -> None:
        enrich_what_is_new()

    return stream


def _enrich_what_is_new(
    context: dg.OpExecutionContext, config: StreamPass, declared: Declared, spark: SparkProgram
) -> None:
    # they import pandas, which definitions load without
    from jobs.streams.stream_pipeline import BatchPublished, StreamEnded, StreamStarting, run_stream

    say = context.log.info
    most = ["--most-files", str(config.most_files)] if config.most_files else []
    with as_failure():
        for event in run_stream(spark.pipeline(declared), ["--available-now", *most]):
            match event:
                case StreamStarting():
                    say(f"starting Spark, which logs to {event.log}")
                case BatchPublished():
                    say(event.done.in_words())
                case StreamEnded() if event.code:
                    raise dg.Failure(
                        event.reason, metadata={"state": event.state}, allow_retries=event.crashed
                    )
                case StreamEnded():
                    say(
                        f"{counted(event.batches, 'batch', 'batches')}, "
                        f"{counted(event.rows, 'row')}"
                    )
                    context.add_output_metadata({"batches": event.batches, "rows": event.rows})
