"""Types and equality of Arrow's values at any depth, one rule for runs and checks.

A struct's field is found by its name without regard to case, as Spark finds it. All NaNs are equal,
-0.0 differs from 0.0, and maps with another order of entries differ.
"""

import datetime as dt
from collections import Counter
from collections.abc import Iterable, Iterator
from typing import Any, TypeVar

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

Rows = TypeVar("Rows", pa.Table, pa.RecordBatch)
Flags = NDArray[np.bool_]
Numbers = NDArray[np.uint64]

TEXTS_AT_ONCE = 16 << 20  # bytes, which are Python objects for a moment
# before it, times depend on the calendar of who wrote them
UNAMBIGUOUS_FROM = dt.datetime(1900, 1, 1)  # noqa: DTZ001  # Arrow casts it to any type of time
_ABSENT = np.uint64(0x9E3779B97F4A7C15)  # the digest of null, and the step of splitmix64
_MIX = ((30, 0xBF58476D1CE4E5B9), (27, 0x94D049BB133111EB))
SIGNED = {8: pa.int8(), 16: pa.int16(), 32: pa.int32(), 64: pa.int64()}  # integers by bits
_FLOATS = {pa.float16(): np.uint16, pa.float32(): np.uint32, pa.float64(): np.uint64}


def is_number(kind: pa.DataType) -> bool:
    """Return whether a type is of whole, floating or decimal numbers."""
    return bool(
        pa.types.is_integer(kind) or pa.types.is_floating(kind) or pa.types.is_decimal(kind)
    )


def _is_list(kind: pa.DataType) -> bool:
    return pa.types.is_nested(kind) and not (pa.types.is_struct(kind) or pa.types.is_map(kind))


def one_chunk(column: pa.Array | pa.ChunkedArray) -> pa.Array:
    """Return a column as a single array; a single chunk is not copied."""
    if isinstance(column, pa.ChunkedArray):
        return column.chunk(0) if column.num_chunks == 1 else column.combine_chunks()
    return column


def counts_by_value(column: pa.Array | pa.ChunkedArray) -> Counter[Any]:
    """Return the number of rows of each value."""
    counts = column.value_counts().to_pylist()
    return Counter({count["values"]: count["counts"] for count in counts})


def bunches(parts: Iterable[Rows], *, rows: int, size: int) -> Iterator[list[Rows]]:
    """Yield these parts in lists that have `rows` rows or `size` bytes; the last may have fewer.

    A caller that holds the last list while it asks for the next needs memory for both.
    """
    held: list[Rows] = []
    count = total = 0
    for part in parts:
        held.append(part)
        count, total = count + part.num_rows, total + part.nbytes
        if count >= rows or total >= size:
            yield held
            held, count, total = [], 0, 0
    if held:
        yield held


def gather(column: pa.ChunkedArray, rows: NDArray[np.int64]) -> pa.Array:
    """Return these rows of a column as a single array, in their order.

    `take` joins the chunks of the whole column first, which doubles its memory.
    """
    if column.num_chunks == 1:
        return column.chunk(0).take(pa.array(rows))
    order = np.argsort(rows, kind="stable")
    starts = np.cumsum([0, *map(len, column.chunks)])
    bounds = np.searchsorted(rows[order], starts)
    found = [
        chunk.take(pa.array(rows[order[first:last]] - start))
        for chunk, start, first, last in zip(
            column.chunks, starts, bounds, bounds[1:], strict=False
        )
        if first < last
    ]
    places = np.empty_like(order)
    places[order] = np.arange(len(rows))
    return pa.concat_arrays([pa.array([], column.type), *found]).take(pa.array(places))


def may_be_old(kind: pa.DataType) -> bool:
    inner = (kind.field(number).type for number in range(kind.num_fields))
    return pa.types.is_date(kind) or pa.types.is_timestamp(kind) or any(map(may_be_old, inner))


def is_unambiguous(values: pa.Array | pa.ChunkedArray) -> bool:
    """Return whether no date or time depends on the calendar of the program that wrote it."""
    kind = values.type
    if not may_be_old(kind):
        return True
    if pa.types.is_nested(kind):
        whole = one_chunk(values)
        if pa.types.is_map(kind):
            return is_unambiguous(whole.keys) and is_unambiguous(whole.items)
        inner = whole.flatten()
        return all(map(is_unambiguous, inner if pa.types.is_struct(kind) else [inner]))
    first, least = pa.scalar(UNAMBIGUOUS_FROM, pa.timestamp("us")).cast(kind), pc.min(values)
    return not least.is_valid or bool(pc.greater_equal(least, first).as_py())


class Unread(str):
    """The text of a value that Python cannot hold.

    Attributes:
        reason: Why it cannot, as in "the key is ...".
    """

    __slots__ = ("reason",)
    reason: str

    @classmethod
    def of(cls, text: str, reason: str) -> "Unread":
        unread = cls(text)
        unread.reason = reason
        return unread


def readable_rows(rows: pa.Table | pa.RecordBatch) -> list[dict[str, Any]]:
    """Return the rows as Python's values, as `readable_values` does."""
    columns = [readable_values(column) for column in rows.columns]
    return [dict(zip(rows.column_names, row, strict=True)) for row in zip(*columns, strict=True)]


def readable_values(column: pa.Array | pa.ChunkedArray) -> list[Any]:
    """Return the values of a column as Python's, with an `Unread` for each that Python cannot hold.

    These are texts that are not UTF-8, and dates and times outside the years 1 to 9999.
    """
    try:
        values: list[Any] = column.to_pylist()
    except (UnicodeDecodeError, OverflowError):
        return list(map(_readable, column))
    return values


def _readable(scalar: pa.Scalar) -> Any:
    try:
        return scalar.as_py()
    except (UnicodeDecodeError, OverflowError):
        if isinstance(scalar, pa.DictionaryScalar):
            return _readable(scalar.value)
        if isinstance(scalar, pa.StructScalar):
            return {name: _readable(value) for name, value in scalar.items()}
        if isinstance(scalar, pa.StringScalar):
            return Unread.of(repr(scalar.as_buffer().to_pybytes()), "not UTF-8 text")
        if not pa.types.is_nested(scalar.type):
            return Unread.of(scalar.cast(pa.string()).as_py(), "outside the years 1 to 9999")
        return Unread.of(f"a {scalar.type}", "not to be read")


def conform(column: pa.Array, kind: pa.DataType, *, safe: bool = True) -> pa.Array:
    """Cast a column. A field that its structs lack is null; other fields are left out.

    Raises:
        ArrowException: A value does not fit.
    """
    if column.type != kind and isinstance(column.type, pa.BaseExtensionType):
        column = column.storage
    if column.type == kind or not pa.types.is_nested(kind) or not pa.types.is_nested(column.type):
        return column if column.type == kind else _cast(column, kind, safe=safe)
    if pa.types.is_struct(kind) and pa.types.is_struct(column.type):
        given = {
            field.name.lower(): part
            for field, part in zip(column.type, column.flatten(), strict=True)
        }
        parts = [
            conform(given[field.name.lower()], field.type, safe=safe)
            if field.name.lower() in given
            else pa.nulls(len(column), field.type)
            for field in kind
        ]
        if not parts:
            return column.cast(kind)
        return pa.StructArray.from_arrays(parts, fields=list(kind), mask=column.is_null())
    if pa.types.is_map(kind) and pa.types.is_map(column.type):
        entries = _as_list(column)
        parts = conform(entries.flatten(), _entry(kind), safe=safe).flatten()
        return pa.MapArray.from_arrays(_offsets(entries), *parts, type=kind, mask=column.is_null())
    if not (_is_list(kind) and _is_list(column.type)):
        return _cast(column, kind, safe=safe)
    items = conform(column.flatten(), kind.value_type, safe=safe)
    lists = pa.LargeListArray.from_arrays(
        _offsets(column), items, type=pa.large_list(kind.value_field), mask=column.is_null()
    )
    return lists.cast(kind)


def conform_rows(rows: pa.RecordBatch, types: pa.Schema, *, safe: bool = True) -> pa.RecordBatch:
    """Return the rows with these columns, as `conform` does for the fields of a struct."""
    fields = conform(rows.to_struct_array(), pa.struct(list(types)), safe=safe).flatten()
    return pa.RecordBatch.from_arrays(fields, schema=types)


def without_views(column: pa.Array) -> pa.Array:
    """Return a column without Arrow's views, which delta-rs writes and few of pyarrow's functions
    take.
    """
    return conform(column, _kind_without_views(column.type))


def _kind_without_views(kind: pa.DataType) -> pa.DataType:
    if pa.types.is_string_view(kind):
        return pa.string()
    if pa.types.is_binary_view(kind):
        return pa.binary()
    if pa.types.is_struct(kind):
        return pa.struct([field.with_type(_kind_without_views(field.type)) for field in kind])
    if pa.types.is_list(kind):
        return pa.list_(kind.value_field.with_type(_kind_without_views(kind.value_type)))
    if pa.types.is_map(kind):
        return pa.map_(_kind_without_views(kind.key_type), _kind_without_views(kind.item_type))
    return kind


def _cast(column: pa.Array, kind: pa.DataType, *, safe: bool) -> pa.Array:
    types = pa.types
    if types.is_string(kind) and (
        types.is_binary(column.type) or types.is_large_binary(column.type)
    ):
        return column.cast(pa.binary()).view(kind)  # also of bytes that are no text, as in Spark
    return column.cast(kind, safe=safe)


def plus_zero(column: pa.Array) -> pa.Array:
    """Return a column with 0.0 for each -0.0, at any depth, as Spark compares and groups keys."""
    kind = column.type
    if pa.types.is_floating(kind):
        return pc.add(column, pa.scalar(0.0, kind))
    if pa.types.is_struct(kind) and kind.num_fields:
        parts = [plus_zero(part) for part in column.flatten()]
        return pa.StructArray.from_arrays(parts, fields=list(kind), mask=column.is_null())
    if pa.types.is_list(kind):
        items = plus_zero(column.flatten())
        return pa.ListArray.from_arrays(_offsets(column), items, type=kind, mask=column.is_null())
    return column


def differ(one: pa.Array, other: pa.Array) -> Flags:
    """Return the rows in which two columns differ. Nulls are equal."""
    plain = not pa.types.is_nested(one.type) and not pa.types.is_floating(one.type)
    if plain and one.type == other.type and one.equals(other):  # which needs no digest
        return np.zeros(len(one), np.bool_)
    found: Flags = digest([one]) != digest([other])
    return found


def digest(columns: Iterable[pa.Array]) -> Numbers:
    """Return a 64-bit digest of each row over these columns in order, the same in every process.

    Different values have different digests.
    """
    found: Numbers = np.zeros(1, np.uint64)
    for column in columns:
        found = _mixed(found + _digest(column))
    return found


def _mixed(numbers: Numbers) -> Numbers:
    """Return the finalizer of splitmix64: one to one, every bit changes about half of all bits."""
    numbers = numbers + _ABSENT
    for shift, factor in _MIX:
        numbers = (numbers ^ (numbers >> np.uint64(shift))) * np.uint64(factor)
    return numbers ^ (numbers >> np.uint64(31))


def _digest(column: pa.Array) -> Numbers:
    kind = column.type
    if isinstance(kind, pa.BaseExtensionType):
        return _digest(column.storage)
    if pa.types.is_null(kind):
        return np.full(len(column), _ABSENT, np.uint64)
    if pa.types.is_struct(kind):
        found = digest(column.flatten()) if kind.num_fields else np.zeros(len(column), np.uint64)
        found = np.broadcast_to(found, len(column))
    elif pa.types.is_nested(kind):
        found = _digest_items(column)
    elif pa.types.is_dictionary(kind):
        places = pc.fill_null(column.indices, 0).to_numpy(zero_copy_only=False)
        found = (
            _digest(column.dictionary)[places]
            if len(column.dictionary)
            else np.zeros(len(column), np.uint64)
        )
    elif pa.types.is_floating(kind):
        found = _digest_floats(column)
    elif pa.types.is_decimal(kind) or pa.types.is_fixed_size_binary(kind):
        found = _digest_texts(column.cast(pa.string()) if pa.types.is_decimal(kind) else column)
    elif pa.types.is_primitive(kind):
        bits = pa.int8() if pa.types.is_boolean(kind) else SIGNED[kind.bit_width]
        whole = column.cast(bits) if pa.types.is_boolean(kind) else column.view(bits)
        found = _mixed(
            pc.fill_null(whole, 0).to_numpy(zero_copy_only=False).astype(np.int64).view(np.uint64)
        )
    else:
        found = _digest_texts(column)
    if column.null_count:
        found = np.where(column.is_null().to_numpy(zero_copy_only=False), _ABSENT, found)
    return found


def _digest_floats(column: pa.Array) -> Numbers:
    values = pc.fill_null(column, 0.0).to_numpy(zero_copy_only=False)
    values = np.where(np.isnan(values), np.array(np.nan, values.dtype), values)
    return _mixed(values.view(_FLOATS[column.type]).astype(np.uint64))


def _digest_texts(column: pa.Array) -> Numbers:
    """Hash texts or bytes, each distinct value once in some MB, at the speed of Python's hash."""
    rows = max(1, len(column) // (1 + column.nbytes // TEXTS_AT_ONCE))
    pieces = (column.slice(first, rows) for first in range(0, max(1, len(column)), rows))
    return np.concatenate([_digest_some_texts(piece) for piece in pieces])


def _digest_some_texts(column: pa.Array) -> Numbers:
    distinct = pc.dictionary_encode(column)
    values = np.array(_as_bytes(distinct.dictionary).to_pylist(), object)
    hashes = hash_objects(values).view(np.int64)
    return _digest(pa.DictionaryArray.from_arrays(distinct.indices, pa.array(hashes, pa.int64())))


def hash_objects(values: NDArray[np.object_]) -> NDArray[np.uint64]:
    """Return a 64-bit hash of each text or bytes, the same in every process, computed in bulk."""
    # the package itself: if a thread begins with its module, and another thread imports the
    # package meanwhile, Python ends one of the two with a _DeadlockError
    import pandas as pd  # type: ignore[import-untyped]

    hashes: NDArray[np.uint64] = pd.util.hash_array(values, categorize=False)
    return hashes


def _as_bytes(texts: pa.Array) -> pa.Array:
    if pa.types.is_string(texts.type) or pa.types.is_string_view(texts.type):
        return texts.cast(pa.binary())
    return texts.cast(pa.large_binary())


def _digest_items(column: pa.Array) -> Numbers:
    column = _as_list(column)
    items, ends = column.flatten(), _offsets(column).to_numpy().astype(np.int64)
    starts, ends = ends[:-1], ends[1:]
    counts = ends - starts
    places = (np.arange(len(items)) - np.repeat(starts, counts)).astype(np.uint64)
    sums = np.concatenate(
        [np.zeros(1, np.uint64), np.cumsum(_mixed(_digest(items) + _mixed(places)))]
    )
    return _mixed(sums[ends] - sums[starts] + _mixed(counts.astype(np.uint64)))


def _as_list(column: pa.Array) -> pa.Array:
    """Return a map as the list of its entries."""
    if not pa.types.is_map(column.type):
        return column
    # a cast, of pyarrow 26, loses the end of lists without a type
    fields = list(_entry(column.type))
    entries = pa.StructArray.from_arrays([column.keys, column.items], fields=fields)
    offsets = pa.array(column.offsets.to_numpy())  # without the offset of a slice
    return pa.ListArray.from_arrays(offsets, entries, mask=column.is_null())


def _entry(kind: pa.MapType) -> pa.StructType:
    return pa.struct(
        [pa.field("key", kind.key_type, nullable=False), pa.field("value", kind.item_type)]
    )


def _offsets(column: pa.Array) -> pa.Int32Array:
    """Return where each list begins in `column.flatten()`, and where the last list ends."""
    counts = pc.fill_null(pc.list_value_length(column), 0).to_numpy(zero_copy_only=False)
    return pa.array(np.concatenate([np.zeros(1, np.int64), np.cumsum(counts)]), pa.int32())
