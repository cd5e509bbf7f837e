"""A number of 64 bits for values of any type: other values, another number; in Spark, compiled where Spark can.

Spark's own xxhash64 takes several values for one: it passes over nulls, so that (null, 'a') and ('a', null) are equal,
as are [1, null] and [1]; it knows no -0.0, takes two texts for one where a collation does, and refuses maps.
"""

from __future__ import annotations

from collections.abc import Iterable

from pyspark.sql import Column
from pyspark.sql import functions as F  # noqa: N812  # Spark's own name for it
from pyspark.sql import types as T  # noqa: N812

Typed = tuple[Column, T.DataType]


def digest(values: Iterable[Typed]) -> Column:
    """One number for these values in this order. Every NaN is the same; maps with another order of entries differ."""
    return F.xxhash64(*(part for value, kind in values for part in _parts(value, kind)), F.lit(0))


def named(name: str) -> str:
    """A column's name as Spark takes it, whatever stands in it."""
    return "`" + name.replace("`", "``") + "`"


def _parts(value: Column, kind: T.DataType) -> list[Column]:
    """What stands for a value: no two values of a type have the same."""
    absent, found = F.isnull(value), [value]
    if isinstance(kind, T.FloatType | T.DoubleType):
        found = [value, F.when(value == 0, value.cast("string"))]  # a text only there: it is slow
    elif isinstance(kind, T.MapType):
        found = _of_items(F.map_entries(value), T.StructType().add("key", kind.keyType).add("value", kind.valueType))
    elif isinstance(kind, T.ArrayType):
        found = _of_items(value, kind.elementType)
    elif isinstance(kind, T.StructType):
        found = [digest((value.getField(field.name), field.dataType) for field in kind.fields)]
    elif isinstance(kind, T.NullType):
        found = []
    elif type(kind) is T.StringType and kind != T.StringType():
        found = [value.cast("binary")]
    return [*found, absent]


def _of_items(items: Column, kind: T.DataType) -> list[Column]:
    return [F.transform(items, lambda item: digest([(item, kind)])), F.size(items)]
