"""Makes a published day's windows again from its remaining rows, after other rows were removed."""

import dataclasses

from jobs.declare.enrichment import Enrichment
from jobs.process.quiet_spark import quiet_session
from jobs.schema.records import DayFacts
from jobs.streams.published_sources import sources
from jobs.tables.derived.window_tables import publish_windows
from jobs.tables.records import run_records
from jobs.tables.records.published_runs import last_published


def remake_windows(enrichment: Enrichment, day: str) -> None:
    """Make and publish the windows of the published day from its current files.

    Raises SparkFailed if Spark cannot make them, TidegateError if they cannot be published.
    """
    record = last_published(enrichment.name, day, table=enrichment.output.path)
    if not enrichment.windows or record is None:
        return
    with quiet_session(f"{enrichment.name} windows {day}", "make the windows") as spark:
        from jobs.run.engines.engine import SparkEngine
        from jobs.run.windows.window_rows import write_windows

        declared = dataclasses.replace(record.facts.declared, windows=enrichment.facts().windows)
        read = _all_input_files(record.facts)
        facts = dataclasses.replace(record.facts, declared=declared, input_files=read, windows=())
        facts = write_windows(SparkEngine(spark), facts)
    record = run_records.save(dataclasses.replace(record, facts=facts))
    for window in enrichment.windows:
        publish_windows(enrichment, window, record)


def _all_input_files(facts: DayFacts) -> tuple[str, ...]:
    """Return the input files of all batches of a stream; a record has only the last batch."""
    read_by_rows = frozenset().union(*map(sources, facts.files))
    if read_by_rows <= {*facts.input_files}:
        return facts.input_files
    return tuple(sorted(read_by_rows.union(facts.input_files)))
