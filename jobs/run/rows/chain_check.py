"""Checks whether the chains of an enrichment can run on an input."""

from collections.abc import Mapping
from dataclasses import replace

from jobs.declare.enrichment import Enrichment
from jobs.errors import DeclarationError
from jobs.input.day import InputDay
from jobs.input.dealing import deal
from jobs.input.file_rows import FileRows
from jobs.input.keys.arrow_expressions import MOST_ROWS
from jobs.ledger.plan import LedgerPlan
from jobs.run.rows.chained_keys import CURE, compile_chained, compile_keys, declared_text
from jobs.run.rows.keyed_rows import lay_out_batch
from jobs.schema.columns import SOURCE_IDENTITY
from jobs.task.plan import PartitionPlan


def plan_of_answers(
    enrichment: Enrichment, day: InputDay, answered: Mapping[int, LedgerPlan]
) -> PartitionPlan:
    """Return a plan that calls nothing, and finds a day's keys with the answers at hand.

    Args:
        enrichment: As declared; `require_arrow_keys` has accepted it.
        day: The day.
        answered: Ledgers with the index of their answers, by the lookup's place.
    """
    layout = lay_out_batch(enrichment, [*day.names, *SOURCE_IDENTITY])
    layout = replace(layout, chained=compile_chained(enrichment, layout, day.schema))
    found = compile_keys(enrichment, layout, day.schema)
    keys = {key.name: key.values for key in found if key.values is not None}
    lookups = tuple(enrichment.lookups)
    return PartitionPlan(
        lookups=lookups,
        shares=((1,),) * len(lookups),
        mode="unordered",
        layout=layout,
        progress=None,
        ledgers=tuple(answered.get(place) for place in range(len(lookups))),
        reads=FileRows(deal(day, 1), day.schema, keys, day.row_bytes),
        may_call=False,
    )


def require_arrow_keys(enrichment: Enrichment, day: InputDay) -> None:
    """Check that Arrow can evaluate the keys of chains on this input.

    Raises:
        DeclarationError: The first reason against it.
    """
    name = enrichment.name
    if day.rows > MOST_ROWS:
        raise DeclarationError(
            f"{name}: input: the day has {day.rows:,} rows, and lookups that read answers can "
            f"have at most {MOST_ROWS:,}. Divide the day."
        )
    if day.spark_types() is None or day.only_in_spark:
        raise DeclarationError(
            f"{name}: input: only Spark reads {day.only_in_spark} as it was meant, and lookups "
            "that read answers need columns that Arrow reads. Write the files without it, or with "
            "another type."
        )
    layout = lay_out_batch(enrichment, [*day.names, *SOURCE_IDENTITY])
    for key in compile_keys(enrichment, layout, day.schema):
        if key.values is None:
            text = declared_text(key.lookup, key.field)
            raise DeclarationError(
                f"{name}: lookup {key.lookup.name}: {key.field}: {text!r} needs Spark, and other "
                f"lookups of {name} read answers. {CURE}"
            )
    compile_chained(enrichment, layout, day.schema)
