"""Adds columns to a table, which are null in the rows before."""

from deltalake import DeltaTable, Field, Schema

from jobs.errors import PublishConflict
from jobs.tables.delta.column_types import extends, type_name
from jobs.tables.delta.delta_log import commit_on_top


def missing_columns(table: DeltaTable, wanted: Schema) -> list[Field]:
    """Return the columns that the table lacks, or has with fewer fields. Refuses a column of
    another type.
    """
    known = {field.name: field for field in table.schema().fields}
    new = []
    for field in wanted.fields:
        present = known[field.name].type if field.name in known else None
        if present is None or (present != field.type and extends(present, field.type)):
            new.append(field)
        elif not extends(field.type, present):
            raise PublishConflict(
                f"column {field.name!r} is {type_name(field.type)} in this run and "
                f"{type_name(present)} in the table; "
                "give it another name, or publish to another table."
            )
    return new


def add_columns(table: DeltaTable, wanted: Schema) -> None:
    """Add new columns to the table, null before this day. Refuses a column whose type changed."""

    def add() -> None:
        # none is missing if another run was first, or a store took it and its answer was lost
        if new := missing_columns(table, wanted):
            table.alter.add_columns(new)

    commit_on_top(table, add)
