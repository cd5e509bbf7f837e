"""A 64-bit digest for each value of an Arrow array of any type: different values have different digests."""

from collections.abc import Iterable

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

Numbers = NDArray[np.uint64]

_ABSENT = np.uint64(0x9E3779B97F4A7C15)  # the digest of null, and the step of splitmix64
_MIX = ((30, 0xBF58476D1CE4E5B9), (27, 0x94D049BB133111EB))
_FLOATS = {pa.float16(): np.uint16, pa.float32(): np.uint32, pa.float64(): np.uint64}


def digest(columns: Iterable[pa.Array]) -> Numbers:
    """One digest per row over these columns in order. All NaNs are equal, -0.0 differs from 0.0, and maps with another
    order of entries differ. Digests compare only within a process.
    """
    found: Numbers = np.zeros(1, np.uint64)
    for column in columns:
        found = _mixed(found + _digest(column))
    return found


def _mixed(numbers: Numbers) -> Numbers:
    """The finalizer of splitmix64: one to one, every bit changes about half of all bits."""
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
        found = _of_items(column)
    elif pa.types.is_dictionary(kind):
        places = pc.fill_null(column.indices, 0).to_numpy(zero_copy_only=False)
        found = _digest(column.dictionary)[places] if len(column.dictionary) else np.zeros(len(column), np.uint64)
    elif pa.types.is_floating(kind):
        found = _of_floats(column)
    elif pa.types.is_decimal(kind) or pa.types.is_fixed_size_binary(kind):
        found = _of_texts(column.cast(pa.string()) if pa.types.is_decimal(kind) else column)
    elif pa.types.is_primitive(kind):
        bits = pa.int8() if pa.types.is_boolean(kind) else _bits(kind.bit_width)
        whole = column.cast(bits) if pa.types.is_boolean(kind) else column.view(bits)
        found = _mixed(pc.fill_null(whole, 0).to_numpy(zero_copy_only=False).astype(np.int64).view(np.uint64))
    else:
        found = _of_texts(column)
    if column.null_count:
        found = np.where(column.is_null().to_numpy(zero_copy_only=False), _ABSENT, found)
    return found


def _bits(width: int) -> pa.DataType:
    return {8: pa.int8(), 16: pa.int16(), 32: pa.int32(), 64: pa.int64()}[width]


def _of_floats(column: pa.Array) -> Numbers:
    values = pc.fill_null(column, 0.0).to_numpy(zero_copy_only=False)
    values = np.where(np.isnan(values), np.array(np.nan, values.dtype), values)
    return _mixed(values.view(_FLOATS[column.type]).astype(np.uint64))


def _of_texts(column: pa.Array) -> Numbers:
    """Each distinct text or value of bytes is hashed once."""
    distinct = pc.dictionary_encode(column)
    hashes = [hash(value) for value in _as_bytes(distinct.dictionary).to_pylist()]
    return _digest(pa.DictionaryArray.from_arrays(distinct.indices, pa.array(hashes, pa.int64())))


def _as_bytes(texts: pa.Array) -> pa.Array:
    if pa.types.is_string(texts.type) or pa.types.is_string_view(texts.type):
        return texts.cast(pa.binary())
    return texts.cast(pa.large_binary())


def _of_items(column: pa.Array) -> Numbers:
    if pa.types.is_map(column.type):
        entry = pa.struct([pa.field("key", column.type.key_type), pa.field("value", column.type.item_type)])
        column = column.cast(pa.list_(entry))
    items = column.flatten()
    counts = pc.fill_null(pc.list_value_length(column), 0).to_numpy(zero_copy_only=False).astype(np.int64)
    ends = np.cumsum(counts)
    places = (np.arange(len(items)) - np.repeat(ends - counts, counts)).astype(np.uint64)
    sums = np.concatenate([np.zeros(1, np.uint64), np.cumsum(_mixed(_digest(items) + _mixed(places)))])
    return _mixed(sums[ends] - sums[ends - counts] + _mixed(counts.astype(np.uint64)))
