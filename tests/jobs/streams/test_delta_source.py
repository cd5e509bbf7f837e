"""What is new of a Delta table for a stream: the files of each commit once, whatever is done to
them since.
"""

import datetime as dt
import itertools
import json
import shutil
from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import CommitProperties, DeltaTable, Transaction, write_deltalake

from jobs.errors import DeclarationError
from jobs.input.delta import DeltaInput
from jobs.schema.columns import SOURCE_FILE
from jobs.schema.records import DayFacts, DayMetrics, DayRecord
from jobs.streams.delta_source import DeltaSource
from jobs.streams.stream_files import check_streamable
from jobs.streams.stream_sources import FolderSource
from jobs.tables.records import run_records
from tests.support.delta_logs import delete_by_vector
from tests.support.moods import MOOD
from tidegate import Enrichment, Input, Output

DAY, NEXT = "2026-01-01", "2026-01-02"
MOODS = Enrichment(
    name="moods",
    input=Input(path="lake", format="delta"),
    lookups=[MOOD],
    output=Output(path="data/published/moods"),
)
SKIPPING = replace(MOODS, input=replace(MOODS.input, skip_change_commits=True))


class Lake:
    """A Delta table, and the checkpoint of a query as Spark writes it."""

    def __init__(self):
        self.batches, self.merged = [], False
        Path("checkpoint/offsets").mkdir(parents=True)
        Path("checkpoint/sources/0").mkdir(parents=True)

    def put(self, *ids, day=DAY):
        days = [dt.date.fromisoformat(day)] * len(ids)
        rows = pa.table({"id": ids, "date": days})
        write_deltalake("lake", rows, partition_by=["date"], mode="append")

    def batch(self, *versions):
        """A batch that saw these commits; its number."""
        number = len(self.batches)
        self.batches.append(versions)
        log = Path("lake/_delta_log").absolute()
        entries = [
            json.dumps(
                {"path": f"file://{log}/{version:020d}.json", "timestamp": 0, "batchId": number}
            )
            for version in versions
        ]
        Path(f"checkpoint/sources/0/{number}").write_text("\n".join(["v1", *entries]))
        Path(f"checkpoint/offsets/{number}").write_text(
            "\n".join(["v1", "{}", json.dumps({"logOffset": number})])
        )
        return number


@pytest.fixture
def lake(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    return Lake()


def published(day, version):
    """A run published the day with the rows of this version of the input's table."""
    write_deltalake(
        MOODS.output.path,
        pa.table({SOURCE_FILE: pa.nulls(1, pa.string()), "date": [dt.date.fromisoformat(day)]}),
        partition_by=["date"],
        mode="append",
        commit_properties=CommitProperties(app_transactions=[Transaction(f"date={day}", 1)]),
    )
    facts = DayFacts(
        MOODS.facts(), day, f"run-{day}", (), (), "", (), ((2,),), "2026-01-03T00:00:00Z",
        "2026-01-03T00:00:01Z", input_version=version, input_table=DeltaInput.at("lake", "date").id,
    )  # fmt: skip
    run_records.save(DayRecord(facts, DayMetrics(1, 1, 0, ()), state="published"))


def new(number, enrichment=MOODS, source=None):
    """Day -> ids of the rows that are new in a batch."""
    batch = (source or DeltaSource(enrichment, Path("checkpoint"))).batch(number)
    found = {}
    for day in batch.days:
        ids = [
            pq.read_table(file, partitioning=None)["id"].to_pylist()
            for file in batch.new_files(day)
        ]
        if ids:
            found[day] = sorted(itertools.chain(*ids))
    return found


def test_the_first_batch_has_the_rows_of_its_version_and_later_batches_the_added_rows(lake):
    lake.put(1, 2)
    lake.put(3, day=NEXT)
    DeltaTable("lake").delete("id = 1")
    source = DeltaSource(MOODS, Path("checkpoint"))
    assert new(lake.batch(0, 1, 2), source=source) == {DAY: [2], NEXT: [3]}
    lake.put(4)
    lake.put(5, day=NEXT)
    assert new(lake.batch(3, 4), source=source) == {DAY: [4], NEXT: [5]}
    lake.put(6)
    assert new(lake.batch(5), source=source) == {DAY: [6]}
    assert new(1) == {DAY: [4], NEXT: [5]}  # done again, by a new process


def test_commits_that_spark_saw_out_of_order_are_each_read_once(lake):
    for number in range(4):
        lake.put(number)
    assert [new(lake.batch(*versions)) for versions in ((0,), (2,), (1,), (3,))] == [
        {DAY: [0]}, {DAY: [1, 2]}, {}, {DAY: [3]},
    ]  # fmt: skip


def test_compactions_and_metadata_commits_add_no_rows(lake):
    lake.put(1)
    lake.put(2)
    assert new(lake.batch(0, 1)) == {DAY: [1, 2]}
    DeltaTable("lake").optimize.compact()
    DeltaTable("lake").alter.set_table_properties({"delta.logRetentionDuration": "interval 1 days"})
    assert new(lake.batch(2, 3)) == {}


def test_rows_compacted_before_the_stream_read_them_are_read_from_the_original_files(
    lake,
):
    lake.put(1)
    assert new(lake.batch(0)) == {DAY: [1]}
    lake.put(2)
    DeltaTable("lake").optimize.compact()
    assert new(lake.batch(1, 2)) == {DAY: [2]}


def test_a_commit_that_removes_rows_is_refused_or_skipped_as_declared(
    lake,
):
    lake.put(1, 2)
    lake.batch(0)
    table = DeltaTable("lake")
    table.update(predicate="id = 2", updates={"id": "7"})
    lake.put(3, day=NEXT)
    lake.put(4)
    number = lake.batch(1, 2, 3)
    with pytest.raises(
        DeclarationError,
        match=(
            r"version 1 of lake deletes or changes rows of "
            rf"{DAY}.*--day {DAY}"
        ),
    ):
        new(number)
    assert new(number, SKIPPING) == {DAY: [4], NEXT: [3]}


def test_a_stream_continues_after_a_deletion_by_a_vector_once_the_day_has_run(lake):
    lake.put(1, 2)
    lake.batch(0)
    delete_by_vector("lake", [0])
    number = lake.batch(1)
    with pytest.raises(DeclarationError, match=rf"version 1 of lake deletes .*--day {DAY}"):
        new(number)
    assert new(number, SKIPPING) == {}
    published(DAY, 2)  # after a purge, which is the version 2
    assert new(number) == {}


def test_a_first_batch_with_a_deletion_vector_is_refused_with_a_working_cure(lake):
    lake.put(1, 2)
    delete_by_vector("lake", [0])
    number = lake.batch(0, 1)
    with pytest.raises(DeclarationError, match=rf"PURGE.* Then run the day, .*--day {DAY}"):
        new(number)
    published(DAY, 2)
    assert new(number) == {}


def test_a_log_with_a_unicode_line_separator_is_read(lake):
    days = [dt.date.fromisoformat(DAY)]
    rows = pa.table({"id": [1], "text": ["two\u2028lines\x85or three"], "date": days})
    lake.put(1)
    assert new(lake.batch(0)) == {DAY: [1]}
    write_deltalake("lake", rows, mode="append", schema_mode="merge")
    assert new(lake.batch(1)) == {DAY: [1]}


def test_a_day_whose_rows_are_all_deleted_is_refused_with_a_working_cure(lake):
    lake.put(1)
    lake.put(2, day=NEXT)
    lake.batch(0, 1)
    DeltaTable("lake").delete(f"date = '{DAY}'")
    lake.put(3, day=NEXT)
    number = lake.batch(2, 3)
    with pytest.raises(
        DeclarationError, match=rf"version 2 of lake deletes all rows of {DAY}.*no run.*skip_change"
    ) as refused:
        new(number)
    assert "--day" not in str(refused.value)
    assert new(number, SKIPPING) == {NEXT: [3]}


def test_a_stream_leaves_out_rows_and_changes_that_a_run_published(lake):
    lake.put(1)
    lake.batch(0)
    lake.put(2)
    DeltaTable("lake").delete("id = 1")
    lake.put(3)
    DeltaTable("lake").optimize.compact()
    published(DAY, version=4)
    lake.put(4)
    assert new(lake.batch(1, 2, 3, 4, 5)) == {DAY: [4]}


def test_a_new_checkpoint_continues_after_the_published_version(lake):
    lake.put(1)
    lake.put(2, day=NEXT)
    published(DAY, version=1)
    lake.put(3)
    DeltaTable("lake").optimize.compact()
    assert new(lake.batch(0, 1, 2, 3)) == {DAY: [3], NEXT: [2]}


def test_a_stream_into_a_deleted_table_reads_all_rows_again(lake):
    lake.put(1)
    published(DAY, version=0)
    lake.put(2)
    shutil.rmtree(MOODS.output.path)
    assert new(lake.batch(0, 1)) == {DAY: [1, 2]}


def test_a_stream_into_another_table_reads_all_rows_again(lake):
    lake.put(1)
    published(DAY, version=0)
    lake.put(2)
    moved = replace(MOODS, output=Output(path="data/published/moods_v2"))
    assert new(lake.batch(0, 1), moved) == {DAY: [1, 2]}


def test_commits_missing_in_the_log_are_refused(lake):
    for number in range(3):
        lake.put(number)
    lake.batch(0)
    DeltaTable("lake").create_checkpoint()
    for version in range(2):  # as Delta does after the time of its logs' retention
        Path(f"lake/_delta_log/{version:020d}.json").unlink()
    with pytest.raises(DeclarationError, match=r"^moods: input: .* keeps its commits for 30 days"):
        new(lake.batch(2))


def test_a_file_vacuumed_before_the_stream_read_it_is_named(lake):
    lake.put(1)
    lake.batch(0)
    lake.put(2)
    DeltaTable("lake").optimize.compact()
    DeltaTable("lake").vacuum(0, dry_run=False, enforce_retention_duration=False)
    with pytest.raises(
        DeclarationError,
        match=(
            r"was deleted before the stream read it.*--day "
            r"2026-01-01"
        ),
    ):
        new(lake.batch(1, 2))


def test_another_table_at_the_same_path_is_refused(lake):
    lake.put(1)
    new(lake.batch(0))
    Path("lake").rename("old")
    lake.put(1)
    with pytest.raises(
        DeclarationError, match="is another table than the one that this stream has read"
    ):
        DeltaSource(MOODS, Path("checkpoint")).watched()


def test_a_stream_watches_the_folder_of_its_name_not_of_a_pattern(lake):
    lake.put(1)
    Path("lake").rename("lake[1]")
    named = replace(MOODS, input=replace(MOODS.input, path="lake[1]"))
    log = str(Path("lake").absolute()) + r"\[1\]/_delta_log"
    assert DeltaSource(named, Path("checkpoint")).watched().folders == log
    named = replace(MOODS, input=Input(path="raw{1}"))
    days = str(Path("raw").absolute()) + r"\{1\}/date=*"
    assert FolderSource(named, Path("checkpoint")).watched().folders == days


def test_compacted_log_entries_of_a_spark_checkpoint_are_read(lake):
    for number in range(12):
        lake.put(number)
        lake.batch(number)
    log = Path("checkpoint/sources/0")
    lines = [
        line for number in range(10) for line in (log / str(number)).read_text().splitlines()[1:]
    ]
    (log / "9.compact").write_text("\n".join(["v1", *lines]))
    for number in range(10):
        (log / str(number)).unlink()
    assert (new(11), new(9)) == ({DAY: [11]}, {DAY: [9]})


def test_skip_changes_needs_delta_and_a_stream_needs_parquet_or_delta_on_a_disk():
    with pytest.raises(DeclarationError, match="skip_change_commits is for a Delta table"):
        Input(path="in", skip_change_commits=True)
    check_streamable(MOODS)
    for wrong in (
        Input(path="in", format="json", schema="id BIGINT"),
        Input(path="s3://in/lake", format="delta"),
    ):
        with pytest.raises(
            DeclarationError,
            match="a stream reads folders of Parquet files or a Delta table, on a disk",
        ):
            check_streamable(replace(MOODS, input=wrong))
    for path in ("[x]", "{a,b}", "a*", "a?", r"a\b"):
        with pytest.raises(DeclarationError, match="which Spark takes for a pattern"):
            check_streamable(replace(MOODS, input=Input(path=f"raw/{path}/in")))
    with pytest.raises(
        DeclarationError, match="each batch of a stream would write the whole day to plain anew"
    ):
        check_streamable(replace(MOODS, output=Output(path="out", parquet="plain")))
