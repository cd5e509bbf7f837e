"""Reads files of JSON objects, each on a line, with the declared types.

Values are cast by the rules of answers. Names match without regard to case, as in other formats.
"""

import decimal
import json
import re
from collections.abc import Callable, Iterator, Sequence
from io import BufferedIOBase
from itertools import islice
from math import isfinite
from operator import itemgetter
from typing import Any, Self

import pyarrow as pa

from jobs.declare.answers.answer_casts import AnswerColumn, cast_to
from jobs.declare.answers.json_text import read_number
from jobs.input.text.text_faults import TextFault

ROWS_AT_ONCE = 1 << 14
LONGEST_ROW = 4 << 20  # bytes
REMEMBERED = 1000  # different sets of names
SHOWN_NAMES = 10
TWICE = "a name stands twice in an object"
EXACT = re.compile("DECIMAL|INT")  # types that lose nothing to a 64-bit float
BOM = b"\xef\xbb\xbf"

Read = Callable[[Any], Any]
Pick = Callable[[tuple[Any, ...]], tuple[Any, ...]]


def read_json(
    source: BufferedIOBase, columns: Sequence[AnswerColumn], *, at_once: int = ROWS_AT_ONCE
) -> Iterator[pa.Table]:
    """Read the declared columns of all objects, some rows at a time.

    An empty line, or `null`, is no row.

    Args:
        source: The bytes of the file, without compression.
        columns: The declared columns. A column that an object lacks is null.
        at_once: Rows of a table.

    Raises:
        TextFault: A line holds no object, a name stands twice, or a value is of another type; or no
            object of the file has a declared column.
    """
    objects = _Objects(columns)
    for number, line in enumerate(iter(lambda: source.readline(LONGEST_ROW + 1), b""), 1):
        if len(line) > LONGEST_ROW:
            raise TextFault(
                f"the line is longer than {LONGEST_ROW:,} bytes; write each object on a line",
                number,
            )
        objects.add(line.removeprefix(BOM) if number == 1 else line, number)
        if objects.count == at_once:
            yield objects.take()
    if objects.count:
        yield objects.take()
    objects.require_columns()


class _Objects:
    """Decodes lines, collects the declared values of objects, and notes columns that occur."""

    def __init__(self, columns: Sequence[AnswerColumn]) -> None:
        self._columns = columns
        self._readers = [_reader(column.arrow_type) for column in columns]
        self._missing = set(range(len(columns)))
        self._rows: list[tuple[Any, ...]] = []
        self._lines: list[int] = []
        self._pick: dict[tuple[str, ...], Pick] = {}  # by the names of an object
        is_exact = any(EXACT.search(column.spark_type) for column in columns)
        self._decode = json.JSONDecoder(
            object_pairs_hook=tuple,
            parse_float=_number if is_exact else None,
            parse_constant=_refuse_constant,
        ).decode

    @property
    def count(self) -> int:
        return len(self._rows)

    def add(self, line: bytes, number: int) -> None:
        """Collect the object of a line, if any."""
        try:
            given = self._decode(text) if (text := line.decode().strip(" \t\r\n")) else None
        except RecursionError as error:
            raise TextFault("the object is nested too deep", number) from error
        except UnicodeDecodeError as error:
            raise TextFault(f"no UTF-8 at byte {error.start:,} of the line", number) from error
        except json.JSONDecodeError as error:
            raise TextFault(f"no JSON at character {error.colno:,}: {error.msg}", number) from error
        except ValueError as error:
            raise TextFault(f"no JSON: {error}", number) from error
        if given is None:
            return
        if not isinstance(given, tuple):
            raise TextFault("expected an object", number, value=_shown(given))
        names, values = zip(*given, strict=True) if given else ((), ())
        pick = self._pick.get(names) or self._pick_from(names, number)
        self._rows.append(pick((*values, None)))
        self._lines.append(number)

    def _pick_from(self, names: tuple[str, ...], number: int) -> Pick:
        """Return a function that picks the declared values of an object with these names.

        It takes the object's values and a null, and returns the declared values and a null.
        """
        places = [-1] * len(self._columns)
        declared = {column.name.lower(): place for place, column in enumerate(self._columns)}
        for at, name in enumerate(names):
            place = declared.get(name.lower())
            if place is not None:
                if places[place] >= 0:
                    raise TextFault(TWICE, number, self._columns[place].name)
                places[place] = at
                self._missing.discard(place)
        pick = itemgetter(*places, -1)
        if len(self._pick) < REMEMBERED:  # names may be data, and differ from object to object
            self._pick[names] = pick
        return pick

    def take(self) -> pa.Table:
        """Return the collected rows, and forget them."""
        columns = list(zip(*self._rows, strict=True))[:-1]
        cast = [self._cast(place, values) for place, values in enumerate(columns)]
        self._rows, self._lines = [], []
        return pa.table(cast, [column.name for column in self._columns])

    def _cast(self, place: int, values: Sequence[Any]) -> pa.Array:
        column, read = self._columns[place], self._readers[place]
        found: list[Any] = []
        try:
            found.extend(map(read, values))
        except ValueError as error:
            row = len(found)
            wrong = _WrongValueError.of(error, values[row])
            path = ".".join((column.name, *wrong.path))
            raise TextFault(wrong.reason, self._lines[row], path, _shown(wrong.value)) from error
        return pa.array(found, column.arrow_type)

    def require_columns(self) -> None:
        """Require each declared column in some object, if objects were read.

        Raises:
            TextFault: A declared column is in no object.
        """
        if self._missing and self._pick:
            column = self._columns[min(self._missing)]
            names = dict.fromkeys(name for names in self._pick for name in names)
            raise TextFault(
                f"no object of the file has a column {column.name}",
                value=", ".join(islice(names, SHOWN_NAMES)),
                cure="Write it as null in an object, or leave it out of Input.schema.",
            )


class _WrongValueError(ValueError):
    """A value is of another type.

    Attributes:
        path: The names of fields that lead to it.
    """

    def __init__(self, reason: str, value: Any) -> None:
        super().__init__(reason)
        self.reason, self.value = reason, value
        self.path: list[str] = []

    @classmethod
    def of(cls, error: ValueError, value: Any) -> Self:
        """Return the same error, or that of a cast of this value."""
        return error if isinstance(error, cls) else cls(str(error).partition(", got ")[0], value)


def _reader(kind: pa.DataType) -> Read:
    """Return a function that reads decoded values as a type, or raises ValueError.

    Objects of decoded values are tuples of pairs.
    """
    if pa.types.is_struct(kind):
        fields = {field.name.lower(): (field.name, _reader(field.type)) for field in kind}
        return _object_reader("STRUCT", lambda spelled: fields.get(spelled.lower()))
    if pa.types.is_map(kind):
        item, key = _reader(kind.item_type), cast_to(kind.key_type)
        entries = _object_reader("MAP", lambda spelled: (key(spelled), item))
        return lambda value: None if value is None else list(entries(value).items())
    if pa.types.is_list(kind):
        return _list_reader(_reader(kind.value_type))
    if pa.types.is_floating(kind):
        return _finite(cast_to(kind))
    return _exact(cast_to(kind), kind) if pa.types.is_decimal(kind) else cast_to(kind)


def _finite(cast: Read) -> Read:
    def read(value: Any) -> Any:
        found = cast(value)
        if found is not None and not isfinite(found):
            raise _WrongValueError("the number is too large", value)
        return found

    return read


def _exact(cast: Read, kind: pa.DataType) -> Read:
    def read(value: Any) -> Any:
        found = cast(value)
        if found is not None and found != decimal.Decimal(str(value)):
            raise _WrongValueError(f"expected at most {kind.scale} digits after the point", value)
        return found

    return read


def _list_reader(read_item: Read) -> Read:
    def read(value: Any) -> Any:
        if value is None:
            return None
        if not isinstance(value, list):
            raise _WrongValueError("expected ARRAY", value)
        found: list[Any] = []
        try:
            found.extend(map(read_item, value))
        except ValueError as error:
            raise _WrongValueError.of(error, value[len(found)]) from error
        return found

    return read


def _object_reader(kind: str, field_of: Callable[[str], tuple[str, Read] | None]) -> Read:
    def read(value: Any) -> Any:
        if value is None:
            return None
        if not isinstance(value, tuple):
            raise _WrongValueError(f"expected {kind}", value)
        found: dict[str, Any] = {}
        for spelled, item in value:
            if (field := field_of(spelled)) is None:
                continue
            name, read_item = field
            if name in found:
                raise _WrongValueError(TWICE, item)
            try:
                found[name] = read_item(item)
            except ValueError as error:
                wrong = _WrongValueError.of(error, item)
                wrong.path.insert(0, name)
                raise wrong from error
        return found

    return read


def _number(digits: str) -> float:
    """Return a number with its digits. Casts refuse infinity, in declared columns only."""
    number = float(digits)
    return read_number(digits) if isfinite(number) else number


def _refuse_constant(name: str) -> Any:
    raise ValueError(f"JSON has no {name}")


def _shown(value: Any) -> str | None:
    """Return the text of a decoded value; None if it is nested too deep."""
    try:
        return value if isinstance(value, str) else json.dumps(_plain(value), default=str)
    except RecursionError:
        return None


def _plain(value: Any) -> Any:
    """Return a decoded value with objects as dicts."""
    if isinstance(value, tuple):
        return {name: _plain(item) for name, item in value}
    return [_plain(item) for item in value] if isinstance(value, list) else value
