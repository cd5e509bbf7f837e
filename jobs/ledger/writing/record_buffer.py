"""Buffers records until they are written.

Records are stored in a few large buffers instead of objects: for ten thousand answers that wait for
a disk, Python's memory allocation would cost as much as all other work of storing them. The writing
thread converts them to Arrow in bulk.
"""

from array import array
from collections.abc import Iterator

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from jobs.declare.lookup import Key
from jobs.ledger.answers import LARGEST, OUTCOMES, SCHEMA, StoredOutcome
from jobs.ledger.keys import texts_in_bulk

_CODES = {outcome: code for code, outcome in enumerate(OUTCOMES)}
assert _CODES["ok"] == 0
_NONE = -1  # the length of a missing response


class Columns:
    """Collects records and returns them as a table, once. Not thread-safe."""

    __slots__ = ("_answered_at", "_keys", "_lengths", "_outcomes", "_responses")

    def __init__(self) -> None:
        self._keys: list[Key] = []
        self._outcomes = bytearray()
        self._responses = bytearray()
        self._lengths = array("q")  # of the responses
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
        self._keys.append(key)
        self._outcomes.append(_CODES[outcome])
        if response is None:
            self._lengths.append(_NONE)
        else:
            self._responses += response
            self._lengths.append(len(response))
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
        codes = np.frombuffer(self._outcomes, np.uint8)
        # as nearly always; a kernel of Arrow costs 0.1 ms
        is_ok = self._outcomes.count(0) == len(self)
        answered_at = pa.py_buffer(self._answered_at)
        columns = [
            pa.array(texts_in_bulk(self._keys, hidden=hidden), pa.string()),
            pa.repeat("ok", len(self)) if is_ok else pa.array(OUTCOMES).take(pa.array(codes)),
            pa.chunked_array(
                _strings(self._responses, np.frombuffer(self._lengths, np.int64)), pa.string()
            ),
            pa.Array.from_buffers(SCHEMA.field("answered_at").type, len(self), [None, answered_at]),
            pa.repeat(run_id, len(self)),
        ]
        return pa.table(columns, schema=SCHEMA)


def _strings(text: bytearray, lengths: npt.NDArray[np.int64]) -> Iterator[pa.StringArray]:
    """Yield the concatenated texts as Arrow arrays of allowed size."""
    offsets = np.concatenate(([0], np.cumsum(np.maximum(lengths, 0))))
    first = 0
    while first < len(lengths):
        last = max(first + 1, int(np.searchsorted(offsets, offsets[first] + LARGEST, "right")) - 1)
        here = offsets[first : last + 1]
        there_is = pa.array(lengths[first:last] != _NONE)
        found = pa.StringArray.from_buffers(
            last - first,
            pa.py_buffer((here - here[0]).astype(np.int32)),
            pa.py_buffer(memoryview(text)[here[0] : here[-1]]),
            there_is.buffers()[1],
        )
        found.validate(full=True)
        yield found
        first = last
