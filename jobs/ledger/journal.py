"""Appends a task's answers since its last part to a local file within ms, so a kill loses no more.

    <root>/<lookup>/<request fingerprint>/parts/<run_id>/<partition>-<attempt>-<token>-<seq>.journal

A journal is an Arrow stream, which the part of the same name replaces. After a kill it is read as a
part, up to its torn end. Only a local disk can append; elsewhere a kill loses the answers since the
last part.
"""

import contextlib
from collections.abc import Callable, Mapping
from pathlib import Path

import pyarrow as pa

from jobs.ledger.answers import SCHEMA

JOURNAL = ".journal"
BUFFER = 1 << 16  # bytes


class Journal:
    """The journal of a part, created by the first answers, for a single thread.

    Args:
        path: The file.
        metadata: Marks its format.
    """

    def __init__(self, path: Path, metadata: Mapping[bytes, bytes]) -> None:
        self._path = path
        self._schema = SCHEMA.with_metadata(metadata)
        self._file: pa.BufferedOutputStream | None = None  # else a batch is twenty small writes
        self._stream: pa.RecordBatchStreamWriter | None = None

    def append(self, records: pa.Table) -> None:
        """Append records; on return the operating system has them. Raises OSError."""
        if self._file is None or self._stream is None:
            self._path.parent.mkdir(parents=True, exist_ok=True)
            self._file = pa.BufferedOutputStream(pa.OSFile(str(self._path), "wb"), BUFFER)
            self._stream = pa.ipc.new_stream(self._file, self._schema)
        for batch in records.to_batches():
            self._stream.write_batch(batch)
        self._file.flush()

    def remove(self) -> None:
        """Remove the journal, because its part is stored with the same records."""
        if self._file is not None:
            with contextlib.suppress(OSError):
                self._file.close()
                self._path.unlink(missing_ok=True)


def read_journal(data: bytes, check: Callable[[Mapping[bytes, bytes] | None], None]) -> pa.Table:
    """Return the records up to a torn end.

    Args:
        data: The journal's bytes.
        check: Raises for metadata of a newer format or of no ledger.
    """
    batches = []
    # its process was killed while writing
    with contextlib.suppress(pa.ArrowInvalid, OSError, StopIteration):
        reader = pa.ipc.open_stream(data)
        check(reader.schema.metadata)
        while True:
            batch = reader.read_next_batch()
            batch.validate(full=True)
            batches.append(batch)
    return (
        pa.Table.from_batches(batches, reader.schema).cast(SCHEMA)
        if batches
        else SCHEMA.empty_table()
    )
