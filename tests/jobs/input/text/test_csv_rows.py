"""CSV is read as Python's strict `csv` reads it, however its blocks fall, or refused with
the line.
"""

import csv
import decimal
import fractions
import io
import random
import re

import pyarrow as pa
import pytest

from jobs.declare.answers.answer_types import read_ddl
from jobs.input.text import csv_rows
from jobs.input.text.csv_rows import read_csv
from jobs.input.text.text_faults import TextFault

LETTERS = ['"', '""', ",", "\n", "\r", "\r\n", "a", "é", " ", "\\", "\t", "\0", "😀", "0", "\ufeff"]
LINE_ENDS = ["\n", "\r\n", "\r"]
TEXTS = read_ddl("a STRING, b STRING, c STRING")


def read(text, ddl="a STRING, b STRING", block=csv_rows.BLOCK):
    data = text if isinstance(text, bytes) else text.encode()
    columns = read_ddl(ddl) if isinstance(ddl, str) else ddl
    tables = list(read_csv(io.BytesIO(data), columns, block=block))
    return [tuple(row.values()) for table in tables for row in table.to_pylist()]


def fault(text, ddl="a STRING, b STRING", block=csv_rows.BLOCK):
    with pytest.raises(TextFault) as refused:
        read(text, ddl, block)
    return refused.value.sentence(hidden=False)


# -- random files
# --------------------------------------------------------------------------------------------------
def some_text(draw):
    return "".join(draw.choices(LETTERS, k=draw.choice([0, 1, 2, 3, 5, 9])))


def written(draw):
    """A file by the rules, and its rows. A value is quoted where it must be, and at times
    elsewhere; null never is.
    """
    width, end = draw.randint(1, 3), draw.choice(LINE_ENDS)
    lines, rows = [",".join("abc"[:width])], []
    for _ in range(draw.randint(0, 8)):
        values = [None if draw.random() < 0.1 else some_text(draw) for _ in range(width)]
        fields = [as_field(draw, value) for value in values]
        if fields == [""]:  # an empty line is no row
            fields, values = ["x"], ["x"]
        lines.append(",".join(fields))
        rows.append(tuple(values))
        if draw.random() < 0.1:
            lines.append("")
    mixed = draw.random() < 0.2
    text = "".join(line + (draw.choice(LINE_ENDS) if mixed else end) for line in lines)
    return text.rstrip("\r\n") if draw.random() < 0.3 and text[-2:-1] != '"' else text, width, rows


def as_field(draw, value):
    if value is None:
        return ""
    must = not value or value[0] == '"' or bool(re.search(r"[,\r\n]", value))
    doubled = value.replace('"', '""')
    return f'"{doubled}"' if must or draw.random() < 0.3 else value


def by_python(text):
    """The rows by Python's csv module, None for a file that it refuses or whose rows differ in
    width.
    """
    try:
        lines = [row for row in csv.reader(io.StringIO(text, newline=""), strict=True) if row]
    except csv.Error:
        return None
    return lines if {len(row) for row in lines} == {len(lines[0])} else None


def compare(seed):
    """One file as it should be, and one of any letters, each read in blocks of a random size."""
    draw = random.Random(seed)
    block = draw.choice([1, 2, 3, 5, 7, 16, 64, csv_rows.BLOCK])
    text, width, rows = written(draw)
    assert read(text, TEXTS[:width], block) == rows, (seed, text)
    assert [[value or "" for value in row] for row in rows] == by_python(text)[1:], (seed, text)
    text = "a,b\n" + "".join(draw.choices(LETTERS, k=draw.randint(0, 30)))
    wanted = by_python(text)
    try:
        found = read(text, TEXTS[:2], block)
    except TextFault:
        assert wanted is None, (seed, text)
    else:
        assert wanted is not None, (seed, text)
        assert [[value or "" for value in row] for row in found] == wanted[1:], (seed, text)


def test_random_csv_files_are_read_as_python_reads_them():
    for seed in range(700):
        compare(seed)


@pytest.mark.proof
def test_twenty_thousand_random_csv_files_are_read_as_python_reads_them():
    for seed in range(20_000):
        compare(seed)


# -- blocks, quotes, lines
# ---------------------------------------------------------------------------------------------
def test_a_line_end_in_a_quoted_value_stays_wherever_a_block_ends():
    text = 'a,b\n1,"Street\r\nTown"\r\n2,"x"\n'
    for block in range(1, len(text) + 1):
        assert read(text, block=block) == [("1", "Street\r\nTown"), ("2", "x")]


def test_a_value_that_begins_with_a_byte_order_mark_keeps_it_wherever_a_block_begins():
    text = "\ufeffa,b\n\ufeff1,x\n\ufeff2,y\n"
    for block in range(1, len(text) + 1):
        assert read(text, block=block) == [("\ufeff1", "x"), ("\ufeff2", "y")]


def test_a_byte_order_mark_after_a_short_header_is_a_value_wherever_a_block_ends():
    for block in (1, 2, 3, 64):
        assert read("a\n\ufeff\nx\n", "a STRING", block) == [("\ufeff",), ("x",)]


def test_a_quote_that_is_not_closed_is_named_with_its_line():
    lines = "".join(f"{number},title\n" for number in range(50))
    assert fault(f'a,b\n{lines}50,"cut off\n51,title\n') == (
        "line 52: a quote that opens here is not closed."
    )


def test_a_text_after_a_closing_quote_is_named_with_its_line():
    sentence = fault('a,b\n1,x\n2,"say \\"hi\\" now"\n', block=8)
    assert sentence.startswith(
        "line 3: a quote opens here and closes before the end of its value; a quote inside"
    )
    sentence = fault('a,b\n1,"cut off\n2,"title"\n')
    assert sentence.startswith(
        "line 2: a quote opens here and closes in line 3 before the end of its value"
    )
    assert fault('"a"\t"b"\n1\tx\n') == (
        'line 1: a tab follows a value in quotes, found \'"a"\\t"b"\\n1\\tx\\n\'. '
        "Write commas between values; double a quote inside a quoted value."
    )


def test_a_quote_inside_an_unquoted_value_is_a_character():
    assert read('a,b\n10" pipe,"5"" x"\n"q",2"\n') == [('10" pipe', '5" x'), ("q", '2"')]


def test_a_row_longer_than_the_limit_is_refused_with_its_line(monkeypatch):
    monkeypatch.setattr(csv_rows, "LONGEST_ROW", 20)
    assert fault(f"a,b\n1,x\n2,{'x' * 40}\n", block=8) == "line 3: the row is longer than 20 bytes."
    assert fault(f'a,b\n1,"x\n{"x" * 40}', block=8) == (
        "line 2: a quote that opens here is not closed in 20 bytes."
    )


def test_columns_are_found_by_name_without_regard_to_case_and_order():
    assert read('\ufeffC,"B",x,A\n3,2,0,1\n', "a BIGINT, b STRING, c INT") == [(1, "2", 3)]
    assert fault("x,A\n1,2\n") == (
        "the header has no column b, found 'x,A'. "
        "The first line must name the columns, with commas between them."
    )
    assert fault("x,A,bb\n1,2,3\n").endswith("found 'x,A,bb'. Did you mean 'bb'?")
    assert fault("a,b,B\n1,2,3\n") == "the header has 2 columns b."
    assert fault("") == "the file is empty, and needs a header."
    assert fault("a\xff,b\n".encode("latin-1")).startswith(
        "line 1: the header cannot be read as UTF-8: "
    )


def test_a_csv_row_with_another_number_of_values_is_named_with_its_line():
    assert fault('a,b\n1,"x\ny"\n\n2,x,\n3,y\n') == "line 5: the row has 3 values, the header 2."


# -- values
# --------------------------------------------------------------------------------------------------
VALUES = {
    "BIGINT": (["5", "-5", "+5", "007", " 5\t"], ["0x10", "0xFF", "5.0", "1e3", "1_0", "٣", "", " ", str(2**63)]),
    "TINYINT": (["127", "-128"], ["128", "-129"]),
    "DOUBLE": (["1e3", "-.5", "5.", " 2.5 ", "1e-400"], ["1e400", "-1e400", "0x1p3", "1_0", "1,5", "one", ""]),
    "FLOAT": (["3.4e38"], ["1e39", "-1e39"]),
    "DECIMAL(10,2)": (["1.10", "1.500", "1e3", "-.5", "12345678.90"], ["1.005", "123456789", "nan", "0x1", "1_0"]),
    "BOOLEAN": (["true", "True", "TRUE", "false", "False", "FALSE", " true"], ["1", "0", "yes", "tRuE", ""]),
    "DATE": (["2026-01-10"], ["2026-13-01", "2026-1-1", "ten", ""]),
    "TIMESTAMP": (["2026-01-10 10:00:00", "20260110T100000Z"], ["20260110120000Z", "ten", ""]),
}  # fmt: skip


def by_hand(kind, text):
    text = text.strip(" \t")
    if kind in ("BIGINT", "TINYINT"):
        return int(text)
    if kind in ("DOUBLE", "FLOAT"):
        value = float(text)
        return pa.scalar(value, pa.float32()).as_py() if kind == "FLOAT" else value
    if kind == "BOOLEAN":
        return text.lower() == "true"
    return decimal.Decimal(text)


@pytest.mark.parametrize("kind", VALUES)
def test_a_value_is_read_as_its_type_or_refused_with_line_column_and_value(kind):
    right, wrong = VALUES[kind]
    found = [
        value
        for _, value in read(
            "a,b\n" + "".join(f'x,"{value}"\n' for value in right), f"a STRING, b {kind}"
        )
    ]
    assert None not in found
    if kind not in ("DATE", "TIMESTAMP"):
        assert found == [by_hand(kind, value) for value in right]
    for value in wrong:
        sentence = fault(
            f'a,b\nx,{right[0]}\n\nx,"{value}"\nx,{right[0]}\n', f"a STRING, b {kind}", 16
        )
        cure = "Correct it, or declare another type in Input.schema."
        assert sentence.startswith(f"line 4, column b: expected {kind}")
        assert sentence.endswith(f", found {value!r}. {cure}")


def some_decimal(draw):
    digits = ["".join(draw.choices("0123456789", k=draw.choice([0, 2, 20, 40]))) for _ in "ab"]
    zeros = ["0" * draw.choice([0, 0, 0, 30]) for _ in "ab"]
    exponent = draw.choice(["", "", "e3", "E-2", "e+38", "e-40"])
    return f"{zeros[0]}{digits[0]}{draw.choice(['', '.'])}{digits[1]}{zeros[1]}{exponent}"


def test_a_decimal_of_any_length_is_read_digit_for_digit_or_refused():
    draw, refused = random.Random(1), 0
    for _ in range(1500):
        text, precision = some_decimal(draw), draw.choice([4, 20, 38])
        scale = draw.choice([0, 2, 18, precision]) if precision > 18 else 2
        try:
            ((found,),) = read(f"a\n{text}\n", f"a DECIMAL({precision},{scale})")
        except (TextFault, ValueError):  # the latter: an empty line is no row
            found = None
        try:
            number = fractions.Fraction(text)
        except ValueError:
            number = None
        is_held = number is not None and (number * 10**scale).denominator == 1
        wanted = number if is_held and abs(number) * 10**scale < 10**precision else None
        assert found == wanted, (text, precision, scale)
        refused += found is None
    assert 300 < refused < 1300


def test_inf_and_nan_in_csv_are_read_as_numbers():
    assert (
        str([value for (value,) in read("a\ninf\n-Infinity\nNaN\n", "a DOUBLE")])
        == "[inf, -inf, nan]"
    )


def test_a_text_that_is_no_utf8_is_named_with_its_line():
    sentence = fault(b"a,b\n1,caf\xc3\xa9\n2,caf\xe9\n")
    assert sentence.startswith("line 3, column b: expected STRING in UTF-8, found 'caf\\\\xe9'.")
    assert read(b"a,b\n2,caf\xe9\n", "b BINARY") == [(b"caf\xe9",)]


def test_a_personal_value_stays_out_of_the_sentence():
    with pytest.raises(TextFault) as refused:
        read("a,b\nsecret,x\n", "a INT")
    assert "secret" in refused.value.sentence(hidden=False)
    assert "secret" not in refused.value.sentence(hidden=True)
