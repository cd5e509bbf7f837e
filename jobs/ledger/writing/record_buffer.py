"""Buffers records until they are written.

Records are stored in a few large buffers instead of objects: for ten thousand answers that wait for
a disk, Python's memory allocation would cost as much as all other work of storing them. The writing
thread converts them to Arrow in bulk, from those buffers: beside a busy event loop, each function
of Arrow or numpy that it calls once in 20 ms is cold, and costs ten times as much as when called
again and again.
"""

from array import array
from bisect import bisect_right
from collections.abc import Iterable, Iterator
from itertools import accumulate

import numpy as np
import pyarrow as pa

from jobs.declare.lookup import Key
from jobs.ledger.answers import LARGEST, OUTCOMES, SCHEMA, StoredOutcome
from jobs.ledger.keys import texts_in_bulk

_CODES = {outcome: code for code, outcome in enumerate(OUTCOMES)}
assert _CODES["ok"] == 0
_TIME = SCHEMA.field("answered_at").type


class RecordBuffer:
    """Collects records and returns them as a table, once. Not thread-safe."""

    __slots__ = ("_answered_at", "_ends", "_keys", "_missing", "_outcomes", "_responses")

    def __init__(self) -> None:
        self._keys: list[Key] = []
        self._outcomes = bytearray()
        self._responses = bytearray()
        self._ends = array("q", [0])  # 0, then the end of each response in `_responses`, in bytes
        self._missing: set[int] = set()  # records without a response
        self._answered_at = array("q")

    def __len__(self) -> int:
        return len(self._outcomes)

    @property
    def has_marks(self) -> bool:
        """Whether a record marks a call that must not be made twice."""
        return _CODES["asked"] in self._outcomes

    def append(
        self, key: Key, outcome: StoredOutcome, response: bytes | None, answered_at: int
    ) -> None:
        """Append a StoredAnswer with the raw key."""
        if response is None:
            self._missing.add(len(self._keys))
        else:
            self._responses += response
        self._keys.append(key)
        self._outcomes.append(_CODES[outcome])
        self._ends.append(len(self._responses))
        self._answered_at.append(answered_at)

    def table(self, run_id: str, *, hidden: bool) -> pa.Table:
        """Return the records in order; append nothing afterwards.

        Args:
            run_id: The run that writes them.
            hidden: Whether each key becomes a digest.

        Raises:
            TypeError: A key has no text.
            ValueError: A response is not UTF-8.
        """
        rows = len(self)
        is_ok = self._outcomes.count(0) == rows  # as nearly always
        times = [None, pa.py_buffer(self._answered_at)]
        columns = [
            _text_array(texts_in_bulk(self._keys, hidden=hidden)),
            _text_array(["ok"] * rows if is_ok else [OUTCOMES[code] for code in self._outcomes]),
            pa.chunked_array(self._response_arrays(), pa.string()),
            pa.Array.from_buffers(_TIME, rows, times),
            _text_array([run_id] * rows),
        ]
        return pa.table(columns, schema=SCHEMA)

    def _response_arrays(self) -> Iterator[pa.StringArray]:
        """Yield the responses as Arrow arrays of allowed size."""
        ends, first = self._ends, 0
        while first < len(self):
            begin = ends[first]
            last = max(first + 1, bisect_right(ends, begin + LARGEST) - 1)
            validity = None
            if self._missing:
                flags = [place not in self._missing for place in range(first, last)]
                validity = pa.py_buffer(np.packbits(flags, bitorder="little"))
            responses = pa.StringArray.from_buffers(
                last - first,
                pa.py_buffer(array("i", [end - begin for end in ends[first : last + 1]])),
                pa.py_buffer(memoryview(self._responses)[begin : ends[last]]),
                validity,
            )
            if not self._responses.isascii():
                responses.validate(full=True)
            yield responses
            first = last


def _text_array(texts: list[str]) -> pa.StringArray:
    """Return the texts as an Arrow array."""
    together = "".join(texts)
    lengths: Iterable[int] = map(len, texts)
    data = together.encode()
    if len(data) > len(together):
        lengths = (len(text.encode()) for text in texts)
    offsets = array("i", accumulate(lengths, initial=0))
    return pa.StringArray.from_buffers(len(texts), pa.py_buffer(offsets), pa.py_buffer(data))
