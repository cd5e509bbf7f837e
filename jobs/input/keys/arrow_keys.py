"""Key values of Arrow columns as Python objects."""

import datetime as dt
import zoneinfo
from collections.abc import Sequence
from typing import Any

import pyarrow as pa

from jobs.declare.answers.times import shown

_EPOCHS = {
    None: dt.datetime(1970, 1, 1),  # noqa: DTZ001
    "UTC": dt.datetime(1970, 1, 1, tzinfo=zoneinfo.ZoneInfo("UTC")),
}


class UnreadKey(tuple[Any, ...]):
    """A key with a text whose bytes are not UTF-8; each such byte is a lone surrogate in it."""

    __slots__ = ()

    def reason(self, names: Sequence[str]) -> str:
        """Return a sentence that names the first such part, with its bytes."""
        for name, value in zip(names, self, strict=True):
            if not _is_utf8(value):
                return (
                    f"key {name} is not UTF-8 text: "
                    f"{shown(value.encode('utf-8', 'surrogateescape'))}"
                )
        raise AssertionError(names)


def read_key_tuples(
    batch: pa.RecordBatch, names: Sequence[str], *, nulls: bool = False
) -> list[Any]:
    """Return a tuple per row, or None if a part is null and nulls are not requested as values.

    A key with a text that is not UTF-8 is an UnreadKey.
    """
    try:
        keys = list(zip(*(to_values(batch.column(name)) for name in names), strict=True))
    except UnicodeDecodeError:
        columns = [_escaped_texts(batch.column(name)) for name in names]
        keys = [
            key if all(map(_is_utf8, key)) else UnreadKey(key) for key in zip(*columns, strict=True)
        ]
    if nulls or not any(batch.column(name).null_count for name in names):
        return keys
    return [None if None in key else key for key in keys]


def _escaped_texts(column: pa.Array) -> list[Any]:
    if not pa.types.is_string(column.type):
        return to_values(column)
    octets = column.view(pa.binary()).to_pylist()
    return [None if text is None else text.decode("utf-8", "surrogateescape") for text in octets]


def _is_utf8(value: Any) -> bool:
    if not isinstance(value, str):
        return True
    try:
        value.encode()
    except UnicodeEncodeError:
        return False
    return True


def to_values(column: pa.Array) -> list[Any]:
    """Like to_pylist, which takes 8 µs for a timestamp with a zone; this takes 0.3."""
    kind = column.type
    if not pa.types.is_timestamp(kind) or kind.unit != "us" or kind.tz not in _EPOCHS:
        values: list[Any] = column.to_pylist()
        return values
    epoch = _EPOCHS[kind.tz]
    since = column.to_numpy(zero_copy_only=False).view("timedelta64[us]").astype(object).tolist()
    return [None if passed is None else epoch + passed for passed in since]
