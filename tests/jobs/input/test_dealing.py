"""Row groups are dealt to tasks: every row to one, in order, to each about as many."""

import random

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from jobs.input import dealing
from jobs.input.day import of_files
from jobs.input.dealing import deal
from jobs.input.file_rows import FileRows


def random_day(folder, draw):
    """Files with row groups of any size, some of them empty; each row has its number in the day."""
    first = 0
    for number in range(draw.randrange(1, 6)):
        with pq.ParquetWriter(
            folder / f"part {number}%.parquet", pa.schema([("n", pa.int64())])
        ) as file:
            for _ in range(draw.randrange(0, 6)):
                rows = draw.choice([0, 1, 7, 300])
                file.write_table(pa.table({"n": pa.array(range(first, first + rows), pa.int64())}))
                first += rows
    return of_files(sorted(folder.iterdir()))


@pytest.mark.parametrize("seed", range(30))
def test_each_row_goes_to_one_task_and_tasks_are_balanced(tmp_path, monkeypatch, seed):
    draw = random.Random(seed)
    monkeypatch.setattr(dealing, "BYTES_PER_TASK", draw.choice([1, 1000, dealing.BYTES_PER_TASK]))
    day, at_most = random_day(tmp_path, draw), draw.randrange(1, 9)
    parts = deal(day, at_most)
    assert 1 <= len(parts) <= at_most
    reads = FileRows(parts, day.schema, {}, day.row_bytes)
    found = [
        pa.Table.from_batches(reads.of(task)) if parts[task] else None for task in range(len(parts))
    ]
    rows = [0 if table is None else table.num_rows for table in found]
    assert [number for table in found if table for number in table["n"].to_pylist()] == list(
        range(day.rows)
    )
    assert day.rows == 0 or min(rows) > 0
    largest = max((size for groups in day.groups for size in groups), default=0)
    assert max(rows) <= day.rows / len(parts) + 2 * largest


@pytest.mark.parametrize(
    ("files", "rows", "tasks"), [(1, 9_000, 1), (3, 10, 2), (2, 10, 2), (1, 2_000_000, 2)]
)
def test_few_rows_of_a_file_go_through_one_task(tmp_path, files, rows, tasks):
    for number in range(files):
        table = pa.table({"n": range(rows)})
        pq.write_table(table, tmp_path / f"{number}.parquet", row_group_size=max(1, rows // 4))
    assert len(deal(of_files(sorted(tmp_path.iterdir())), 2)) == tasks
