"""The places of input rows that the output lacks."""

import datetime as dt
import random
from dataclasses import replace

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from honest_day import honest_day
from pyspark.sql.types import StructField, StructType, TimestampType

from data_quality.rows import lost_rows
from data_quality.rows.input_rows import InputRows
from data_quality.rows.lost_rows import find_lost_rows
from data_quality.rows.run_output import RunOutput
from jobs.schema.records import EventTimeFacts

TIMES = StructType([StructField("at", TimestampType())])
BEGAN = dt.datetime(2026, 11, 19, tzinfo=dt.UTC)


@pytest.mark.parametrize("seed", range(20))
def test_a_lost_row_has_the_place_between_its_neighbours(tmp_path, monkeypatch, seed):
    """Two tasks share a file of one row a second; rows with a null in their place are there too."""
    monkeypatch.setattr(lost_rows, "READ_AT_ONCE", 7)
    draw = random.Random(seed)
    count, divided = 40, draw.randint(5, 35)
    path = str(tmp_path / "in.parquet")
    pq.write_table(pa.table({"at": [BEGAN + dt.timedelta(seconds=n) for n in range(count)]}), path)
    true = {n: (0, n) if n < divided else (1, n - divided) for n in range(count)}
    inner = sorted(set(range(1, count - 1)) - {divided - 1, divided})
    lost = set(draw.sample(inner, draw.randint(1, 10)))
    rows = [(n, *place) for n, place in true.items() if n not in lost]
    nulls = [tuple(draw.choice([None, 3]) for _ in range(2)) for _ in range(draw.randint(0, 3))]
    rows += [(None, task, seq) for task, seq in nulls]
    draw.shuffle(rows)
    columns = dict(
        zip(("_source_row", "_partition", "_input_seq"), zip(*rows, strict=True), strict=True)
    )
    table = pa.table(
        {"_source_file": pa.array([path] * len(rows))}
        | {name: pa.array(values, pa.int64()) for name, values in columns.items()}
    )
    facts = replace(honest_day(tmp_path).facts(), input_files=(path,), input_types=TIMES.json())
    found = find_lost_rows(
        RunOutput.of_table(facts.declared, table), InputRows(None, facts), EventTimeFacts("at", 0.0)
    )
    placed = {
        (task, int(seq)): (int(at) - int(BEGAN.timestamp() * 1000)) // 1000
        for task, of_task in found.items()
        for seq, at in zip(of_task.places, of_task.times_ms, strict=True)
    }
    assert placed == {true[n]: n for n in lost}


def test_two_lost_rows_never_have_the_same_place(tmp_path):
    """A task numbered neither the last row of a file nor the first of the next."""
    paths = [str(tmp_path / name) for name in ("a.parquet", "b.parquet")]
    for path in paths:
        pq.write_table(pa.table({"at": [BEGAN, BEGAN]}), path)
    columns = {"_source_row": [0, 1], "_partition": [0, 0], "_input_seq": [0, 2]}
    table = pa.table(
        {"_source_file": pa.array(paths)}
        | {name: pa.array(values, pa.int64()) for name, values in columns.items()}
    )
    facts = replace(honest_day(tmp_path).facts(), input_files=(*paths,), input_types=TIMES.json())
    found = find_lost_rows(
        RunOutput.of_table(facts.declared, table), InputRows(None, facts), EventTimeFacts("at", 0.0)
    )
    assert found[0].places.tolist() == [1]
