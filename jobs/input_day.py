"""One day of input: its files, their rows, and the columns that they have together."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.parquet as pq

from jobs.errors import DeclarationError, NoInput
from jobs.input_types import InputColumn, columns_of, in_both

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.types import StructType

    from jobs.declarations import Enrichment


@dataclass(frozen=True)
class InputDay:
    """What the footers of its files say. A column that some of them have not is null in their rows."""

    files: tuple[Path, ...]
    rows: int
    columns: tuple[InputColumn, ...]  # of all files, in the order in which they come first

    @property
    def names(self) -> list[str]:
        return [column.name for column in self.columns]

    @property
    def schema(self) -> pa.Schema:
        return pa.schema([(column.name, column.kind) for column in self.columns])

    def spark_types(self) -> StructType:
        from pyspark.sql.pandas.types import from_arrow_schema  # slow to load: for runs, not for definitions

        return from_arrow_schema(self.schema, prefer_timestamp_ntz=True)

    def read(self, spark: SparkSession) -> DataFrame:
        """All its rows. Spark is told the types: it would take a job of its own to ask one file, and of a column that
        this one has not, all values of the others would be lost.
        """
        return spark.read.schema(self.spark_types()).parquet(*(str(path.resolve()) for path in self.files))


def find_input(enrichment: Enrichment, day: str) -> InputDay:
    """Raises NoInput for a day without files, and DeclarationError for files that do not go together."""
    folder = Path(enrichment.input.folder(day))
    if not folder.is_dir():
        raise NoInput(f"{enrichment.name}: input: there is no {folder} for {day}; nothing can be enriched.")
    files = sorted(path for path in folder.iterdir() if path.suffix == ".parquet" and path.name[0] not in "._")
    if not files:
        raise NoInput(f"{enrichment.name}: input: {folder} holds no .parquet file.")
    try:
        return of_files(files)
    except DeclarationError as error:
        raise DeclarationError(f"{enrichment.name}: {error}") from error.__cause__


def of_files(files: Iterable[Path]) -> InputDay:
    """The day that these files make. Raises DeclarationError.

    A file without rows has no say in the columns, unless none has rows: what writes it often knows no types.
    """
    footers = {file: _footer(file) for file in files}
    rows = sum(footer.num_rows for footer in footers.values())
    columns: dict[str, InputColumn] = {}
    joined: list[pq.ParquetSchema] = []
    for file, footer in footers.items():
        if (footer.num_rows or not rows) and not any(footer.schema.equals(schema) for schema in joined):
            joined.append(footer.schema)
            _join(columns, columns_of(file, footer))
    return InputDay(tuple(footers), rows, tuple(columns.values()))


def _footer(file: Path) -> pq.FileMetaData:
    try:
        return pq.read_metadata(file)
    except (pa.ArrowInvalid, OSError) as error:
        raise DeclarationError(f"input: {file} is no readable Parquet file: {error}") from error


def _join(columns: dict[str, InputColumn], more: Iterable[InputColumn]) -> None:
    """More files' columns to those before, by their names in lower case: Spark does not tell `Id` from `id`. Two of one
    file that are one name to Spark both stay, for the check that names them.
    """
    of_file = set()
    for column in more:
        name = column.name if column.name.lower() in of_file else column.name.lower()
        of_file.add(name)
        columns[name] = in_both(columns[name], column) if name in columns else column
