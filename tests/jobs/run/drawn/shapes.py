"""The columns of a day's files, which may come, change and go; and what a published table takes.

Nothing here imports the product.
"""

from dataclasses import dataclass, field, replace
from decimal import Decimal

import pyarrow as pa

TEXT = pa.string()
PARTS = [pa.struct([(name, pa.int64()) for name in "abc"[: many + 1]]) for many in range(3)]
# column -> its types, each of which holds the values of those before: of Arrow and Spark's DDL
MORE = {
    "more_int": [
        (pa.int16(), "SMALLINT"), (pa.int32(), "INT"), (pa.int64(), "BIGINT"),
        (pa.decimal128(20, 0), "DECIMAL(20,0)"),
    ],
    "more_float": [(pa.float32(), "FLOAT"), (pa.float64(), "DOUBLE")],
    "more_text": [(pa.binary(), "BINARY"), (TEXT, "STRING")],
    "more_parts": [
        (PARTS[0], "STRUCT<a: BIGINT>"), (PARTS[1], "STRUCT<a: BIGINT, b: BIGINT>"),
        (PARTS[2], "STRUCT<a: BIGINT, b: BIGINT, c: BIGINT>"),
    ],
}  # fmt: skip
UNTYPED = -1  # a column of nulls that was written without a type
FORMS = {"json": ("more_int", "more_float", "more_parts"), "csv": ("more_int", "more_float")}


@dataclass(frozen=True)
class Shape:
    """The columns of a day's files.

    Attributes:
        lacks: The usual columns that are not there.
        more: Further columns, each with the place of its type.
        cased: A column whose name is in capitals; empty for none.
    """

    lacks: frozenset[str] = frozenset()
    more: dict[str, int] = field(default_factory=dict)
    cased: str = ""

    def changed(self, draws, columns, form, known):
        """One or two changes: columns come, change their type or go; at a table of these columns."""
        shape = self
        for _ in range(draws.choice((1, 1, 2))):
            what, name = draws.random(), draws.choice([*columns])
            if what < 0.25:
                shape = replace(shape, lacks=shape.lacks ^ {name})
            elif what < 0.35 and form == "parquet" and name in {*known} - shape.lacks:
                shape = replace(shape, cased=name)
            else:
                name = draws.choice(FORMS.get(form, (*MORE,)))
                more = {other: place for other, place in shape.more.items() if other != name}
                if name not in shape.more or draws.random() < 0.7:
                    least = UNTYPED if form == "parquet" else 0
                    more[name] = draws.randrange(least, len(MORE[name]))
                shape = replace(shape, more=more)
        return shape

    def row(self, row, draws):
        """The row with these columns, and null in others."""
        found = row | dict.fromkeys(self.lacks)
        for name in MORE:
            place = self.more.get(name, UNTYPED)
            is_null = place == UNTYPED or draws.random() < 0.2
            found[name] = None if is_null else _value(draws, name, place)
        return found

    def refused(self, known, read):
        """Why a run refuses it at a table of these columns, with lookups that read these; or empty."""
        if self.lacks & read:
            return f"{sorted(self.lacks & read)} are read, and the files lack them"
        if self.cased in known:
            return f"{self.cased} is spelled otherwise"
        for name, place in self.more.items():
            known_place = known.get(name)
            if known_place is None and place == UNTYPED:
                return f"{name} has no type"
            if known_place is not None and name != "more_parts" and place > known_place:
                return f"{name} is wider than in the table"
        return ""

    def in_table(self, known, columns):
        """The columns of a table, each with the place of its type, after a day of the shape."""
        found = {name: 0 for name in columns if name not in self.lacks} | known
        for name, place in self.more.items():
            known_place = found.get(name, place)
            found[name] = max(place, known_place) if name == "more_parts" else known_place
        return found


def _value(draws, name, place):
    few = draws.randrange(-9, 9)
    parts = {part: draws.choice((few, None)) for part in "abc"[: place + 1]}
    values = {"more_int": few, "more_float": few / 4, "more_text": f"ä {few}", "more_parts": parts}
    return values[name]


def in_type(name, value, place):
    """A value as a table shows it whose column has the type of a place."""
    if value is None:
        return None
    if name == "more_int" and place == len(MORE[name]) - 1:
        return Decimal(value)
    if name == "more_text" and not place:
        return value.encode()
    if name == "more_parts":
        return {part: value.get(part) for part in "abc"[: place + 1]}
    return value
