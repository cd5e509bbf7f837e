"""Appends a task's answers since its last part to a local file within ms, so a kill loses no more.

    <root>/<lookup>/<request fingerprint>/parts/<run_id>/<partition>-<attempt>-<token>-<seq>.journal

A journal is an Arrow schema without fields, for its format, and a line of JSON for each time that
records were appended, with their columns. The part of the same name replaces it. After a kill it is
read as a part, up to its torn end. Only a local disk can append; elsewhere a kill loses the answers
since the last part.
"""

import contextlib
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import orjson
import pyarrow as pa

from jobs.ledger.answers import SCHEMA, columns_table

JOURNAL = ".journal"
JOURNAL_FORMAT = 2


class Journal:
    """The journal of a part, created by the first answers, for a single thread; its metadata marks
    its format.
    """

    def __init__(self, path: Path, metadata: Mapping[bytes, bytes]) -> None:
        self._path = path
        self._metadata = metadata
        self._file: pa.OSFile | None = None

    def append(self, columns: Sequence[Sequence[Any]]) -> None:
        """Append records, the columns of `columns_table`; on return the operating system has them.

        Raises:
            OSError: The file cannot be written.
            TypeError: A response is not UTF-8.
        """
        line = orjson.dumps(columns, bytes.decode, orjson.OPT_APPEND_NEWLINE)
        if self._file is None:
            self._path.parent.mkdir(parents=True, exist_ok=True)
            self._file = pa.OSFile(str(self._path), "wb")
            self._file.write(pa.schema([], self._metadata).serialize())
        self._file.write(line)

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
    tables = [SCHEMA.empty_table()]
    # its process was killed while writing
    with contextlib.suppress(ValueError, OSError):
        source = pa.BufferReader(data)
        schema = pa.ipc.read_schema(source)
        check(schema.metadata)
        if schema.names:  # format 1, an Arrow stream of the records
            for batch in pa.ipc.open_stream(data):
                batch.validate(full=True)
                tables.append(pa.Table.from_batches([batch]).cast(SCHEMA))
            return pa.concat_tables(tables)
        for line in data[source.tell() :].split(b"\n"):
            # not `extend`: the lines before a torn one count
            tables.append(columns_table(orjson.loads(line)))  # noqa: PERF401
    return pa.concat_tables(tables)
