"""How the checks read the files of a run."""

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from honest_day import honest_day

from data_quality.rows import run_output
from data_quality.rows.run_output import RunOutput


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


def test_whole_tasks_have_all_rows_with_the_columns_asked_for(output):
    (read,) = output.tasks(["_input_seq", "not there"])
    assert read().table.to_pydict() == {"_input_seq": list(range(70))}
