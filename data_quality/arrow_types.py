"""Spark's names of types in the files and in declarations."""

import re

import pyarrow as pa


def spark_name(kind: pa.DataType) -> str:
    """Spark's name, such as bigint or array<double>; Arrow's name for a type that Spark lacks."""
    from pyspark.sql.pandas.types import from_arrow_type

    try:
        return from_arrow_type(kind, prefer_timestamp_ntz=True).simpleString()
    except Exception:  # noqa: BLE001  # Spark has an error class of its own for this
        return str(kind)


def declared_name(ddl: str) -> str:
    return re.sub(r"[\s`]", "", ddl).lower()
