"""Checks, from the input's footers and before Spark starts, that the table can store the day."""

import functools
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import pyarrow as pa
from deltalake import DeltaTable, Schema

from jobs.declare.enrichment import Enrichment
from jobs.errors import DeclarationError, TidegateError, naming
from jobs.input.day import InputDay
from jobs.input.types import LOCAL, with_leaves
from jobs.tables.delta.column_types import extends, type_name
from jobs.tables.delta.delta_log import day_type, table_at
from jobs.tables.delta.table_rules import broken_rules

# opens the published table, if it exists. Raises TidegateError
OpenTable = Callable[[], DeltaTable | None]


def published_table(enrichment: Enrichment) -> OpenTable:
    """Return a function that opens the published table at its first call, and keeps it.

    On a store, opening it costs requests.
    """
    return functools.cache(lambda: table_at(enrichment.output.path))


def check_types(enrichment: Enrichment, day: InputDay, published: OpenTable | None = None) -> None:
    """Check that Delta can store the columns of input and answers, that they keep the types of an
    existing published table, and that a run observes its rules. Raises DeclarationError.
    """
    path = enrichment.output.path
    with naming(enrichment.name):
        table = (published or published_table(enrichment))()
        types = _published_types(enrichment, table)
    rules = () if table is None else broken_rules(table)
    wrong = (
        *(f"output: {path} {rule}, or publish to another path." for rule in rules),
        *_in_other_case(enrichment, day, types),
        *_wrong_answers(enrichment, types),
        *_wrong_input(day, types, path),
        *_hidden_times(day, table),
    )
    DeclarationError.raise_for(wrong, enrichment.name)


def published_columns(published: OpenTable) -> pa.Schema | None:
    """Return the columns of the published table; None without a table, or if it cannot be read,
    which `check_types` reports.
    """
    try:
        table = published()
    except TidegateError:
        return None
    if table is None:
        return None
    fields = pa.schema(table.schema().to_arrow())
    return pa.schema([(field.name, with_leaves(field.type)) for field in fields])


def answer_fields(enrichment: Enrichment) -> Iterator[pa.Field]:
    """Yield the columns that the lookups add to the published table."""
    kinds = {
        column.name: column.arrow_type for lookup in enrichment.lookups for column in lookup.columns
    }
    for column in enrichment.facts().published_answers():
        yield pa.field(column.name, kinds.get(column.name) or column.arrow_type)


def _published_types(enrichment: Enrichment, table: DeltaTable | None) -> dict[str, Any]:
    path = enrichment.output.path
    if table is None:
        return {}
    partitions = table.metadata().partition_columns
    if partitions != [enrichment.input.partition]:
        raise DeclarationError(
            f"output: {path} is partitioned by {', '.join(partitions) or 'nothing'}, the input by "
            f"{enrichment.input.partition}. Publish to another path."
        )
    types = {field.name: field.type for field in table.schema().fields}
    partition_type = types[enrichment.input.partition]
    wanted = day_type(enrichment.input.every)
    if partition_type != wanted:
        raise DeclarationError(
            f"output: the partitions of {path}, {enrichment.input.partition}, are "
            f"{type_name(partition_type)} there, and {type_name(wanted)} here. Publish to another "
            "path."
        )
    return types


def _in_other_case(
    enrichment: Enrichment, day: InputDay, published: Mapping[str, Any]
) -> Iterator[str]:
    published_names = {name.lower(): name for name in published}
    columns = [("input", name, "write") for name in day.names]
    for lookup in enrichment.lookups:
        columns += [
            (f"lookup {lookup.name}: returns", column.name, "declare") for column in lookup.columns
        ]
    for where, name, cure in columns:
        known = published_names.get(name.lower(), name)
        if known != name:
            yield (
                f"{where}: {name!r} is {known!r} in {enrichment.output.path}; {cure} it so, or "
                "under another name."
            )


def _wrong_answers(enrichment: Enrichment, published: Mapping[str, Any]) -> Iterator[str]:
    for lookup in enrichment.lookups:
        declared = Schema.from_arrow(
            pa.schema([(column.name, column.arrow_type) for column in lookup.columns])
        )
        for field, column in zip(declared.fields, lookup.columns, strict=True):
            known = published.get(field.name)
            if known is not None and known != field.type:
                yield (
                    f"lookup {lookup.name}: returns: {field.name} is {column.spark_type}, but in "
                    f"{enrichment.output.path} it is {type_name(known)}. A column keeps its type: "
                    "give it another name here."
                )


def _wrong_input(day: InputDay, published: Mapping[str, Any], path: str) -> Iterator[str]:
    for column, field in zip(day.columns, Schema.from_arrow(day.schema).fields, strict=True):
        known = published.get(field.name)
        if known == field.type or (known is not None and extends(known, field.type)):
            continue
        if column.untyped:  # Spark reads a column without a type as an integer
            wanted = "its type" if known is None else f"its type, {type_name(known)} in {path}"
            yield f"input: {column.without_type}. Write it with {wanted}."
        elif known is not None:
            yield (
                f"input: {field.name!r} is {type_name(field.type)} in {column.file}, but in {path} "
                f"it is {type_name(known)}. A column keeps its type: write it with that type, or "
                "under another name."
            )


def _hidden_times(day: InputDay, table: DeltaTable | None) -> Iterator[str]:
    """Yield columns whose times without a zone only a map holds.

    deltalake overlooks those: it would commit a table without the feature `timestampNtz`, which no
    reader opens.
    """
    kinds = [column.kind for column in day.columns]
    if any(_holds_local_times(kind, in_maps=False) for kind in kinds) or (
        table is not None and "timestampNtz" in (table.protocol().reader_features or ())
    ):
        return
    for column in day.columns:
        if _holds_local_times(column.kind, in_maps=True):
            yield (
                f"input: {column.name!r} in {column.file} is {column.kind}, a map with times "
                "without a zone, which would make the table unreadable. Write the times with a "
                "zone, or leave the column out."
            )


def _holds_local_times(kind: pa.DataType, *, in_maps: bool) -> bool:
    if pa.types.is_map(kind) and not in_maps:
        return False
    inner = (kind.field(number).type for number in range(kind.num_fields))
    return bool(kind == LOCAL) or any(
        _holds_local_times(nested, in_maps=in_maps) for nested in inner
    )
