"""Spark's xxhash64 of Arrow columns, without Spark: the driver's hashes equal a Spark job's."""

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
import pyarrow as pa

Words = npt.NDArray[np.uint64]
SEED = 42  # of Spark's function
STRIPE = 32
P1, P2, P3, P4, P5 = (
    np.uint64(prime)
    for prime in (
        0x9E3779B185EBCA87, 0xC2B2AE3D27D4EB4F, 0x165667B19E3779F9, 0x85EBCA77C2B2AE63,
        0x27D4EB2F165667C5,
    )
)  # fmt: skip


def xxhash64(columns: Sequence[pa.Array]) -> npt.NDArray[np.int64]:
    """Hash the rows of columns without nulls.

    Types may be booleans, whole numbers, dates, timestamps in µs, strings and bytes.
    """
    hashes: Words = np.full(len(columns[0]), SEED, np.uint64)
    for column in columns:
        hashes = _with_column(column, hashes)
    return hashes.view(np.int64)


def _with_column(column: pa.Array, seeds: Words) -> Words:
    kind = column.type
    if pa.types.is_string(kind) or pa.types.is_binary(kind):
        return _with_bytes(column.cast(pa.binary()), seeds)
    if pa.types.is_boolean(kind):
        column = column.cast(pa.int8())
    if pa.types.is_timestamp(kind) or pa.types.is_int64(kind):
        return _with_longs(column.cast(pa.int64()).to_numpy().view(np.uint64), seeds)
    values: npt.NDArray[np.int32] = column.cast(pa.int32()).to_numpy()
    return _mixed(_with_four_bytes(seeds + P5 + np.uint64(4), values.view(np.uint32)))


def _with_longs(values: Words, seeds: Words) -> Words:
    return _mixed(_with_word(seeds + P5 + np.uint64(8), values))


def _with_bytes(column: pa.Array, seeds: Words) -> Words:
    """Hash values of the same length together."""
    _, offsets, data = column.buffers()
    starts = np.frombuffer(offsets, np.int32)[
        column.offset : column.offset + len(column) + 1
    ].astype(np.int64)
    octets = np.frombuffer(data or b"", np.uint8)
    lengths = np.diff(starts)
    if len(column) and bool((lengths == lengths[0]).all()):  # usual, and they stand side by side
        values = octets[starts[0] : starts[-1]].reshape(len(column), -1 if lengths[0] else 0)
        return _hash_one_length(values, int(lengths[0]), seeds)
    hashes = np.empty(len(column), np.uint64)
    for length in np.unique(lengths).tolist():
        own = np.flatnonzero(lengths == length)
        values = octets[starts[own, None] + np.arange(length)]
        hashes[own] = _hash_one_length(np.ascontiguousarray(values), length, seeds[own])
    return hashes


def _hash_one_length(values: npt.NDArray[np.uint8], length: int, seeds: Words) -> Words:
    whole = length // 8
    words = np.ascontiguousarray(values[:, : whole * 8]).view("<u8")
    stripes = length // STRIPE
    hashes = _hash_stripes(words, stripes, seeds) if stripes else seeds + P5
    hashes = hashes + np.uint64(length)
    for place in range(stripes * 4, whole):
        hashes = _with_word(hashes, words[:, place])
    place = whole * 8
    if place + 4 <= length:
        hashes = _with_four_bytes(
            hashes, np.ascontiguousarray(values[:, place : place + 4]).view("<u4")[:, 0]
        )
        place += 4
    for last in range(place, length):
        hashes = _rotated(hashes ^ (values[:, last].astype(np.uint64) * P5), 11) * P1
    return _mixed(hashes)


def _hash_stripes(words: Words, stripes: int, seeds: Words) -> Words:
    lanes = [seeds + P1 + P2, seeds + P2, seeds, seeds - P1]
    for stripe in range(stripes):
        lanes = [
            _rotated(lane + words[:, stripe * 4 + at] * P2, 31) * P1
            for at, lane in enumerate(lanes)
        ]
    turns = zip(lanes, (1, 7, 12, 18), strict=True)
    hashes: Words = np.sum([_rotated(lane, turn) for lane, turn in turns], axis=0, dtype=np.uint64)
    for lane in lanes:
        hashes = (hashes ^ (_rotated(lane * P2, 31) * P1)) * P1 + P4
    return hashes


def _with_word(hashes: Words, words: Words) -> Words:
    return _rotated(hashes ^ (_rotated(words * P2, 31) * P1), 27) * P1 + P4


def _with_four_bytes(hashes: Words, values: npt.NDArray[np.uint32]) -> Words:
    return _rotated(hashes ^ (values.astype(np.uint64) * P1), 23) * P2 + P3


def _mixed(hashes: Words) -> Words:
    hashes = (hashes ^ (hashes >> np.uint64(33))) * P2
    hashes = (hashes ^ (hashes >> np.uint64(29))) * P3
    return hashes ^ (hashes >> np.uint64(32))


def _rotated(values: Words, bits: int) -> Words:
    turned: Words = (values << np.uint64(bits)) | (values >> np.uint64(64 - bits))
    return turned
