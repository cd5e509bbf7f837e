"""The frames that `enrich` takes without Spark: reads columns, and puts answers beside them."""

import datetime as dt
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from numbers import Number
from typing import Any

import pyarrow as pa

from jobs.errors import DeclarationError
from jobs.wording import listed

TAKES = "enrich takes a DataFrame of Spark, pandas or Polars, or a Table or RecordBatch of Arrow"
CURES = {  # by the suffix of a type's name
    "LazyFrame": "Call collect() on it.",
    "RecordBatchReader": "Call read_all() on it.",
    "Dataset": "Call to_table() on it.",
    "Series": "Call to_frame() on it.",
    "pyspark.pandas.frame.DataFrame": "Call to_spark() on it.",
}
ONE_TYPE = "Give it one type, as with astype."
NOT_IN_ARROW = ("Object", "Int128", "UInt128")  # Polars gives the address of an Object as its bytes
KEY_TYPES = (  # nested ones are for Spark
    pa.types.is_boolean, pa.types.is_integer, pa.types.is_floating,
    pa.types.is_string, pa.types.is_binary, pa.types.is_fixed_size_binary, pa.types.is_date,
    pa.types.is_timestamp,
    lambda kind: pa.types.is_decimal128(kind) and kind.scale >= 0,
    lambda kind: pa.types.is_nested(kind) and not pa.types.is_run_end_encoded(kind),
)  # fmt: skip
NO_KEYS = (pa.uint64(), pa.float16())
# values that Arrow makes bytes, days and times of, in an object column
CHANGED = {pa.binary(): str, pa.date32(): dt.datetime | Number}
CHANGED_TO_TIMES = Number  # also Decimal, and those of numpy
BELOW_A_MICROSECOND = "has times below a microsecond, which no key can have; round them."
OTHER_CURE = "What has Arrow's C stream becomes a table by pyarrow.table(...)."


@dataclass(frozen=True)
class FrameKind:
    """A kind of frame.

    Attributes:
        names: Returns the names of a frame's columns.
        read: Returns these columns as an Arrow table.
        put_beside: Returns the frame with further columns.
    """

    names: Callable[[Any], list[Any]]
    read: Callable[[Any, Sequence[str]], pa.Table]
    put_beside: Callable[[Any, pa.Table], Any]


def frame_kind(frame: Any) -> FrameKind:
    """Return the kind of a frame.

    Raises:
        DeclarationError: `enrich` does not take the frame; the message has the cure.
    """
    for kind in type(frame).__mro__:
        known = KINDS.get((kind.__module__.partition(".")[0], kind.__name__))
        if known is not None and not kind.__module__.startswith("pyspark"):
            return known
    name = f"{type(frame).__module__}.{type(frame).__qualname__}"
    cure = next((cure for end, cure in CURES.items() if name.endswith(end)), OTHER_CURE)
    raise DeclarationError(f"{TAKES}; this is a {name}. {cure}")


def is_spark(frame: Any) -> bool:
    """Return whether the frame is a DataFrame of Spark or Spark Connect."""
    modules = {kind.__module__ for kind in type(frame).__mro__ if kind.__name__ == "DataFrame"}
    return any(module.startswith("pyspark.sql") for module in modules)


def as_input(columns: pa.Table) -> pa.Table:
    """Return the columns in types that a file of an input can have.

    Raises:
        DeclarationError: A time has a part below a microsecond, or is too far away.
    """
    return pa.table({name: _plain(name, columns[name]) for name in columns.column_names})


def _plain(name: str, column: pa.ChunkedArray) -> pa.ChunkedArray:
    of, kind = pa.types, column.type
    if of.is_dictionary(kind):
        return _plain(name, column.cast(kind.value_type))
    if of.is_large_string(kind) or of.is_string_view(kind) or of.is_null(kind):
        return column.cast(pa.string())
    if of.is_large_binary(kind) or of.is_binary_view(kind):
        return column.cast(pa.binary())
    if of.is_timestamp(kind):
        try:
            return column.cast(pa.timestamp("us", kind.tz))
        except pa.ArrowInvalid as error:
            raise DeclarationError(
                f"frame: {name!r} {BELOW_A_MICROSECOND}"
                if kind.unit == "ns"
                else f"frame: {name!r} has times outside the years -290308 to 294247, which 64 "
                "bits of microseconds cannot count. Replace them, such as by null."
            ) from error
    if kind in NO_KEYS or not any(is_one(kind) for is_one in KEY_TYPES):
        raise DeclarationError(f"frame: {name!r} is {kind}, which no key can have. Cast it.")
    return column


# -- Arrow -----------------------------------------------------------------------------------------
def _with_arrays(table: pa.Table, answers: pa.Table) -> pa.Table:
    for field, column in zip(answers.schema, answers.columns, strict=True):
        table = table.append_column(field, column)
    return table


def _with_arrays_of_batch(batch: pa.RecordBatch, answers: pa.Table) -> pa.RecordBatch:
    arrays = [column.combine_chunks() for column in answers.columns]
    schema = pa.schema([*batch.schema, *answers.schema], metadata=batch.schema.metadata)
    return pa.RecordBatch.from_arrays([*batch.columns, *arrays], schema=schema)


# -- pandas ----------------------------------------------------------------------------------------
def _read_pandas(frame: Any, names: Sequence[str]) -> pa.Table:
    try:
        read = frame[list(names)].copy(deep=False)
        for name in names:
            if _has_objects_for_categories(read[name]):  # of any types, too
                read[name] = read[name].astype(object)
            if read[name].dtype == object:  # of NaNs, Arrow takes only those of 64 bits for null
                read[name] = read[name].where(read[name].notna(), None)
        columns = pa.Table.from_pandas(read, preserve_index=False)
    except UnicodeEncodeError as error:
        raise DeclarationError(
            f"frame: one of the columns {listed(names)} has a text that is not Unicode: "
            f"{error.reason}. Replace what is broken in it."
        ) from error
    except (pa.ArrowException, TypeError, OverflowError) as error:
        raise DeclarationError(
            f"frame: one of the columns {listed(names)} has values of several types, or of one "
            f"that no key can have: {error.args[0]}. {ONE_TYPE}"
        ) from error
    for name in names:
        _refuse_converted(name, read[name], columns[name])
    return columns


def _has_objects_for_categories(values: Any) -> bool:
    return bool(values.dtype == "category" and values.cat.categories.dtype == object)


def _refuse_converted(name: str, values: Any, column: pa.ChunkedArray) -> None:
    """Raise DeclarationError where Arrow made bytes of texts, dates of times, or times of numbers,
    took times without a zone for those of UTC, or left out nanoseconds.
    """
    is_time = pa.types.is_timestamp(column.type)
    changed = CHANGED_TO_TIMES if is_time else CHANGED.get(column.type)
    if values.dtype != object or changed is None:
        return
    present = values[column.is_valid().to_numpy()]
    if any(isinstance(value, changed) for value in present):
        raise DeclarationError(
            f"frame: {name!r} has values of type {column.type} and others, which are not the same "
            f"as {column.type}. {ONE_TYPE}"
        )
    if is_time and len({getattr(value, "tzinfo", None) is None for value in present}) > 1:
        raise DeclarationError(
            f"frame: {name!r} has times with a zone and times without. Give all of them a zone."
        )
    if is_time and any(getattr(value, "nanosecond", 0) for value in present):
        raise DeclarationError(f"frame: {name!r} {BELOW_A_MICROSECOND}")


def _with_series(frame: Any, answers: pa.Table) -> Any:
    import pandas as pd  # type: ignore[import-untyped]  # pandas ships no types

    nullable = {
        pa.int8(): pd.Int8Dtype(), pa.int16(): pd.Int16Dtype(), pa.int32(): pd.Int32Dtype(),
        pa.int64(): pd.Int64Dtype(), pa.bool_(): pd.BooleanDtype(),
    }  # fmt: skip  # otherwise whole numbers beside a null become floats, which lose digits
    found = answers.to_pandas(
        types_mapper=nullable.get, date_as_object=True, integer_object_nulls=True
    )
    enriched = frame.copy(deep=False)
    for name in answers.column_names:
        enriched[name] = found[name].array
    return enriched


# -- Polars ----------------------------------------------------------------------------------------
def _read_polars(frame: Any, names: Sequence[str]) -> pa.Table:
    columns = frame.select(names)
    for name, kind in columns.schema.items():
        if str(kind) in NOT_IN_ARROW:
            raise DeclarationError(f"frame: {name!r} is {kind}, which no key can have. Cast it.")
    return columns.to_arrow()


def _with_polars(frame: Any, answers: pa.Table) -> Any:
    from polars import DataFrame

    return frame.hstack(DataFrame(answers).get_columns())


KINDS = {  # by package and name of the class
    ("pyarrow", "Table"): FrameKind(
        lambda table: table.column_names, lambda table, names: table.select(names), _with_arrays
    ),
    ("pyarrow", "RecordBatch"): FrameKind(
        lambda batch: batch.schema.names,
        lambda batch, names: pa.Table.from_batches([batch]).select(names),
        _with_arrays_of_batch,
    ),
    ("pandas", "DataFrame"): FrameKind(
        lambda frame: list(frame.columns), _read_pandas, _with_series
    ),
    ("polars", "DataFrame"): FrameKind(lambda frame: frame.columns, _read_polars, _with_polars),
}
