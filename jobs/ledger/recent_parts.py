"""Keeps the small parts that this process read last: a run reads them twice."""

import threading
from collections import OrderedDict

import pyarrow as pa

from jobs.ledger.journal import JOURNAL
from jobs.ledger.store import PARTS, LedgerFolder

MOST_BYTES = 32 << 20
LARGEST = 1 << 20  # bytes of a part's file

# path, size, time of change: the last two distinguish files of the same name
File = tuple[str, int, int]


class RecentParts:
    """Tables of parts, at most MOST_BYTES of them. Thread-safe."""

    def __init__(self) -> None:
        self._tables: OrderedDict[File, pa.Table] = OrderedDict()
        self._bytes = 0
        self._lock = threading.Lock()

    def find_kept_file(self, folder: LedgerFolder, part: str) -> File | None:
        """Return the file of a part, if it may be kept, else None."""
        path = f"{folder.path}/{PARTS}/{part}"
        if folder.place:  # a store has a part whole or not at all, and each name is unique
            return (f"{folder.place} {path}", 0, 0)
        # a journal grows; a look costs a request
        if part.endswith(JOURNAL) or folder.filesystem.type_name != "local":
            return None
        try:
            info = folder.filesystem.get_file_info(path)
        except (pa.ArrowException, OSError):  # the reader of the part reports the reason
            return None
        if info.size is None or info.size > LARGEST:  # None: the reader reports that it is gone
            return None
        return (path, info.size, info.mtime_ns)

    def get(self, file: File) -> pa.Table | None:
        with self._lock:
            table = self._tables.get(file)
            if table is not None:
                self._tables.move_to_end(file)
            return table

    def put(self, file: File, table: pa.Table) -> None:
        with self._lock:
            if file not in self._tables and table.nbytes <= MOST_BYTES // 4:
                self._tables[file] = table
                self._bytes += table.nbytes
            while self._bytes > MOST_BYTES:
                self._bytes -= self._tables.popitem(last=False)[1].nbytes
