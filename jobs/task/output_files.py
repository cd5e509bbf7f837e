"""Parquet files that tasks write themselves.

Their output is Arrow already; Spark's writer would convert every row twice, which costs more than
the rest of the task.

Each attempt of a task writes a file with a unique name. When the file is complete, the attempt
returns its place and the requests that it sent. The run uses only results that Spark accepted, so a
task that ran twice counts once. The driver removes files of other attempts at the end of the stage,
even of a failed stage, and `vacuum` removes them after a driver's death.
"""

import secrets
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from functools import partial
from typing import Self

import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql.types import StructType

from jobs.arrow_values import bunches
from jobs.clients import request_counter
from jobs.clients.billing_meter import Meters
from jobs.clients.request_counter import RequestCounts
from jobs.errors import TidegateError
from jobs.input.types import SPARK_TYPES
from jobs.schema.columns import arrow_schema, nullable
from jobs.schema.records import WrittenFile
from jobs.storage.new_files import new_file, written_bytes
from jobs.storage.removal import remove_others
from jobs.storage.urls import below

ROWS_PER_GROUP = 50_000
# of Arrow data in a task before it writes: 16 MB take 20 MB more of a worker, and no less CPU
BYTES_PER_GROUP = 8 << 20


@dataclass(frozen=True)
class TaskResult:
    file: WrittenFile
    task: int
    requests: Mapping[str, RequestCounts]  # that it sent, by lookup
    attempt: int = 0  # number among all attempts of all tasks
    earlier: Mapping[str, int] = field(default_factory=dict)  # calls of lost attempts, by lookup
    spent: float = 0.0  # of the run's cap, also by lost attempts


@dataclass(frozen=True)
class TaskFiles:
    """The folder and schema of the tasks' files; sent to the executors."""

    folder: str  # the same for every task: on this machine or a shared disk, or a URL
    schema: pa.Schema
    spark_types: str = "{}"  # the schema in Spark's JSON
    # columns with mostly distinct values, where a dictionary is useless
    distinct: frozenset[str] = frozenset()
    meters: Meters | None = None  # of the run's bill

    @classmethod
    def of(
        cls, folder: str, written: StructType, distinct: Iterable[str], meters: Meters | None = None
    ) -> Self:
        """Return files with these types, readable as if Spark had written them."""
        types = nullable(written)
        return cls(folder, arrow_schema(types), types.json(), frozenset(distinct), meters)

    def write(
        self,
        batches: Iterator[pa.RecordBatch],
        task: int,
        token: Callable[[int], str] = secrets.token_hex,
        *,
        attempt: int = 0,
    ) -> TaskResult:
        """Write a task's batches. A failed attempt removes its file.

        Args:
            batches: The rows.
            task: The task's number in the stage.
            token: Makes the file's name unique.
            attempt: Number of the attempt among all attempts of all tasks.

        Raises:
            TidegateError: The rows cannot be written, for example because the disk is full.
        """
        place = below(self.folder, f"part-{task:05d}-{token(8)}.parquet")
        of_the_input: list[OSError] = []
        rows = 0
        try:
            with new_file(place) as target:
                request_counter.begin(None if self.meters is None else self.meters.open())
                options = {"store_schema": False, "use_dictionary": self._dictionaries()}
                with pq.ParquetWriter(target, self.schema, **options) as writer:
                    writer.add_key_value_metadata({SPARK_TYPES: self.spark_types})
                    for group in groups(_remembering(batches, of_the_input), self.schema):
                        writer.write_table(group)
                        rows += group.num_rows
                        del group  # otherwise it stays in memory until the next group is complete
                size = written_bytes(target)
        except BaseException as error:
            if isinstance(batches, Generator):
                with suppress(Exception):  # the error above is the one to report
                    batches.close()
            if isinstance(error, OSError) and error not in of_the_input:
                raise TidegateError(
                    f"{self.folder}: the rows cannot be written: {error}. Fix that, then run "
                    "again: answers in the ledger are not paid for twice."
                ) from error
            raise
        finally:
            request_counter.end()
        counts = request_counter.task_counts()
        return TaskResult(
            WrittenFile(place, size, rows), task, request_counter.counted(), attempt,
            counts.earlier, counts.spent,
        )  # fmt: skip

    def _dictionaries(self) -> list[str]:
        """Return Parquet's names of the columns with a dictionary.

        A column inside a list or struct has a name in Parquet that differs from its column's.
        """
        empty = pa.BufferOutputStream()
        pq.write_table(self.schema.empty_table(), empty)
        columns = pq.ParquetFile(empty.getvalue()).schema
        names = [columns.column(number).path for number in range(len(columns))]
        return [name for name in names if name.partition(".")[0] not in self.distinct]

    @contextmanager
    def only_of_results(self) -> Iterator[list[TaskResult]]:
        """Yield a list for the results of the tasks; remove all other files afterwards.

        Runs in the driver. Files that cannot be removed are left to `vacuum`.
        """
        results: list[TaskResult] = []
        try:
            yield results
        finally:
            remove_others(self.folder, kept={result.file.place for result in results})


def _remembering(
    batches: Iterator[pa.RecordBatch], errors: list[OSError]
) -> Iterator[pa.RecordBatch]:
    """Yield the batches and note their OSErrors, to tell them from the output disk's."""
    try:
        yield from batches
    except OSError as error:
        errors.append(error)
        raise


def groups(batches: Iterator[pa.RecordBatch], schema: pa.Schema) -> Iterator[pa.Table]:
    """Group batches into row groups, because a group per batch makes larger and slower files."""
    written = (pa.RecordBatch.from_arrays(batch.columns, schema=schema) for batch in batches)
    held = bunches(written, rows=ROWS_PER_GROUP, size=BYTES_PER_GROUP)
    return map(partial(pa.Table.from_batches, schema=schema), held)


def without_doubt(rows: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Yield the rows; fail a task with answers in doubt, if no check can hold its rows back.

    The counts of its requests must have begun.
    """
    yield from rows
    for lookup, counts in request_counter.counted().items():
        if counts.in_doubt:
            raise TidegateError(
                f"lookup {lookup}: {counts.in_doubt:,} answers are in doubt, as their connections "
                "brought a response too many: they may belong to other keys. Enrich the "
                "frame again."
            )
