"""The folder of a lookup's answers at any filesystem URL: immutable parts, each written at once.

    <root>/<lookup>/<request fingerprint>/parts/<run_id>/<partition>-<attempt>-<token>-<seq>.parquet
    <root>/<lookup>/<request fingerprint>/compacted/<generation>/...  (jobs/ledger/generations.py)

A part that a crash or a full disk tore, and a foreign file, are skipped with a warning. A part of a
newer format is an error, because a skipped part's answers would be paid again.
"""

import functools
import logging
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from jobs.errors import LedgerError
from jobs.ledger.answers import SCHEMA, WORDS, StoredAnswer, as_table
from jobs.ledger.journal import JOURNAL, JOURNAL_FORMAT, Journal, read_journal
from jobs.ledger.ledger_files import LedgerFiles
from jobs.storage.stored_files import error_text

FORMAT = 1
FORMAT_KEY = b"tidegate.ledger"
ROWS_PER_GROUP = 1024
COMPRESSION = "zstd"
LEVEL = 1
PARTS = "parts"

_log = logging.getLogger("tidegate.ledger")


class ForeignFile(Exception):  # noqa: N818  # what the file is
    """A torn or foreign file."""

    torn = True


class Foreign(ForeignFile):
    """A valid Parquet file that is not a ledger's."""

    torn = False


@dataclass(frozen=True)
class LedgerFolder(LedgerFiles):
    """The folder of a lookup's answers."""

    def write_part(
        self,
        run_id: str,
        name: str,
        answers: Sequence[StoredAnswer] | pa.Table,
        *,
        lasting: bool = False,
    ) -> str:
        """Store the answers as a part; on return, at least the operating system has them.

        Args:
            run_id: The run.
            name: A new name within the run.
            answers: The answers.
            lasting: On return they survive a power cut.

        Returns:
            The part's name as in `parts`.

        Raises:
            LedgerError: The write failed, for example on a full disk; readers ignore the part.
        """
        table = answers if isinstance(answers, pa.Table) else as_table(answers)
        part = f"{run_id}/{name}.parquet"
        data = as_parquet(table, rows_per_group=max(1, len(table)))  # a reader reads all of it
        self.replace(f"{PARTS}/{part}", data, lasting=lasting)
        return part

    def journal(self, run_id: str, name: str) -> Journal | None:
        """Return the journal of a new part; None if the filesystem cannot append to a file."""
        if self.filesystem.type_name != "local":
            return None
        return Journal(
            Path(f"{self.path}/{PARTS}/{run_id}/{name}{JOURNAL}"),
            {FORMAT_KEY: str(JOURNAL_FORMAT).encode()},
        )

    def parts(self, run_id: str | None = None, prefix: str = "") -> list[str]:
        """Return the existing parts as `<run_id>/<name>.parquet`, and journals, sorted.

        Args:
            run_id: Only parts of this run.
            prefix: Only names with this prefix: "3-" for partition 3, "3-0-" for its first attempt.
        """
        subfolder = PARTS if run_id is None else f"{PARTS}/{run_id}"
        files = self.files(subfolder)
        # a part that replaces its journal during a listing may be in it under neither name
        files += self.files(subfolder) if self.filesystem.type_name == "local" else []
        start = f"{self.path}/{PARTS}/"
        names = {file.path[len(start) :] for file in files}
        return sorted(
            name
            for name in names
            if name.endswith((".parquet", JOURNAL)) and name.rpartition("/")[2].startswith(prefix)
        )

    def is_empty(self) -> bool:
        return not self.parts() and not self.names("compacted")

    def read(self, parts: Iterable[str]) -> pa.Table:
        """Return all records of these parts in order; torn, foreign and missing parts have none.

        Raises LedgerError for a newer format, and if the filesystem fails.
        """
        tables = [SCHEMA.empty_table()]
        for part in parts:
            try:
                tables.append(self.read_current(part))
            except FileNotFoundError:
                continue
            except ForeignFile as error:
                self.warn(f"{PARTS}/{part}", error)
        return pa.concat_tables(tables)

    def read_current(self, part: str, schema: pa.Schema = SCHEMA) -> pa.Table:
        """Read a part as `read_part`; of a journal that is gone, the part that replaced it."""
        try:
            return self.read_part(part, schema)
        except FileNotFoundError:
            if not part.endswith(JOURNAL):
                raise
        return self.read_part(f"{part.removesuffix(JOURNAL)}.parquet", schema)

    def read_part(self, part: str, schema: pa.Schema = SCHEMA) -> pa.Table:
        """Read a part of `parts` in SCHEMA or ENCODED and verify its checksums, or read a journal.

        Raises:
            ForeignFile: The part is torn or foreign.
            FileNotFoundError: The part is missing.
            LedgerError: It cannot be read, or has a newer format.
        """
        name = f"{PARTS}/{part}"
        if part.endswith(JOURNAL):
            rows = read_journal(
                self.read_bytes(name),
                lambda metadata: self._require_format(name, metadata, JOURNAL_FORMAT),
            )
            return rows.cast(schema)
        data = self.read_bytes(name)
        try:
            with self._parquet(
                name, pa.BufferReader(data), encoded=map(SCHEMA.get_field_index, WORDS)
            ) as file:
                return file.read(columns=SCHEMA.names).cast(schema)
        except MemoryError as error:  # Arrow's MemoryError is an ArrowException too
            raise self.unreadable(name, error) from error
        except (pa.ArrowException, OSError, ValueError) as error:
            raise ForeignFile(error_text(error)) from error

    def open(self, name: str) -> pq.ParquetFile:
        """Open a large file to read it in pieces. Raises ForeignFile, FileNotFoundError,
        LedgerError.

        Its checksums are verified during the read: pass errors of the read to
        `foreign_or_unreadable`.
        """
        try:
            source = self.filesystem.open_input_file(f"{self.path}/{name}")
        except FileNotFoundError:
            raise
        except (pa.ArrowException, OSError) as error:
            raise self.unreadable(name, error) from error
        try:
            return self._parquet(name, source)
        except (pa.ArrowException, OSError) as error:
            raise self.foreign_or_unreadable(name, error) from error

    def foreign_or_unreadable(self, name: str, error: Exception) -> Exception:
        """Return ForeignFile for a torn file, LedgerError for a failure that may pass."""
        local = self.filesystem.type_name == "local"  # its filesystem errors have a number
        torn = isinstance(error, pa.ArrowInvalid) or (
            local and getattr(error, "errno", None) is None
        )
        if torn and not isinstance(error, MemoryError):
            return ForeignFile(error_text(error))
        return self.unreadable(name, error)

    def _parquet(
        self, name: str, source: pa.NativeFile, encoded: Iterable[int] = ()
    ) -> pq.ParquetFile:
        file = pq.ParquetFile(source, read_dictionary=encoded, page_checksum_verification=True)
        self._require_format(name, file.metadata.metadata, FORMAT)
        return file

    def _require_format(
        self, name: str, metadata: Mapping[bytes, bytes] | None, newest: int
    ) -> None:
        written = (metadata or {}).get(FORMAT_KEY)
        if written is None or not written.isdigit():
            raise Foreign("not a Tidegate ledger file")
        if int(written) > newest:
            raise LedgerError(
                f"ledger {self.root!r}: {name} has format {int(written)}, and this Tidegate reads "
                f"up to {newest}: upgrade it, or give it a ledger of its own."
            )

    def warn(self, name: str, error: Exception) -> None:
        self.skipped.append(f"{self.path}/{name}")
        _log.warning("ledger %s/%s is skipped: %s", self.path, name, error_text(error))

    @functools.cached_property
    def skipped(self) -> list[str]:
        """The paths of torn and foreign files that were skipped so far."""
        return []


def as_parquet(table: pa.Table, *, rows_per_group: int = ROWS_PER_GROUP) -> pa.Buffer:
    """Return a file's bytes with format, checksums, small row groups, and their key ranges."""
    sink = pa.BufferOutputStream()
    with pq.ParquetWriter(
        sink,
        SCHEMA,
        compression=COMPRESSION,
        compression_level=LEVEL if COMPRESSION == "zstd" else None,
        use_dictionary=WORDS,
        write_statistics=["key"],
        write_page_checksum=True,
        store_schema=False,
    ) as writer:
        writer.write_table(table, row_group_size=rows_per_group)
        writer.add_key_value_metadata({FORMAT_KEY: str(FORMAT)})
    return sink.getvalue()
