"""Nested values of an Iceberg table, which pyiceberg reads otherwise than they are stored."""

from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
from pyiceberg.io.pyarrow import ArrowProjectionVisitor


class AsStored(ArrowProjectionVisitor):
    """Keeps what pyiceberg (0.12) loses: null lists and maps of structs, which it reads as empty,
    and new names of fields below a list in a list or a map.
    """

    def list(self, list_type: Any, list_array: Any, value_array: Any) -> Any:
        if value_array is None or not isinstance(list_array, (pa.ListArray, pa.LargeListArray)):
            return super().list(list_type, list_array, value_array)
        values = self._cast_if_needed(list_type.element_field, value_array)
        element = self._construct_field(list_type.element_field, values.type)
        is_large = isinstance(list_array, pa.LargeListArray)
        kind = pa.large_list(element) if is_large else pa.list_(element)
        return _with_nulls_of(
            list_array, type(list_array).from_arrays(list_array.offsets, values, kind)
        )

    def map(self, map_type: Any, map_array: Any, key_result: Any, value_result: Any) -> Any:
        if key_result is None or value_result is None:
            return None
        fields, parts = (map_type.key_field, map_type.value_field), (key_result, value_result)
        keys, values = map(self._cast_if_needed, fields, parts)
        kind = pa.map_(*map(self._construct_field, fields, (keys.type, values.type)))
        return _with_nulls_of(
            map_array, pa.MapArray.from_arrays(map_array.offsets, keys, values, kind)
        )


def _with_nulls_of(stored: pa.Array, read: pa.Array) -> pa.Array:
    if not stored.null_count:
        return read
    rows = pa.array(range(len(read)), pa.int64())
    return read.take(pc.if_else(stored.is_valid(), rows, None))
