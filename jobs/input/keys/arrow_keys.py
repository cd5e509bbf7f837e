"""Key values of Arrow columns as Python objects."""

import datetime as dt
import zoneinfo
from collections.abc import Sequence
from typing import Any

import pyarrow as pa

from jobs.arrow_values import Unread, readable_values
from jobs.declare.answers.times import shown_text

_EPOCHS = {
    None: dt.datetime(1970, 1, 1),  # noqa: DTZ001
    "UTC": dt.datetime(1970, 1, 1, tzinfo=zoneinfo.ZoneInfo("UTC")),
}


class UnreadKey(tuple[Any, ...]):
    """A key with a part that Python cannot hold, which is an `Unread`."""

    __slots__ = ()

    def reason(self, names: Sequence[str]) -> str:
        """Return a sentence that names the first such part, with its value."""
        parts = zip(names, self, strict=True)
        name, value = next(pair for pair in parts if isinstance(pair[1], Unread))
        return f"key {name} is {value.reason}: {shown_text(value)}"


def read_key_tuples(
    batch: pa.RecordBatch, names: Sequence[str], *, nulls: bool = False
) -> list[Any]:
    """Return a tuple per row, or None if a part is null and nulls are not requested as values.

    A key that Python cannot hold is an UnreadKey.
    """
    columns = [batch.column(name) for name in names]
    try:
        keys = list(zip(*map(to_values, columns), strict=True))
    except (UnicodeDecodeError, OverflowError):
        keys = [
            UnreadKey(key) if Unread in set(map(type, key)) else key
            for key in zip(*map(readable_values, columns), strict=True)
        ]
    if nulls or not any(column.null_count for column in columns):
        return keys
    return [None if None in key else key for key in keys]


def to_values(column: pa.Array) -> list[Any]:
    """Return the values as to_pylist does, but in 0.3 µs per timestamp with a zone, not 8."""
    kind = column.type
    if not pa.types.is_timestamp(kind) or kind.unit != "us" or kind.tz not in _EPOCHS:
        values: list[Any] = column.to_pylist()
        return values
    epoch = _EPOCHS[kind.tz]
    since = column.to_numpy(zero_copy_only=False).view("timedelta64[us]").astype(object).tolist()
    return [None if passed is None else epoch + passed for passed in since]
