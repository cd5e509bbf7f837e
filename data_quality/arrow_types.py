"""The names that Spark gives types: as the files have them, and as they are declared."""

from __future__ import annotations

import re

import pyarrow as pa


def spark_name(kind: pa.DataType) -> str:
    """As bigint or array<double>; Arrow's own name for a type that Spark does not know."""
    from pyspark.sql.pandas.types import from_arrow_type

    try:
        return from_arrow_type(kind, prefer_timestamp_ntz=True).simpleString()
    except Exception:  # noqa: BLE001  # Spark has an error class of its own for this
        return str(kind)


def declared_name(ddl: str) -> str:
    """The same for a type as it is declared: ARRAY<DOUBLE>."""
    return re.sub(r"[\s`]", "", ddl).lower()
