"""Writes the rows of a drawn declaration as files of its format, in every way that is allowed."""

import contextlib
import datetime as dt
import gzip
import json
import math
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from tests.jobs.run.drawn.shapes import MORE, UNTYPED

COLUMNS = {  # name -> kind of its values
    "k": "text", "number": "number", "x": "double", "money": "decimal", "day": "date",
    "at": "time", "yes": "bool",
}  # fmt: skip
TYPES = {  # of Arrow, and of Spark's DDL
    "text": (pa.string(), "STRING"), "number": (pa.int64(), "BIGINT"),
    "double": (pa.float64(), "DOUBLE"), "bool": (pa.bool_(), "BOOLEAN"),
    "decimal": (pa.decimal128(20, 4), "DECIMAL(20,4)"), "date": (pa.date32(), "DATE"),
    "time": (pa.timestamp("us", "UTC"), "TIMESTAMP"),
}  # fmt: skip
FORMATS = ("parquet", "parquet", "csv", "json")
IN_QUOTES = '",\n\r'


def schema_of(shape):
    """Spark's DDL of the columns."""
    usual = [
        f"{name} {TYPES[kind][1]}" for name, kind in COLUMNS.items() if name not in shape.lacks
    ]
    more = [f"{name} {MORE[name][place][1]}" for name, place in shape.more.items()]
    return ", ".join(["id BIGINT", *usual, *more])


def write_files(form, folder, rows, files, draws, *, shape):
    """Write the rows of a day, in place of those before."""
    folder.mkdir(parents=True, exist_ok=True)
    size = -(-len(rows) // files)
    for number in range(files):
        part = rows[number * size : (number + 1) * size]
        place = folder / f"{number}.{form}"
        for old in folder.glob(f"{place.name}*"):
            old.unlink()
        if form == "parquet":
            table = table_of(part, shape)
            pq.write_table(_narrower(table, draws) if number else table, place)
        elif part:
            names = ["id", *(name for name in COLUMNS if name not in shape.lacks), *shape.more]
            part = [{name: row[name] for name in names} for row in part]
            lines = csv_lines(part, draws) if form == "csv" else json_lines(part, draws)
            _write_text(place, lines, draws)


def table_of(rows, shape):
    columns = {"id": pa.array([row["id"] for row in rows], pa.int64())}
    for name, kind in COLUMNS.items():
        if name not in shape.lacks:
            written = name.upper() if name == shape.cased else name
            columns[written] = pa.array([row[name] for row in rows], TYPES[kind][0])
    for name, place in shape.more.items():
        kind = pa.null() if place == UNTYPED else MORE[name][place][0]
        columns[name] = pa.array([row[name] for row in rows], kind)
    return pa.table(columns)


def _narrower(table, draws):
    """The table as an older program may have written it: without columns that are null, in another
    order, with names in capitals, and with numbers in a type of fewer bits.
    """
    if draws.random() < 0.5:
        return table
    for name in table.column_names:
        column, place = table[name], table.schema.get_field_index(name)
        if column.null_count == len(column) and draws.random() < 0.5:
            table = table.remove_column(place)
        elif name in ("id", "number") and draws.random() < 0.5:
            with contextlib.suppress(pa.ArrowInvalid):  # some value needs all bits
                table = table.set_column(place, name, column.cast(pa.int32()))
    names = draws.sample(table.column_names, len(table.column_names))
    table = table.select(names)
    return table.rename_columns([
        name.upper() if draws.random() < 0.2 else name for name in names
    ])  # fmt: skip


def in_format(form, row):
    """The row, without numbers that no file of the format can have."""
    can_be = form != "json" or row["x"] is None or math.isfinite(row["x"])
    return row if can_be else row | {"x": None}


def csv_lines(rows, draws):
    """A header and a line for each row, with a column that the schema does not name."""
    names = [*rows[0], "other"]
    draws.shuffle(names)
    yield ",".join(name.upper() if draws.random() < 0.2 else name for name in names)
    for row in rows:
        yield ",".join(_csv_value((row | {"other": 'x"y'})[name], draws) for name in names)


def _csv_value(value, draws):
    if value is None:
        return ""
    text = value if isinstance(value, str) else _as_text(value, draws)
    if not isinstance(value, str) and draws.random() < 0.2:
        text = f" {text} "
    is_quoted = text == "" or any(quote in text for quote in IN_QUOTES) or draws.random() < 0.2
    return f'"{text.replace(chr(34), 2 * chr(34))}"' if is_quoted else text


def json_lines(rows, draws):
    """An object for each row; all but the first may lack what is null, and lines may be empty."""
    for place, row in enumerate(rows):
        names = [name for name in row if not place or row[name] is not None or draws.random() < 0.5]
        draws.shuffle(names)
        is_ascii = draws.random() < 0.5
        members = (
            f"{json.dumps(name)}: {_json_value(row[name], draws, is_ascii)}" for name in names
        )
        yield "{" + ", ".join(members) + "}"
        if draws.random() < 0.1:
            yield draws.choice(("", "null"))


def _json_value(value, draws, is_ascii):
    if value is None or isinstance(value, str | bool | dict):
        return json.dumps(value, ensure_ascii=is_ascii)
    text = _as_text(value, draws)
    return f'"{text}"' if isinstance(value, dt.date) else text


def _as_text(value, draws):
    """The text of a value of another type; a time has the offset of a drawn zone, or none."""
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, float):
        return {math.inf: "Infinity"}.get(value, "NaN" if math.isnan(value) else repr(value))
    if not isinstance(value, dt.datetime):
        return str(value)
    hours = draws.choice((None, 0, 2, -5))
    if hours is None:
        return value.replace(tzinfo=None).isoformat(sep=draws.choice(" T"))
    return value.astimezone(dt.timezone(dt.timedelta(hours=hours))).isoformat()


def _write_text(place, lines, draws):
    end = draws.choice(("\n", "\r\n"))
    content = (end.join(lines) + draws.choice(("", end))).encode()
    if draws.random() < 0.2:
        Path(f"{place}.gz").write_bytes(gzip.compress(content))
    else:
        place.write_bytes(content)
