"""How the checks read the files of a run."""

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from honest_day import honest_day

from data_quality.rows import run_output, task_rows
from data_quality.rows.run_output import RunOutput
from data_quality.rows.task_rows import TaskRows
from jobs.arrow_values import digest


@pytest.fixture
def output(tmp_path):
    """One task of 70 rows in two files of 35, whose row groups have 10, 10, 10 and 5 rows."""
    for number, start in enumerate((0, 35)):
        rows = {"_partition": [3] * 35, "_input_seq": range(start, start + 35), "text": ["a"] * 35}
        pq.write_table(
            pa.table(rows), tmp_path / f"part-00000-x-c00{number}.parquet", row_group_size=10
        )
    return RunOutput.of_files(honest_day(tmp_path).declared, map(str, tmp_path.glob("*.parquet")))


def test_a_task_is_read_in_bounded_parts_of_row_groups_in_the_order_of_writing(output, monkeypatch):
    monkeypatch.setattr(run_output, "ROWS_AT_ONCE", 25)
    parts = [read().table for read in output.parts()]
    assert [len(part) for part in parts] == [20, 25, 25]
    assert pa.concat_tables(parts)["_input_seq"].to_pylist() == list(range(70))


def test_a_part_of_long_texts_is_bounded_by_its_bytes(tmp_path, monkeypatch):
    monkeypatch.setattr(run_output, "BYTES_AT_ONCE", 25_000)
    texts = [f"{number:05}" * 200 for number in range(50)]
    rows = {"_partition": [0] * 50, "_input_seq": range(50), "text": texts}
    pq.write_table(pa.table(rows), tmp_path / "a.parquet", row_group_size=10)
    output = RunOutput.of_files(honest_day(tmp_path).declared, [str(tmp_path / "a.parquet")])
    parts = [read().table for read in output.parts()]
    assert [len(part) for part in parts] == [20, 20, 10]
    assert pa.concat_tables(parts)["text"].to_pylist() == texts


@pytest.mark.parametrize("nested", [False, True])
def test_texts_of_more_than_2_gib_in_a_column_are_read(monkeypatch, nested):
    monkeypatch.setattr(task_rows, "OFFSETS_END", 10)
    kind = pa.struct([("a", pa.list_(pa.string()))]) if nested else pa.string()
    value = {"a": ["x" * 20]} if nested else "x" * 20
    table = pa.table({"key": pa.chunked_array([pa.array([value, None], kind)] * 2)})
    rows = TaskRows(table)
    assert rows.column("key").to_pylist() == [value, None, value, None]
    assert "large_string" in str(rows.column("key").type)
    assert (digest([rows.column("key")]) == digest([table["key"].combine_chunks()])).all()


def test_reading_a_whole_task_gives_all_rows_with_the_wanted_columns(output):
    (read,) = output.tasks(["_input_seq", "not there"])
    assert read().table.to_pydict() == {"_input_seq": list(range(70))}
