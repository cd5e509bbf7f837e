"""A table with a line per key, as a file that every task maps into memory and searches by key."""

import errno
import shutil
from pathlib import Path
from typing import Any, Self

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from jobs.arrow_values import gather, one_chunk
from jobs.errors import LedgerError
from jobs.ledger.keys import key_hashes
from jobs.ledger.ledger_files import NO_FOLDERS
from jobs.storage import objects
from jobs.storage.locked_folders import temporary_folder
from jobs.storage.stored_files import error_text, open_filesystem

KEY, HASH = "key", "hash"
COPY_BYTES = 1 << 24
# a table is one batch (read fastest) up to 16 MiB, or up to 256 bytes a row; else several
BYTES_AT_ONCE, ROW_BYTES = 16 << 20, 256


def write_keyed(path: str, table: pa.Table) -> None:
    """Write the table (with unique texts in `key`) to a path or URL. Raises LedgerError."""
    hashes = key_hashes(table[KEY].to_pylist())
    order = np.argsort(hashes, kind="stable")
    table = table.add_column(0, HASH, pa.array(hashes)).unify_dictionaries()
    at_once = max(BYTES_AT_ONCE, ROW_BYTES * table.num_rows)
    pieces = np.array_split(order, 1 + table.nbytes // at_once)
    table = table.combine_chunks() if len(pieces) == 1 else table
    try:
        filesystem, inside = open_filesystem(path)
        if filesystem.type_name not in NO_FOLDERS:
            filesystem.create_dir(inside.rpartition("/")[0], recursive=True)
        with (
            filesystem.open_output_stream(inside, compression=None) as stream,
            pa.ipc.new_file(stream, table.schema) as file,
        ):
            for rows in pieces:
                file.write_batch(_rows(table, rows))
    except (pa.ArrowException, OSError) as error:
        is_full = getattr(error, "errno", None) in (errno.ENOSPC, errno.EDQUOT)
        cure = "Free some space there" if is_full else "Make it writable"
        raise LedgerError(
            f"ledger: a file of this run cannot be written to {path!r}: {error_text(error)}. "
            f"{cure} and start again."
        ) from error


class KeyedFile:
    """The mapped file of `write_keyed`.

    Its memory is its touched pages, shared by processes, and the hashes of a file of several
    batches.
    """

    def __init__(self, table: pa.Table) -> None:
        self._table = table.drop_columns([HASH])
        self._hashes = one_chunk(table[HASH]).to_numpy()

    @classmethod
    def open(cls, path: str) -> Self:
        """Open the file, or a local copy of a remote URL. Raises LedgerError if it is unusable."""
        try:
            filesystem, inside = open_filesystem(path)
            local = filesystem.type_name == "local"
            file = pa.ipc.open_file(pa.memory_map(inside) if local else _local_copy(path))
            return cls(file.read_all())
        except (pa.ArrowException, OSError, ValueError, KeyError) as error:
            raise LedgerError(
                f"ledger: a file of this run cannot be read from {path!r}: {error_text(error)}."
            ) from error

    def __len__(self) -> int:
        return int(self._table.num_rows)

    @property
    def row_bytes(self) -> int:
        """The mean size of a line."""
        return int(self._table.nbytes // max(1, len(self)))

    def lines(self, texts: pa.Array) -> npt.NDArray[np.int64]:
        """Return the line of each key, or -1. Pass many keys: a single key takes nearly as long."""
        found = np.full(len(texts), -1, np.int64)
        hashes = key_hashes(texts.to_numpy(zero_copy_only=False))
        wanted = np.arange(len(texts))
        lines = np.searchsorted(self._hashes, hashes)
        keys = texts.cast(self._table[KEY].type)
        while True:  # repeats only for keys with a colliding hash
            near = lines < len(self)
            wanted, lines = wanted[near], lines[near]
            near = self._hashes[lines] == hashes[wanted]
            wanted, lines = wanted[near], lines[near]
            if not len(wanted):
                return found
            stored = gather(self._table[KEY], lines)
            same = pc.equal(stored, keys.take(pa.array(wanted))).to_numpy(False)
            found[wanted[same]] = lines[same]
            wanted, lines = wanted[~same], lines[~same] + 1

    def take(self, lines: npt.NDArray[np.int64]) -> pa.RecordBatch:
        """Return the table's lines in this order."""
        return _rows(self._table, lines)


def _rows(table: pa.Table, rows: npt.NDArray[np.int64]) -> pa.RecordBatch:
    columns = [gather(column, rows) for column in table.columns]
    return pa.RecordBatch.from_arrays(columns, schema=table.schema)


def _local_copy(path: str) -> Any:
    """Map a local copy whose name is removed at once, so that it ends with the process."""
    with temporary_folder() as folder:
        copy = Path(folder, "copy.arrow")
        if objects.is_configured(path):  # in one request, while Arrow sends two
            objects.download(path, copy)
        else:
            filesystem, inside = open_filesystem(path)
            with (
                copy.open("xb") as local,
                filesystem.open_input_stream(inside, compression=None) as remote,
            ):
                shutil.copyfileobj(remote, local, COPY_BYTES)
        return pa.memory_map(str(copy))
