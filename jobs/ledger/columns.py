"""Records that gather until they are written, as the bytes of Arrow columns.

Half a million tuples that wait for a disk cost 2 to 3 µs each in memory and garbage collection; their bytes cost 0.4.
"""

from __future__ import annotations

from array import array
from collections.abc import Sequence
from itertools import accumulate

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from jobs.ledger.answers import OUTCOMES, SCHEMA, StoredOutcome

_NONE = 8  # beside the code of the outcome: there is no response
_CODES = {outcome: code for code, outcome in enumerate(OUTCOMES)}
assert _CODES["ok"] == 0


class Columns:
    """Takes records one by one and gives them as a table, once. Not for two threads at one time."""

    __slots__ = ("_answered_at", "_keys", "_outcomes", "_response_ends", "_responses")

    def __init__(self) -> None:
        self._keys: list[str] = []
        self._outcomes = bytearray()
        self._responses = bytearray()
        self._response_ends = array("i", [0])
        self._answered_at = array("q")

    def __len__(self) -> int:
        return len(self._outcomes)

    def append(self, key: str, outcome: StoredOutcome, response: bytes | None, answered_at: int) -> None:
        """A record, as StoredAnswer has it. It is not made into one: half a million of them cost a quarter second."""
        code = _CODES[outcome]
        if response is None:
            code |= _NONE
        else:
            self._responses += response
        self._response_ends.append(len(self._responses))
        self._answered_at.append(answered_at)
        self._outcomes.append(code)
        self._keys.append(key)

    def extend(self, keys: Sequence[str], responses: Sequence[bytes], answered_at: Sequence[int]) -> None:
        """Several records that are "ok"."""
        ends = accumulate(map(len, responses), initial=len(self._responses))
        next(ends)
        self._response_ends.extend(ends)
        self._responses += b"".join(responses)
        self._answered_at.extend(answered_at)
        self._outcomes += bytes(len(keys))  # zeros: the code of "ok"
        self._keys += keys

    def table(self, run_id: str) -> pa.Table:
        """The records in their order; append nothing after it. Raises ValueError for no UTF-8."""
        count = len(self)
        buffers = [None, pa.py_buffer(self._response_ends), pa.py_buffer(self._responses)]
        responses = pa.Array.from_buffers(pa.string(), count, buffers)
        responses.validate(full=True)
        codes = np.frombuffer(self._outcomes, np.uint8)
        without = codes & _NONE != 0
        if without.any():
            responses = pc.if_else(pa.array(without), None, responses)
        columns = [
            pa.array(self._keys, pa.string()),
            pa.array(OUTCOMES).take(pa.array(codes & (_NONE - 1))),
            responses,
            pa.Array.from_buffers(SCHEMA.field("answered_at").type, count, [None, pa.py_buffer(self._answered_at)]),
            pa.repeat(run_id, count),
        ]
        return pa.table(columns, schema=SCHEMA)
