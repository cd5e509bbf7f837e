"""Ranges of answers, against a comparison of the digits that a person writes and reads."""

import random
from decimal import Decimal

import numpy as np
import pyarrow as pa
import pytest

from data_quality.checks.answers_in_range import AnswersInRange
from data_quality.rows.task_rows import TaskRows
from jobs.schema.records import LookupFacts
from tests.data_quality.honest_day import declare

KINDS = {
    "DECIMAL(18,4)": (pa.decimal128(18, 4), Decimal),
    "FLOAT": (pa.float32(), float),
    "DOUBLE": (pa.float64(), float),
    "BIGINT": (pa.int64(), lambda text: int(Decimal(text))),
}


def wrong_rows(ddl, values, lowest, highest):
    kind, made = KINDS[ddl]
    lookup = LookupFacts(
        "rating", "http", "vendor", (("score", ddl),), None, 1, ranges=(("score", lowest, highest),)
    )
    rows = {
        "_partition": pa.array([0] * len(values), pa.int32()),
        "_input_seq": pa.array(range(len(values)), pa.int64()),
        "_output_seq": pa.array(range(len(values)), pa.int64()),
        "_source_file": pa.array(["file:/in.parquet"] * len(values)),
        "_source_row": pa.array(range(len(values)), pa.int64()),
        "_rating_status": pa.array(["ok"] * len(values)),
        "score": pa.array(map(made, values), kind),
    }
    check = AnswersInRange(declare(lookups=(lookup,)), lookup)
    return check.summarize(TaskRows(pa.table(rows)), None)[1].count


@pytest.mark.parametrize("ddl", KINDS)
def test_an_answer_is_out_of_range_by_the_digits_that_are_written(ddl):
    dice = random.Random(4)
    for _ in range(200):
        places = 0 if ddl == "BIGINT" else dice.choice((0, 1, 2, 4))
        digits = 6 if ddl == "FLOAT" else 13  # which a FLOAT keeps
        drawn = [f"{dice.randrange(10 ** dice.randint(1, digits)) / 10**places:.{places}f}"
                 for _ in range(4)]  # fmt: skip
        lowest, highest = sorted(dice.choices(drawn, k=2), key=Decimal)
        wrong = sum(not Decimal(lowest) <= Decimal(text) <= Decimal(highest) for text in drawn)
        bounds = (float(lowest), float(highest)) if places else (int(lowest), int(highest))
        assert wrong_rows(ddl, drawn, *bounds) == wrong, (drawn, lowest, highest)


def test_a_bound_beyond_a_float_takes_every_float():
    assert wrong_rows("FLOAT", ["1.5", "-2"], -1e300, 1e300) == 0
    assert wrong_rows("FLOAT", [str(np.inf), "nan", "2"], None, 1e300) == 2
