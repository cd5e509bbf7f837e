"""How the checks read the input of a run again."""

import pyarrow as pa
import pyarrow.parquet as pq
from honest_day import honest_day

from data_quality.rows.input_rows import InputRows


def test_the_footers_of_the_input_are_read_once_for_all_tasks(tmp_path):
    _, facts, _ = (day := honest_day(tmp_path)), *day.write()
    source = InputRows(None, facts)
    counts = source.for_tasks().counts
    for file in counts:
        pq.write_table(pa.table({"id": [1, 2]}), file)  # no other footer is read from now on
    assert source.for_tasks().counts == source.counts == counts
    assert source.rows == sum(counts.values())
