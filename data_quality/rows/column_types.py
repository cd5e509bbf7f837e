"""Types of the columns in the files, by Spark's names."""

import re
from collections.abc import Mapping
from pathlib import Path

import pyarrow as pa

from jobs.schema import columns as schema
from jobs.schema.columns import Column
from jobs.schema.records import DeclaredFacts

STRUCT = "a struct"  # the type of a key's column, with parts of any type


def spark_name(kind: pa.DataType) -> str:
    """Return Spark's name, such as array<double>; Arrow's name if Spark lacks the type."""
    from pyspark.sql.pandas.types import from_arrow_type

    if pa.types.is_dictionary(kind):
        kind = kind.value_type
    try:
        return from_arrow_type(kind, prefer_timestamp_ntz=True).simpleString()
    except Exception:  # noqa: BLE001  # Spark raises an error class specific to this case
        return str(kind)


def declared_name(ddl: str) -> str:
    return re.sub(r"[\s`]", "", ddl).lower()


def written_types(declared: DeclaredFacts) -> dict[str, str]:
    """Return the types of the columns that a run adds to its input, without answer columns."""
    answers = {name for lookup in declared.lookups for name in lookup.columns}
    keys = {schema.key(lookup.name): STRUCT for lookup in declared.lookups}
    return {
        column.name: declared_name(column.kind)
        for column in output_columns(declared)
        if column.name not in answers
    } | keys


def output_columns(declared: DeclaredFacts) -> list[Column]:
    """Return the columns that a run adds to its input, except the keys, in their order."""
    columns = list(schema.ROW_TABLE)
    for lookup in declared.lookups:
        columns += [Column(name, kind, "") for name, kind in lookup.returns]
        columns += schema.published_columns(lookup.name)
        columns += [column.of(lookup.name) for column in schema.AUDIT_TABLE]
    return columns + [column for choice in declared.choices for column in choice.published()]


def unified(files: Mapping[str, pa.Schema]) -> tuple[pa.Schema, dict[str, str]]:
    """Return all columns of these files, and a sentence for each whose type differs by file.

    Such a column gets the type of the first file that has it.
    """
    first: dict[str, tuple[pa.DataType, str]] = {}
    unlike: dict[str, str] = {}
    for path, columns in files.items():
        for field in columns:
            kind, other = first.setdefault(field.name, (field.type, path))
            if pa.types.is_null(kind):
                first[field.name] = (field.type, path)
            elif kind != field.type and not pa.types.is_null(field.type):
                names = (
                    f"{spark_name(kind)} in {Path(other).name} and {spark_name(field.type)} in "
                    f"{Path(path).name}"
                )
                unlike.setdefault(field.name, f"{field.name} is {names}")
    return pa.schema([pa.field(name, kind) for name, (kind, _) in first.items()]), unlike
