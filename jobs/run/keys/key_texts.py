"""The columns of a day's distinct keys, and the texts of keys. Loads without Spark."""

from __future__ import annotations

import functools
import operator
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from jobs.input.keys.arrow_keys import read_key_tuples
from jobs.ledger.keys import texts_in_bulk

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

TEXT = "__key_text"  # string: the key in the ledger's form
ROWS = "__key_rows"  # long: rows of the day with this key
TASK = "__key_task"  # int: the Spark partition that reads the row SOURCE_FILE, SOURCE_ROW


def is_whole(names: Sequence[str]) -> Column:
    """Return the condition that no part of the key is null."""
    from pyspark.sql import functions as F  # noqa: N812  # Spark's usual alias

    return functools.reduce(operator.and_, (F.col(name).isNotNull() for name in names))


def rows_without(table: pa.Table, column: str, values: pa.Array | pa.ChunkedArray) -> pa.Table:
    """Return the rows with another value in the column than these."""
    known = values.combine_chunks() if isinstance(values, pa.ChunkedArray) else values
    return table.filter(pc.invert(pc.is_in(table[column], value_set=known)))


def key_texts(batch: pa.RecordBatch, names: Sequence[str], *, hidden: bool) -> pa.StringArray:
    """Return the text of each row's key in the columns `names`, without nulls. hidden: digests."""
    return pa.array(texts_in_bulk(read_key_tuples(batch, names), hidden=hidden), pa.string())


def texts_or_null(batch: pa.RecordBatch, names: Sequence[str], *, hidden: bool) -> pa.StringArray:
    """Return what `key_texts` does, and null for a key with a null part."""
    columns = [batch.column(name) for name in names]
    whole = np.logical_and.reduce([part.is_valid().to_numpy(False) for part in columns])
    texts = key_texts(batch.filter(pa.array(whole)), names, hidden=hidden)
    return texts.take(pa.array(np.cumsum(whole) - 1, mask=~whole))


def table_texts(keys: pa.Table, names: Sequence[str], *, hidden: bool) -> pa.ChunkedArray:
    """Return what `key_texts` does for the rows of a table."""
    batches = keys.select(names).to_batches()
    return pa.chunked_array(
        [key_texts(batch, names, hidden=hidden) for batch in batches], pa.string()
    )


def with_texts(keys: DataFrame, names: Sequence[str], *, hidden: bool) -> DataFrame:
    """Return the same keys with TEXT, made by Spark's tasks."""
    from pyspark.sql import types as T  # noqa: N812  # Spark's usual alias

    schema = T.StructType(
        [*keys.schema.fields, T.StructField(TEXT, T.StringType(), nullable=False)]
    )

    def write_key_texts(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            yield batch.append_column(TEXT, key_texts(batch, names, hidden=hidden))

    return keys.mapInArrow(write_key_texts, schema)
