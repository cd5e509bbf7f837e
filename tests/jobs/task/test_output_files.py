"""The files that tasks write themselves: Spark reads them as its own, and no attempt that died
leaves a row in them.
"""

import subprocess
import time
import weakref
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.errors import PythonException
from pyspark.sql import types as T  # noqa: N812 - Spark's own name for it

from jobs.errors import TidegateError
from jobs.run.engines.stages import SparkStage
from jobs.run.enrich import write_out
from jobs.run.plan.planner import plan_tasks
from jobs.task import output_files
from jobs.task.output_files import TaskFiles, groups
from tests.jobs.run.test_enrich import EXOTIC, enrichment, exotic, lookup
from tidegate import Service

ROW = pa.schema([("n", pa.int64())])


def batch(first, rows):
    return pa.RecordBatch.from_pydict({"n": list(range(first, first + rows))}, schema=ROW)


class Memory(bytearray):
    """Of one batch; unlike a bytearray it can be looked for."""


# -- in a task
# --------------------------------------------------------------------------------------------------
def test_a_file_holds_all_rows_in_order_and_has_the_number_of_its_task(tmp_path):
    written = TaskFiles(str(tmp_path), ROW).write(iter([batch(0, 7), batch(7, 0), batch(7, 3)]), 3)
    assert pq.read_table(written.file.place)["n"].to_pylist() == list(range(10))
    assert Path(written.file.place).name.startswith("part-00003-")


def test_two_attempts_of_a_task_never_write_one_file(tmp_path):
    files = TaskFiles(str(tmp_path), ROW)
    names = {files.write(iter([batch(0, 1)]), 0).file.place for _ in range(2)}
    assert len(names) == 2 == len(list(tmp_path.iterdir()))


def test_a_task_without_rows_writes_a_file_with_its_columns(tmp_path):
    written = pq.read_table(TaskFiles(str(tmp_path), ROW).write(iter([]), 0).file.place)
    assert (written.num_rows, written.column_names) == (0, ["n"])


@pytest.mark.parametrize("size", [1 << 30, 1])
def test_a_task_holds_no_more_rows_and_bytes_than_a_row_group(monkeypatch, size):
    monkeypatch.setattr(output_files, "ROWS_PER_GROUP", 10)
    monkeypatch.setattr(output_files, "BYTES_PER_GROUP", size)
    found = [group.num_rows for group in groups((batch(4 * n, 4) for n in range(5)), ROW)]
    assert found == ([12, 8] if size > 1 else [4] * 5)


def test_a_written_row_group_is_freed_before_the_next(tmp_path, monkeypatch):
    monkeypatch.setattr(output_files, "ROWS_PER_GROUP", 40)
    held: list[weakref.ref] = []
    most = 0

    def batches():
        nonlocal most
        for _ in range(100):
            memory = Memory(8 * 10)
            held.append(weakref.ref(memory))
            yield pa.record_batch(
                [pa.Array.from_buffers(pa.int64(), 10, [None, pa.py_buffer(memory)])], schema=ROW
            )
            del memory
            most = max(most, sum(reference() is not None for reference in held))

    TaskFiles(str(tmp_path), ROW).write(batches(), 0)
    assert most <= 4  # batches of a group


def test_columns_with_few_repeated_values_and_their_parts_get_no_dictionary(tmp_path):
    pair = pa.struct([("a", pa.int64())])
    table = pa.table({"n": [1, 1], "m": [1, 1], "p": pa.array([[{"a": 1}], []], pa.list_(pair))})
    files = TaskFiles(str(tmp_path), table.schema, distinct=frozenset({"m", "p"}))
    columns = pq.read_metadata(files.write(iter(table.to_batches()), 0).file.place).row_group(0)
    has_dictionary = [
        columns.column(number).has_dictionary_page for number in range(columns.num_columns)
    ]
    assert has_dictionary == [True, False, False]


# the second is no fault of the disk
@pytest.mark.parametrize("error", [ValueError, ConnectionResetError])
def test_an_attempt_that_fails_removes_what_it_wrote(tmp_path, monkeypatch, error):
    monkeypatch.setattr(output_files, "ROWS_PER_GROUP", 1)

    def fails():
        yield batch(0, 5)
        assert list(tmp_path.iterdir())
        raise error("of the run")

    with pytest.raises(error, match="of the run"):
        TaskFiles(str(tmp_path), ROW).write(fails(), 0)
    assert not list(tmp_path.iterdir())


def test_a_failed_write_ends_the_calls_of_later_rows_at_once(tmp_path, monkeypatch):
    monkeypatch.setattr(output_files, "ROWS_PER_GROUP", 1)
    calls = []

    def calling():
        calls.append("begun")
        try:
            yield batch(0, 5)
            yield pa.RecordBatch.from_pydict({"n": ["no number"]})
            yield batch(5, 5)
        finally:
            calls.append("ended")

    with pytest.raises(pa.ArrowException) as error:
        TaskFiles(str(tmp_path), ROW).write(calling(), 0)
    assert calls == ["begun", "ended"], error  # which has the frames that hold the generator


@pytest.mark.process
def test_a_full_disk_is_reported_in_one_sentence(tmp_path):
    mounted = tmp_path / "small"
    mounted.mkdir()
    if subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=64k", "tmpfs", mounted], check=False
    ).returncode:
        pytest.skip("this machine lets nobody mount a small disk")
    try:
        much = pa.RecordBatch.from_pydict({"n": [hash((n, n)) for n in range(50_000)]}, schema=ROW)
        with pytest.raises(
            TidegateError,
            match=(
                r"small: the rows cannot be written: .*No space "
                r"left.*Fix that, then run again"
            ),
        ) as reported:
            TaskFiles(str(mounted), ROW).write(iter([much]), 0)
        assert "\n" not in str(reported.value)
        assert not list(mounted.iterdir())
    finally:
        subprocess.run(["umount", mounted], check=True)


# -- a job
# --------------------------------------------------------------------------------------------------
@pytest.mark.spark
def test_spark_reads_the_files_of_tasks_as_files_of_spark(spark, service, tmp_path):
    rows = [exotic(n) for n in range(30)] + [(99,) + (None,) * (len(exotic(0)) - 1)]
    made = spark.createDataFrame(rows, T.StructType.fromDDL(EXOTIC))
    declared = enrichment(lookup(service=Service(name="w", url=service.url, max_concurrency=4)))
    made.write.parquet(str(tmp_path / "spark"))
    files = write_out(*plan_tasks(made, declared), str(tmp_path / "tasks")).files
    assert all(Path(file).parent == tmp_path / "tasks" for file in files)
    spark_field, by_tasks = spark.read.parquet(str(tmp_path / "spark")), spark.read.parquet(*files)
    carried = by_tasks.select(*(f"`{name}`" for name in made.columns))
    assert carried.schema == spark_field.schema
    own = [name for name in made.columns if name != "counts"]  # a map cannot be sorted by
    expected, found = (
        sorted(
            frame.select(*(f"`{name}`" for name in [*own, "counts"])).collect(),
            key=lambda row: row["id"],
        )
        for frame in (spark_field, carried)
    )
    assert found == expected
    # as in Spark's own: Delta knows no interval
    assert pq.read_schema(files[0]).field("span").type == pa.int64()


@pytest.mark.spark
def test_a_job_that_fails_leaves_no_file_behind(spark, tmp_path):
    files = TaskFiles(str(tmp_path), ROW)

    def task(number, _facts):
        if number == 1:
            while not list(tmp_path.iterdir()):
                time.sleep(0.01)
            raise ValueError("of the second task")
        return files.write(iter([batch(0, 5)]), number)

    with (
        pytest.raises(PythonException, match="of the second task"),
        files.only_of_results() as results,
    ):
        results.extend(SparkStage(spark).run(task, range(2)))
    assert not list(tmp_path.iterdir())
