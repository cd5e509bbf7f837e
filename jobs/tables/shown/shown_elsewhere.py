"""Shows the published table elsewhere, after each commit and before old files are removed."""

from collections.abc import Iterator
from datetime import timedelta

import pyarrow as pa
from deltalake import Field, Schema

from jobs.declare.enrichment import Enrichment
from jobs.declare.finding.extras import require_extra
from jobs.input.day import InputDay
from jobs.schema.records import DeclaredFacts
from jobs.tables.delta.delta_log import day_type, table_at
from jobs.tables.delta.published_files import changed_since
from jobs.tables.delta.publishers import alone_with
from jobs.tables.delta.type_check import answer_fields
from jobs.tables.shown import shown_as_parquet


def show(declared: DeclaredFacts) -> None:
    """Show what is published. Call it under `alone_with`. Raises TidegateError."""
    if declared.iceberg:
        from jobs.tables.shown.shown_as_iceberg import show as show_as_iceberg

        show_as_iceberg(declared)
    if declared.parquet:
        shown_as_parquet.show(declared)


def catch_up(declared: DeclaredFacts) -> None:
    """Show what a crash after the commit left unshown. Raises TidegateError."""
    if declared.iceberg or declared.parquet:
        with alone_with(declared.table):
            show(declared)


def lagging(declared: DeclaredFacts) -> Iterator[str]:
    """Yield a sentence with the cure for each place that lags behind. Raises TidegateError."""
    published = table_at(declared.table)
    if published is None:
        return
    shown = []
    if declared.iceberg:
        from jobs.tables.shown import shown_as_iceberg

        shown.append((declared.iceberg, shown_as_iceberg.state_shown(declared)))
    if declared.parquet:
        shown.append((declared.parquet, shown_as_parquet.state_shown(declared)))
    for place, state in shown:
        if changed_since(state, published, declared):
            yield (
                f"output: {place} does not show version {published.version()} of {declared.table}, "
                f"as after a kill; `tidegate vacuum {declared.enrichment}` or the next run of any "
                "day brings it there."
            )


def forget_versions(declared: DeclaredFacts, older_than: timedelta) -> None:
    """Forget the versions whose files `vacuum` removes. Raises TidegateError."""
    if declared.iceberg:
        from jobs.tables.shown import shown_as_iceberg

        shown_as_iceberg.forget_versions(declared, older_than)


def check_shown(enrichment: Enrichment, day: InputDay) -> None:
    """Check before any call that the published columns can be shown. Raises DeclarationError."""
    if enrichment.output.parquet:
        shown_as_parquet.refuse_foreign(enrichment)
    if enrichment.output.iceberg:
        require_extra("iceberg", f"{enrichment.name}: output: iceberg")
        from jobs.tables.shown.shown_as_iceberg import refuse_unfit

        given = [*day.schema, *answer_fields(enrichment)]
        names = {enrichment.input.partition.lower(), *(field.name.lower() for field in given)}
        if len(names) <= len(given):
            return  # a name that is there twice is reported by its own check
        columns = Schema.from_arrow(pa.schema(given)).fields
        day_column = Field(enrichment.input.partition, day_type(enrichment.input.every))
        refuse_unfit(enrichment.facts(), pa.schema(Schema([*columns, day_column]).to_arrow()))
