"""The distinct keys of a day, found by Spark: each with how many rows have it, and one of these rows."""

from __future__ import annotations

import functools
import operator
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

import pyarrow as pa
from pyspark.sql import functions as F  # noqa: N812  # Spark's own name for it
from pyspark.sql import types as T  # noqa: N812

from jobs.bridge.batches import keys_of
from jobs.ledger.keys import key_text
from jobs.schema import SOURCE_FILE, SOURCE_ROW

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

TEXT = "__key_text"  # string: the key as the ledger writes it
ROWS = "__key_rows"  # long: rows of the day that have it
TASK = "__key_task"  # int: the Spark partition that reads the row SOURCE_FILE, SOURCE_ROW
_DRAWN = "__key_drawn"


def day_keys(prepared: DataFrame, names: Sequence[str], *, hidden: bool, seed: int) -> DataFrame:
    """Each key that stands in the columns `names` once, with TEXT, ROWS, TASK, and one row of it, drawn by `seed`.

    prepared: as `enrich.prepare` gives it. A key of which a part is null is left out: it is not asked. The row is
    drawn, not the first one: so the tasks that read the drawn rows have equal shares of the keys.
    """
    drawn = F.struct(
        F.xxhash64(SOURCE_FILE, SOURCE_ROW, F.lit(seed)).alias("draw"),
        F.spark_partition_id().alias(TASK),
        F.col(SOURCE_FILE),
        F.col(SOURCE_ROW),
    )
    known = functools.reduce(operator.and_, (F.col(name).isNotNull() for name in names))
    grouped = (
        prepared.select(*names, drawn.alias(_DRAWN))
        .where(known)
        .groupBy(*names)
        .agg(F.count("*").alias(ROWS), F.min(_DRAWN).alias(_DRAWN))
        .select(*names, ROWS, f"{_DRAWN}.*")
        .drop("draw")
    )
    schema = T.StructType([*grouped.schema.fields, T.StructField(TEXT, T.StringType(), nullable=False)])

    def with_text(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            texts = [key_text(key, hidden=hidden) for key in keys_of(batch, names)]
            yield batch.append_column(TEXT, pa.array(texts, pa.string()))

    return grouped.mapInArrow(with_text, schema)
