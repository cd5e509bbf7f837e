"""Random tables of nested types, in files of several writers."""

import datetime as dt
import math
import string
from decimal import Decimal

import pyarrow as pa
import pyarrow.parquet as pq

LEAVES = (
    pa.bool_(), pa.int8(), pa.int16(), pa.int32(), pa.int64(), pa.uint8(), pa.uint32(), pa.uint64(),
    pa.float32(), pa.float64(), pa.string(), pa.large_string(), pa.string_view(), pa.binary(),
    pa.large_binary(), pa.binary_view(), pa.binary(3), pa.date32(), pa.timestamp("us"),
    pa.timestamp("us", "UTC"), pa.timestamp("ms", "Europe/Berlin"), pa.decimal128(12, 3),
    pa.decimal128(38, 10), pa.dictionary(pa.int32(), pa.string()), pa.duration("us"),
)  # fmt: skip
OF_SPARK = (
    pa.bool_(), pa.int8(), pa.int16(), pa.int32(), pa.int64(), pa.float32(), pa.float64(),
    pa.string(), pa.binary(), pa.date32(), pa.timestamp("us"), pa.timestamp("us", "UTC"),
    pa.decimal128(12, 3), pa.decimal128(38, 10),
)  # fmt: skip
LISTS = (pa.list_, pa.large_list, pa.list_view, pa.large_list_view, lambda kind: pa.list_(kind, 2))
FIRST = dt.datetime(1, 1, 2)  # noqa: DTZ001
MICROS = 315_000_000_000_000_000  # to the year 9983


def draw_kind(draw, depth=0, leaves=LEAVES):
    """A type of at most three levels."""
    form = draw.choice(["leaf", "list", "struct", "map"]) if depth < 3 else "leaf"
    if form == "leaf":
        # pyarrow does not write views in lists
        return draw.choice([leave for leave in leaves if depth == 0 or "view" not in str(leave)])
    if form == "list":
        lists = LISTS[:1] if leaves is OF_SPARK else LISTS
        return draw.choice(lists)(draw_kind(draw, depth + 1, leaves))
    if form == "map":
        keys = [kind for kind in leaves if kind in (pa.string(), pa.int32(), pa.date32())]
        return pa.map_(draw.choice(keys), draw_kind(draw, depth + 1, leaves))
    names = draw.sample(["a", "B", "c d", "e", "Ü"], draw.randint(1, 3))
    return pa.struct([(name, draw_kind(draw, depth + 1, leaves)) for name in names])


def draw_value(draw, kind, *, nulls=0.2):  # noqa: PLR0911  # a type each
    of = pa.types
    if draw.random() < nulls:
        return None
    if of.is_struct(kind):
        return {field.name: draw_value(draw, field.type) for field in kind}
    if of.is_map(kind):
        keys = [draw_value(draw, kind.key_type, nulls=0) for _ in range(draw.randrange(4))]
        return [(key, draw_value(draw, kind.item_type)) for key in dict.fromkeys(keys)]
    if of.is_nested(kind):
        count = kind.list_size if of.is_fixed_size_list(kind) else draw.randrange(4)
        return [draw_value(draw, kind.value_type) for _ in range(count)]
    if of.is_dictionary(kind):
        return draw.choice(["one", "two", ""])
    if of.is_boolean(kind):
        return draw.random() < 0.5
    if of.is_integer(kind):
        signed = not of.is_unsigned_integer(kind)
        low = -(2 ** (kind.bit_width - 1)) if signed else 0
        return draw.choice([low, low + 2**kind.bit_width - 1, 0, 7])
    if of.is_floating(kind):
        return draw.choice([0.0, -0.0, math.nan, math.inf, 1.5])
    if of.is_decimal(kind):
        return Decimal(draw.randint(-(10**11), 10**11)).scaleb(-kind.scale)
    if of.is_date(kind):
        return FIRST.date() + dt.timedelta(days=draw.randrange(3_600_000))
    if of.is_duration(kind):
        return dt.timedelta(microseconds=draw.randrange(-(10**15), 10**15))
    if of.is_timestamp(kind):
        step = 1000 if kind.unit == "ms" else 1
        return FIRST + dt.timedelta(microseconds=draw.randrange(MICROS) // step * step)
    if of.is_fixed_size_binary(kind):
        return draw.randbytes(3)
    if of.is_binary(kind) or of.is_large_binary(kind) or of.is_binary_view(kind):
        return draw.randbytes(draw.randrange(6))
    return "".join(draw.choice("ab ß漢😀\x00'\"") for _ in range(draw.randrange(8)))


def draw_kinds(draw, leaves=LEAVES, most=6):
    """Types of some columns, by name."""
    names = draw.sample(string.ascii_lowercase, draw.randint(1, most))
    return {f"{name}_nested": draw_kind(draw, leaves=leaves) for name in names}


def draw_columns(draw, kinds, rows):
    return {
        name: pa.array([draw_value(draw, kind) for _ in range(rows)], kind)
        for name, kind in kinds.items()
    }


def write_by_arrow(draw, table, path):
    pq.write_table(
        table,
        path,
        store_schema=draw.random() < 0.5,
        use_deprecated_int96_timestamps=draw.random() < 0.5,
        use_compliant_nested_type=draw.random() < 0.5,
        row_group_size=draw.choice([40, 1_000]),
    )
