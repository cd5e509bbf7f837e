"""How the checks read the input of a run again."""

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from honest_day import honest_day

from data_quality.rows.input_rows import InputRows, NeedsSpark
from jobs.storage.parquet_files import OLD_CALENDAR, SPARK_VERSION


def test_the_footers_of_the_input_are_read_once_for_all_tasks(tmp_path):
    _, facts, _ = (day := honest_day(tmp_path)), *day.write()
    source = InputRows(None, facts)
    counts = source.for_tasks().counts
    for file in counts:
        pq.write_table(pa.table({"id": [1, 2]}), file)  # no other footer is read from now on
    assert source.for_tasks().counts == source.counts == counts
    assert source.rows == sum(counts.values())


@pytest.mark.parametrize(
    "noted",
    [{SPARK_VERSION: "2.4.8"}, {SPARK_VERSION: "3.5.1", OLD_CALENDAR: ""}],
    ids=["Spark 2", "as Spark 2"],
)
def test_files_with_dates_that_only_spark_converts_are_read_by_spark(tmp_path, noted):
    _, facts, _ = (day := honest_day(tmp_path)), *day.write()
    path = next(iter(InputRows(None, facts).counts))
    old = pa.table({"d": pa.array([-719164], pa.int32()).cast(pa.date32())})
    pq.write_table(old.replace_schema_metadata(noted), path)
    with pytest.raises(NeedsSpark):
        InputRows(None, facts).read(path, 0, 0)
