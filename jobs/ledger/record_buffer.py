"""Buffers records until they are written.

Records are stored in a few large buffers instead of objects: for ten thousand answers that wait for
a disk, Python's memory allocation would cost as much as all other work of storing them. The writing
thread converts them to Arrow in bulk.
"""

from array import array
from collections.abc import Iterator, Sequence

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from jobs.declare.lookup import Key
from jobs.ledger.answers import LARGEST, OUTCOMES, SCHEMA, StoredOutcome
from jobs.ledger.keys import joined, texts_in

_CODES = {outcome: code for code, outcome in enumerate(OUTCOMES)}
assert _CODES["ok"] == 0
_NONE = -1  # the length of a missing response


class Columns:
    """Collects records and returns them as a table, once. Not thread-safe."""

    __slots__ = ("_answered_at", "_keys", "_lengths", "_outcomes", "_responses")

    def __init__(self) -> None:
        self._keys = bytearray()
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
        """Append a StoredAnswer with the raw key. Raises TypeError for a key without a text."""
        self._keys += joined([key])
        self._outcomes.append(_CODES[outcome])
        self._responses += response or b""
        self._lengths.append(_NONE if response is None else len(response))
        self._answered_at.append(answered_at)

    def extend(
        self,
        keys: Sequence[Key],
        responses: bytearray,
        lengths: Sequence[int],
        answered_at: Sequence[int],
    ) -> None:
        """Append "ok" records with concatenated responses. Raises TypeError as `append`."""
        self._keys += joined(keys)
        self._outcomes += bytes(len(keys))  # zeros: the code of "ok"
        self._responses += responses
        self._lengths.frombytes(_octets(lengths))
        self._answered_at.frombytes(_octets(answered_at))

    def table(self, run_id: str, *, hidden: bool) -> pa.Table:
        """Return the records in order; append nothing afterwards.

        Args:
            run_id: The run that writes them.
            hidden: Whether each key becomes a digest.

        Raises:
            ValueError: A response is not UTF-8.
        """
        codes = pa.array(np.frombuffer(self._outcomes, np.uint8))
        columns = [
            texts_in(self._keys, len(self), hidden=hidden),
            pa.array(OUTCOMES).take(codes),
            pa.chunked_array(
                _strings(self._responses, np.frombuffer(self._lengths, np.int64)), pa.string()
            ),
            pa.array(np.frombuffer(self._answered_at, np.int64)).cast(
                SCHEMA.field("answered_at").type
            ),
            pa.repeat(run_id, len(self)),
        ]
        return pa.table(columns, schema=SCHEMA)


def _octets(numbers: Sequence[int]) -> bytes:
    """Return the bytes as an array; array.extend takes three times as long, number by number."""
    return np.fromiter(numbers, np.int64, len(numbers)).tobytes()


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
