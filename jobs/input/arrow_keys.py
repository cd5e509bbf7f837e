"""Key values of Arrow columns as Python objects."""

import datetime as dt
import zoneinfo
from collections.abc import Sequence
from typing import Any

import pyarrow as pa

_EPOCHS = {None: dt.datetime(1970, 1, 1), "UTC": dt.datetime(1970, 1, 1, tzinfo=zoneinfo.ZoneInfo("UTC"))}  # noqa: DTZ001


def keys_of(batch: pa.RecordBatch, names: Sequence[str], *, nulls: bool = False) -> list[Any]:
    """A tuple per row, or None if a part is null (unless nulls are requested as values)."""
    keys = list(zip(*(values_of(batch.column(name)) for name in names), strict=True))
    if nulls or not any(batch.column(name).null_count for name in names):
        return keys
    return [None if None in key else key for key in keys]


def values_of(column: pa.Array) -> list[Any]:
    """Like to_pylist, which takes 8 µs for a timestamp with a zone; this takes 0.3."""
    kind = column.type
    if not pa.types.is_timestamp(kind) or kind.unit != "us" or kind.tz not in _EPOCHS:
        values: list[Any] = column.to_pylist()
        return values
    epoch = _EPOCHS[kind.tz]
    since = column.to_numpy(zero_copy_only=False).view("timedelta64[us]").astype(object).tolist()
    return [None if passed is None else epoch + passed for passed in since]
