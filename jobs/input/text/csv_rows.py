"""Reads CSV files with a header by the rules of RFC 4180, row for row, or refuses them.

Arrow parses the fields. It is given whole rows only, because it loses a line feed inside a quoted
value where its block ends between CR and LF. This module counts the rows too, by the line ends
outside quotes.
"""

from __future__ import annotations

import bisect
import csv
import io
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from io import BufferedIOBase

import numpy as np
import pyarrow as pa
import pyarrow.csv as arrow_csv
from numpy.typing import NDArray

from jobs.declare.answers.answer_casts import AnswerColumn
from jobs.input.text.text_casts import WrongValueError, cast_column, expected, first_wrong
from jobs.input.text.text_faults import TextFault
from jobs.wording import counted, did_you_mean

BLOCK = 4 << 20  # bytes read at once
LONGEST_ROW = 4 << 20  # bytes
QUOTE, LF, CR = b'"\n\r'
BOM = b"\xef\xbb\xbf"
OTHER_SEPARATORS = {ord("\t"): "a tab", ord(";"): "a semicolon", ord("|"): "a bar"}
EDGES = np.isin(np.arange(256), list(b',\n\r"'))  # bytes beside the quotes around a value

Places = NDArray[np.int64]


def read_csv(
    source: BufferedIOBase, columns: Sequence[AnswerColumn], *, block: int = BLOCK
) -> Iterator[pa.Table]:
    """Read the declared columns, some rows at a time.

    Nothing between two commas is null, `""` is an empty text. An empty line is no row.

    Args:
        source: The bytes of the file, without compression.
        columns: The declared columns, which the header names without regard to case.
        block: Bytes that are read at once.

    Raises:
        TextFault: The file is not CSV, has no declared column, or holds a value of another type.
    """
    places: list[int] | None = None
    width = 0
    for rows in _rows(source, block):
        if places is None:
            names = _header(rows)
            width, places = len(names), _find_columns(names, columns)
            rows = rows.without_first()  # noqa: PLW2901  # the header
        if rows.count:
            yield _table(rows, columns, places, width)
    if places is None:
        raise TextFault("the file is empty, and needs a header")


@dataclass(frozen=True)
class _Rows:
    """Whole rows.

    Attributes:
        starts: The place of each row in the text.
        line_ends: The places after line ends, within quotes too.
        first_line: The line of the file in which the text begins.
    """

    text: bytes
    starts: Places
    line_ends: Places
    first_line: int

    @property
    def count(self) -> int:
        return len(self.starts)

    def without_first(self) -> _Rows:
        return _Rows(self.text, self.starts[1:], self.line_ends, self.first_line)

    def text_between(self, first: int, end: int) -> bytes:
        """Return the text of the rows from `first` to before `end`."""
        stop = len(self.text) if end == self.count else int(self.starts[end])
        text = self.text[int(self.starts[first]) : stop]
        # without a line end Arrow takes an empty last value for quoted, if the value before is
        return text if text[-1] in b"\r\n" else text + b"\n"

    def line(self, row: int) -> int:
        return self.first_line + bisect.bisect_right(self.line_ends, int(self.starts[row]))


def _rows(source: BufferedIOBase, block: int) -> Iterator[_Rows]:
    """Yield the rows of the file, as many at a time as a block has."""
    rest, line = source.read(len(BOM)).removeprefix(BOM), 1
    while True:
        read = source.read(block)
        text = rest + read
        rows, end = _split(text, line, at_end=not read)
        if rows.count:
            yield rows
        rest = text[end:]
        line += int(np.searchsorted(rows.line_ends, end, "right"))
        if not read:
            return
        if len(rest) > LONGEST_ROW:
            raise _too_long(rest, line)


def _too_long(rest: bytes, line: int) -> TextFault:
    opens, closes = _quoted(rest, line)
    reason = f"the row is longer than {LONGEST_ROW:,} bytes"
    if len(opens) > len(closes):
        reason = f"a quote that opens here is not closed in {LONGEST_ROW:,} bytes"
        line += len(_line_ends(np.frombuffer(rest[: int(opens[-1])], np.uint8)))
    return TextFault(reason, line)


def _split(text: bytes, line: int, *, at_end: bool) -> tuple[_Rows, int]:
    """Return the whole rows of a text, and where they end."""
    opens, closes = _quoted(text, line)
    letters = np.frombuffer(text, np.uint8)
    line_ends = _line_ends(letters)
    if not at_end and len(line_ends) and line_ends[-1] == len(text) and text[-1] == CR:
        line_ends = line_ends[:-1]  # a LF may follow
    ends = line_ends
    if len(opens):
        ends = ends[np.searchsorted(opens, ends) == np.searchsorted(closes, ends)]
    if at_end:
        if len(opens) > len(closes):
            place = line + int(np.searchsorted(line_ends, opens[-1], "right"))
            raise TextFault("a quote that opens here is not closed", place)
        if len(text) > (ends[-1] if len(ends) else 0):
            ends = np.append(ends, len(text))
    if not len(ends):
        return _Rows(text, ends, line_ends, line), 0
    starts = np.append(0, ends[:-1])
    is_blank = (letters[starts] == LF) | (letters[starts] == CR)
    end = int(ends[-1])
    return _Rows(text[:end], starts[~is_blank], line_ends, line), end


def _line_ends(letters: NDArray[np.uint8]) -> Places:
    """Return the places after LF, CR and CR LF."""
    is_end = letters == LF
    is_return = letters == CR
    if is_return.any():
        is_return[:-1] &= ~is_end[1:]
        is_end |= is_return
    return np.flatnonzero(is_end) + 1


def _quoted(text: bytes, line: int) -> tuple[Places, Places]:
    """Return where quotes open and close values. The last value may be open at the end.

    Raises:
        TextFault: A quote closes a value before the value's end.
    """
    if QUOTE not in text:
        return np.empty(0, np.int64), np.empty(0, np.int64)
    letters = np.frombuffer(b"\n%b\n" % text, np.uint8)
    quotes = np.flatnonzero(letters == QUOTE)
    opens, closes = quotes[0::2], quotes[1::2]  # a doubled quote closes and opens
    if EDGES[letters[opens - 1]].all() and EDGES[letters[closes + 1]].all():
        return opens - 1, closes - 1
    return _walk(text, line)


def _walk(text: bytes, line: int) -> tuple[Places, Places]:
    """Do the same as `_quoted` for quotes in the middle of values, which mean themselves."""
    opens: list[int] = []
    closes: list[int] = []
    place = text.find(QUOTE)
    while place >= 0:
        if place and text[place - 1] not in b",\n\r":
            place = text.find(QUOTE, place + 1)
            continue
        opens.append(place)
        close = text.find(QUOTE, place + 1)
        while close >= 0 and text[close + 1 : close + 2] == b'"':
            close = text.find(QUOTE, close + 2)
        if close < 0:
            break
        if close + 1 < len(text) and text[close + 1] not in b",\n\r":
            raise _after_quote(text, line, place, close)
        closes.append(close)
        place = text.find(QUOTE, close + 1)
    return np.array(opens, np.int64), np.array(closes, np.int64)


def _after_quote(text: bytes, line: int, place: int, close: int) -> TextFault:
    line_ends = _line_ends(np.frombuffer(text, np.uint8))
    opened, closed = (line + int(np.searchsorted(line_ends, at, "right")) for at in (place, close))
    where = "" if closed == opened else f" in line {closed:,}"
    found = text[place : close + 30].decode("utf-8", "replace")
    if separator := OTHER_SEPARATORS.get(text[close + 1]):
        cure = "Write commas between values; double a quote inside a quoted value."
        return TextFault(f"{separator} follows a value in quotes", closed, value=found, cure=cure)
    return TextFault(
        f"a quote opens here and closes{where} before the end of its value; a quote inside a "
        "quoted value is doubled",
        opened,
        value=found,
    )


def _header(rows: _Rows) -> list[str]:
    try:
        text = rows.text_between(0, 1).decode()
        return next(csv.reader(io.StringIO(text, newline=""), strict=True))
    except (UnicodeDecodeError, csv.Error) as error:
        raise TextFault(f"the header cannot be read as UTF-8: {error}", rows.line(0)) from error


def _find_columns(names: Sequence[str], columns: Sequence[AnswerColumn]) -> list[int]:
    """Return the places of the declared columns in the header."""
    found: dict[str, list[int]] = {}
    for place, name in enumerate(names):
        found.setdefault(name.lower(), []).append(place)
    for column in columns:
        matching = found.get(column.name.lower(), [])
        if not matching:
            # a single name is often a whole header with other separators
            close = did_you_mean(column.name, names).strip() if len(names) > 1 else ""
            raise TextFault(
                f"the header has no column {column.name}",
                value=",".join(names),
                cure=close or "The first line must name the columns, with commas between them.",
            )
        if len(matching) > 1:
            raise TextFault(f"the header has {len(matching)} columns {column.name}")
    return [found[column.name.lower()][0] for column in columns]


def _table(
    rows: _Rows, columns: Sequence[AnswerColumn], places: Sequence[int], width: int
) -> pa.Table:
    try:
        texts = _parse(rows.text_between(0, rows.count), places, width)
    except pa.ArrowInvalid as error:
        raise _wrong_width(rows, width) from error
    if texts.num_rows != rows.count:
        found = f"{counted(rows.count, 'row')} begin here, and {texts.num_rows:,} were read"
        raise TextFault(found, rows.line(0))
    cast = []
    for column, place in zip(columns, places, strict=True):
        given = texts[f"f{place}"].combine_chunks()
        try:
            cast.append(cast_column(given, column.arrow_type))
        except WrongValueError as wrong:
            value = given[wrong.row].as_py().decode("utf-8", "backslashreplace")
            raise TextFault(expected(column), rows.line(wrong.row), column.name, value) from None
    return pa.table(
        cast, schema=pa.schema([(column.name, column.arrow_type) for column in columns])
    )


def _parse(text: bytes, places: Sequence[int], width: int) -> pa.Table:
    """Return the columns at these places as bytes, named f and their place.

    Raises:
        ArrowInvalid: Arrow cannot parse the text.
    """
    if text.startswith(BOM):  # of which Arrow leaves out the first; this one is of a value
        text = BOM + text
    names = [f"f{place}" for place in range(width)]
    wanted = [names[place] for place in places]
    return arrow_csv.read_csv(
        pa.BufferReader(text),
        read_options=arrow_csv.ReadOptions(column_names=names, block_size=len(text) + 1),
        parse_options=arrow_csv.ParseOptions(newlines_in_values=True),
        convert_options=arrow_csv.ConvertOptions(
            column_types=dict.fromkeys(wanted, pa.binary()), include_columns=wanted,
            null_values=[""], strings_can_be_null=True, quoted_strings_can_be_null=False,
        ),
    )  # fmt: skip


def _wrong_width(rows: _Rows, width: int) -> TextFault:
    """Return the fault of the first row whose count of values differs from the header's."""
    row = first_wrong(
        rows.count, lambda first, end: _parse(rows.text_between(first, end), [], width)
    )
    text = rows.text_between(row, row + 1).decode("utf-8", "replace")
    try:
        found = len(next(csv.reader(io.StringIO(text, newline=""))))
    except csv.Error as error:  # a value is longer than Python's module reads
        return TextFault(f"the row cannot be read: {error}", rows.line(row))
    return TextFault(f"the row has {counted(found, 'value')}, the header {width:,}", rows.line(row))
