"""Compiles the keys that read earlier answers, which tasks evaluate once those are known."""

from collections.abc import Iterator, Mapping
from typing import NamedTuple

import pyarrow as pa
from pyspark.sql.pandas.types import from_arrow_type

from jobs.declare.chains import levels, lookups_below, lookups_read
from jobs.declare.enrichment import Enrichment
from jobs.declare.lookup import Lookup, enclosed
from jobs.errors import DeclarationError
from jobs.input.keys.arrow_expressions import COMPARABLE, arrow_expression
from jobs.input.keys.key_values import Values
from jobs.schema.columns import FAILED, published_status
from jobs.task.rows.arrow_batches import BatchLayout

CURE = "docs/chains.md lists the expressions that chains can use."


def key_expressions(enrichment: Enrichment, layout: BatchLayout, place: int) -> dict[str, str]:
    """Return the Spark SQL of each column of the key, and of the column that tells where a null
    key fails the run: not where `when` does not hold, or a lookup below has failed.
    """
    lookups = enrichment.lookups
    found = dict(zip(layout.keys[place], lookups[place].key_sql.values(), strict=True))
    wanted = layout.wanted[place] if layout.wanted else None
    if wanted is not None:
        failed = ", ".join(f"'{outcome}'" for outcome in (*FAILED, "not_asked"))
        below = [published_status(lookups[lower].name) for lower in lookups_below(lookups, place)]
        conditions = [f"coalesce({enclosed(lookups[place].when or 'true')}, false)"]
        conditions += [f"{status} NOT IN ({failed})" for status in below]
        found[wanted] = " AND ".join(conditions)
    return found


class CompiledKey(NamedTuple):
    """A column of a key that reads only the input.

    Attributes:
        lookup: Whose key it is.
        field: Of the declaration.
        name: Of the column.
        text: Spark SQL.
        values: None where only Spark can evaluate it.
    """

    lookup: Lookup
    field: str
    name: str
    text: str
    values: Values | None


def compile_keys(
    enrichment: Enrichment, layout: BatchLayout, types: pa.Schema
) -> Iterator[CompiledKey]:
    """Yield the key columns of lookups that read no answer; `types` has the input's columns."""
    of_level = levels(enrichment.lookups)
    for place, lookup in enumerate(enrichment.lookups):
        if not of_level[place]:
            expressions = key_expressions(enrichment, layout, place)
            # not strict: `when`, the last field, has a column only where it is needed
            for (name, text), field in zip(expressions.items(), key_fields(lookup), strict=False):
                yield CompiledKey(lookup, field, name, text, arrow_expression(text, types))


def compile_chained(
    enrichment: Enrichment, layout: BatchLayout, types: pa.Schema
) -> tuple[Mapping[str, Values], ...]:
    """Compile the key columns of lookups that read earlier answers, for an input of these Spark
    types.

    Returns:
        The values of each key column, by lookup; empty for a lookup that reads no answer. An empty
        tuple without chains.

    Raises:
        DeclarationError: Arrow cannot evaluate a key, or the key has a type that Arrow compares
            differently from Spark.
    """
    of_level = levels(enrichment.lookups)
    if not any(of_level):
        return ()
    known, found = {field.name: field.type for field in types}, list[Mapping[str, Values]]()
    for place, lookup in enumerate(enrichment.lookups):
        columns = pa.schema(known.items())
        found.append(_compile(enrichment, layout, place, columns) if of_level[place] else {})
        known |= {column.name: column.arrow_type for column in lookup.written}
        known[published_status(lookup.name)] = pa.string()
    return tuple(found)


def _compile(
    enrichment: Enrichment, layout: BatchLayout, place: int, columns: pa.Schema
) -> dict[str, Values]:
    lookup, found = enrichment.lookups[place], {}
    for (name, text), field in zip(
        key_expressions(enrichment, layout, place).items(), key_fields(lookup), strict=False
    ):
        where = f"{enrichment.name}: lookup {lookup.name}: {field}"
        values = arrow_expression(text, columns)
        if values is None:
            below = enrichment.lookups[lookups_read(enrichment.lookups, place)[0]].name
            raise DeclarationError(
                f"{where}: {declared_text(lookup, field)!r} cannot be evaluated beside the "
                f"answers of lookup {below}. {CURE}"
            )
        if values.kind not in COMPARABLE:
            kind = from_arrow_type(values.kind).simpleString()
            raise DeclarationError(
                f"{where}: {declared_text(lookup, field)!r} is {kind}, which a key made of answers "
                "cannot be. Use another column, such as an id."
            )
        found[name] = values
    return found


def key_fields(lookup: Lookup) -> list[str]:
    return [*(f"keys.{part}" for part in lookup.keys), "when"]


def declared_text(lookup: Lookup, field: str) -> str:
    written = lookup.as_written
    text = written.when if field == "when" else written.keys[field.removeprefix("keys.")]
    if field == "when" or written.when is None:
        return text or ""
    return f"{text}, when {written.when}"
