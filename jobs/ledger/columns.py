"""Records that gather until they are written.

They are gathered as the event loop has them, and become Arrow all together, in the thread that writes them: text of
keys, offsets and times made for thousands at once cost a third of what they cost one by one.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from jobs.ledger.answers import OUTCOMES, SCHEMA, StoredOutcome
from jobs.ledger.keys import key_texts

if TYPE_CHECKING:
    from jobs.callers.caller import Key

_CODES = {outcome: code for code, outcome in enumerate(OUTCOMES)}
assert _CODES["ok"] == 0


class Columns:
    """Takes records and gives them as a table, once. Not for two threads at one time."""

    __slots__ = ("_answered_at", "_keys", "_outcomes", "_responses")

    def __init__(self) -> None:
        self._keys: list[Key] = []
        self._outcomes = bytearray()
        self._responses: list[bytes | None] = []
        self._answered_at: list[int] = []

    def __len__(self) -> int:
        return len(self._keys)

    def append(self, key: Key, outcome: StoredOutcome, response: bytes | None, answered_at: int) -> None:
        """A record, as StoredAnswer has it but for its key."""
        self._keys.append(key)
        self._outcomes.append(_CODES[outcome])
        self._responses.append(response)
        self._answered_at.append(answered_at)

    def extend(self, keys: Sequence[Key], responses: Sequence[bytes], answered_at: Sequence[int]) -> None:
        """Several records that are "ok"."""
        self._keys += keys
        self._outcomes += bytes(len(keys))  # zeros: the code of "ok"
        self._responses += responses
        self._answered_at += answered_at

    def table(self, run_id: str, *, hidden: bool) -> pa.Table:
        """The records in their order; append nothing after it. hidden: of each key a digest stands in its place.

        Raises ValueError for a response that is no UTF-8, TypeError for a key that has no text.
        """
        codes = pa.array(np.frombuffer(self._outcomes, np.uint8))
        columns = [
            key_texts(self._keys, hidden=hidden),
            pa.array(OUTCOMES).take(codes),
            pa.array(self._responses, pa.string()),
            pa.array(self._answered_at, pa.int64()).cast(SCHEMA.field("answered_at").type),
            pa.repeat(run_id, len(self)),
        ]
        return pa.table(columns, schema=SCHEMA)
