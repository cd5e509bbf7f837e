"""Types of Delta columns: their names, and the types into which a table's column may grow."""

from typing import Any

from deltalake.schema import ArrayType, MapType, PrimitiveType, StructType


def type_name(kind: Any) -> str:
    """Return Spark's name of a type, such as `array<string>`."""
    match kind:
        case PrimitiveType():
            return str(kind.type)
        case ArrayType():
            return f"array<{type_name(kind.element_type)}>"
        case MapType():
            return f"map<{type_name(kind.key_type)}, {type_name(kind.value_type)}>"
        case StructType():
            fields = ", ".join(f"{field.name}: {type_name(field.type)}" for field in kind.fields)
            return f"struct<{fields}>"
    return str(kind)


def extends(known: Any, wanted: Any) -> bool:
    """Return whether a column of type `known` becomes `wanted` only by new fields in structs."""
    match known, wanted:
        case StructType(), StructType():
            fields = {field.name: field.type for field in wanted.fields}
            return all(
                field.name in fields and extends(field.type, fields[field.name])
                for field in known.fields
            )
        case ArrayType(), ArrayType():
            return extends(known.element_type, wanted.element_type)
        case MapType(), MapType():
            return bool(
                known.key_type == wanted.key_type and extends(known.value_type, wanted.value_type)
            )
    return bool(known == wanted)
