"""Records that gather until they are written.

They are gathered in few large buffers, not as objects: ten thousand answers that wait for a disk would have Python give
and take memory all the time, which cost as much as all else that is done to keep them. They become Arrow all together,
in the thread that writes them.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from jobs.ledger.answers import OUTCOMES, SCHEMA, StoredOutcome
from jobs.ledger.keys import joined, texts_in

if TYPE_CHECKING:
    from jobs.declare.lookup import Key

_CODES = {outcome: code for code, outcome in enumerate(OUTCOMES)}
assert _CODES["ok"] == 0
_NONE = -1  # the length of a response that there is not
_LARGEST = 1 << 30  # bytes of text in one array of Arrow, which counts them in 32 bits


class Columns:
    """Takes records and gives them as a table, once. Not for two threads at one time."""

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

    def append(self, key: Key, outcome: StoredOutcome, response: bytes | None, answered_at: int) -> None:
        """A record, as StoredAnswer has it but for its key. Raises TypeError for a key that has no text."""
        self._keys += joined([key])
        self._outcomes.append(_CODES[outcome])
        self._responses += response or b""
        self._lengths.append(_NONE if response is None else len(response))
        self._answered_at.append(answered_at)

    def extend(
        self, keys: Sequence[Key], responses: bytearray, lengths: Sequence[int], answered_at: Sequence[int]
    ) -> None:
        """Several records that are "ok", their responses one behind the other. Raises TypeError for a key that has no
        text.
        """
        self._keys += joined(keys)
        self._outcomes += bytes(len(keys))  # zeros: the code of "ok"
        self._responses += responses
        self._lengths.frombytes(_octets(lengths))
        self._answered_at.frombytes(_octets(answered_at))

    def table(self, run_id: str, *, hidden: bool) -> pa.Table:
        """The records in their order; append nothing after it. hidden: of each key a digest stands in its place.

        Raises ValueError for a response that is no UTF-8.
        """
        codes = pa.array(np.frombuffer(self._outcomes, np.uint8))
        columns = [
            texts_in(self._keys, len(self), hidden=hidden),
            pa.array(OUTCOMES).take(codes),
            pa.chunked_array(_strings(self._responses, np.frombuffer(self._lengths, np.int64)), pa.string()),
            pa.array(np.frombuffer(self._answered_at, np.int64)).cast(SCHEMA.field("answered_at").type),
            pa.repeat(run_id, len(self)),
        ]
        return pa.table(columns, schema=SCHEMA)


def _octets(numbers: Sequence[int]) -> bytes:
    """What array.extend would take them for, which reads each as an argument of a call and takes thrice as long."""
    return np.fromiter(numbers, np.int64, len(numbers)).tobytes()


def _strings(text: bytearray, lengths: npt.NDArray[np.int64]) -> Iterator[pa.StringArray]:
    """Texts that stand one behind the other, as arrays that Arrow can hold."""
    offsets = np.concatenate(([0], np.cumsum(np.maximum(lengths, 0))))
    first = 0
    while first < len(lengths):
        last = max(first + 1, int(np.searchsorted(offsets, offsets[first] + _LARGEST, "right")) - 1)
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
