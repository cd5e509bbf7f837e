"""Parquet files that the tasks write themselves: what leaves the bridge is Arrow already, and Spark's own writer would
take every row of it apart and put it together again, which costs more than all of the bridge.

Each attempt of a task writes one file, under a name that no other has, and tells its name when it is whole. The run's
files are those that Spark took a task's result from: of a task that ran twice, one. What other attempts left is removed
by the driver at the end of the job, also of one that fails, and by `vacuum` where a driver died.
"""

from __future__ import annotations

import json
import secrets
from collections.abc import Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.parquet as pq
from pyspark import TaskContext
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import StructType

from jobs.errors import TidegateError
from jobs.input.types import SPARK_TYPES

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

NAMED = "file STRING NOT NULL"  # DDL of what a task gives: one row
ROWS_PER_GROUP = 50_000
BYTES_PER_GROUP = 16 << 20  # of Arrow; what a task holds until it writes


@dataclass(frozen=True)
class TaskFiles:
    """Where the tasks of one run write, and what; travels to the executors."""

    folder: str  # every task sees the same one: local, or a shared disk
    schema: pa.Schema
    spark_types: str = "{}"  # the schema as Spark writes it down
    # columns whose values hardly repeat: a dictionary of them is work for nothing
    distinct: frozenset[str] = frozenset()

    @classmethod
    def of(cls, folder: str, written: StructType, distinct: Iterable[str]) -> TaskFiles:
        """Files that hold rows of these types, and that Spark reads as if it had written them."""
        types = nullable(written)
        return cls(folder, to_arrow_schema(types, timezone="UTC"), types.json(), frozenset(distinct))

    def written(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """In a task: write all batches, then give the one row that names the file.

        Raises TidegateError when the disk takes no more. An attempt that fails or is left removes what it wrote.
        """
        task = TaskContext.get()
        partition = task.partitionId() if task else 0
        path = Path(self.folder, f"part-{partition:05d}-{secrets.token_hex(8)}.parquet")
        of_the_input: list[OSError] = []
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            with pq.ParquetWriter(path, self.schema, store_schema=False, use_dictionary=self._dictionaries()) as writer:
                writer.add_key_value_metadata({SPARK_TYPES: self.spark_types})
                for group in groups(_remembering(batches, of_the_input), self.schema):
                    writer.write_table(group)
                    del group  # else it stays until the next one is whole
        except BaseException as error:
            with suppress(OSError):
                path.unlink(missing_ok=True)
            if isinstance(error, OSError) and error not in of_the_input:
                raise TidegateError(f"{self.folder}: the rows cannot be written: {error}.") from error
            raise
        yield pa.RecordBatch.from_pydict({"file": [path.name]})

    def _dictionaries(self) -> list[str]:
        """Parquet's names of the columns that get one; those inside a list or struct have names of their own."""
        empty = pa.BufferOutputStream()
        pq.write_table(self.schema.empty_table(), empty)
        columns = pq.ParquetFile(empty.getvalue()).schema
        names = [columns.column(number).path for number in range(len(columns))]
        return [name for name in names if name.partition(".")[0] not in self.distinct]

    def taken(self, named: DataFrame) -> tuple[str, ...]:
        """On the driver: run the job. The paths of its files, in the order of their tasks; of a job that fails, none
        stays. What cannot be removed is left to `vacuum`.
        """
        names: set[str] = set()
        try:
            names = {row["file"] for row in named.collect()}
        finally:
            for path in Path(self.folder).glob("part-*.parquet"):
                if path.name not in names:
                    with suppress(OSError):
                        path.unlink(missing_ok=True)
        return tuple(str(Path(self.folder, name)) for name in sorted(names))


def _remembering(batches: Iterator[pa.RecordBatch], errors: list[OSError]) -> Iterator[pa.RecordBatch]:
    """The batches; an OSError of theirs is told from one of the disk that they are written to."""
    try:
        yield from batches
    except OSError as error:
        errors.append(error)
        raise


def nullable(types: StructType) -> StructType:
    """As Spark writes them: no column, no field and no item of a file is held to be never null."""
    text = types.json()
    for word in ("nullable", "containsNull", "valueContainsNull"):
        text = text.replace(f'"{word}":false', f'"{word}":true')
    return StructType.fromJson(json.loads(text))


def groups(batches: Iterator[pa.RecordBatch], schema: pa.Schema) -> Iterator[pa.Table]:
    """The batches by row groups: a batch each would make files that are slow to read, and larger."""
    held: list[pa.RecordBatch] = []
    rows = size = 0
    for batch in batches:
        held.append(pa.RecordBatch.from_arrays(batch.columns, schema=schema))
        rows += batch.num_rows
        size += batch.nbytes
        if rows >= ROWS_PER_GROUP or size >= BYTES_PER_GROUP:
            yield pa.Table.from_batches(held, schema)
            held, rows, size = [], 0, 0
    if held:
        yield pa.Table.from_batches(held, schema)
