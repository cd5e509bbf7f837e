"""Publishing a day: readers see the old day or the new one, and the audit says how its rows came
about.
"""

import contextlib
import dataclasses
import datetime as dt
import resource
import threading
from pathlib import Path

import deltalake
import pandas as pd
import pyarrow as pa
import pyarrow.dataset as ds
import pyarrow.parquet as pq
import pytest
from deltalake import CommitProperties, DeltaTable, Transaction
from deltalake.exceptions import CommitFailedError
from deltalake.table import TableAlterer

from jobs.errors import PublishConflict, TidegateError
from jobs.schema import columns as schema
from jobs.schema.records import DayFacts, DayMetrics, DayRecord, DeclaredFacts, LookupFacts, Verdict
from jobs.storage import durable
from jobs.storage.work_folders import work_folder
from jobs.tables import audit, publishing
from jobs.tables.delivery import deliver, write_beside
from jobs.tables.derived.summaries import summarize
from jobs.tables.old_files import vacuum
from jobs.tables.records import run_records
from tests.support.delta_logs import change_table, protocol
from tests.support.places import everywhere, place_of
from tests.support.variants import first_of
from tidegate import Enrichment, HttpLookup, Input, Output, Service, Summary

TABLE = "data/published/flights"
FIRST, SECOND = "2013-01-10", "2013-01-11"


EVERYWHERE = everywhere("project")
MOSTLY_IN_A_FOLDER = everywhere("project", on_store=pytest.mark.proof)


@pytest.fixture(autouse=True)
def project(tmp_path, monkeypatch, request):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setitem(globals(), "TABLE", f"{place_of(request, 'data/published')}/flights")


def declared(*returns):
    return DeclaredFacts(
        enrichment="flights", table=TABLE, input_path="data/raw/flights", partition="date",
        mode="ordered",
        lookups=(LookupFacts("weather", "http", "weather_api", returns or (("temp_c", "DOUBLE"),), 2.0, 10),), row_id=("flight",), fingerprint="f" * 16,
    )  # fmt: skip


def files_of(run, day, flights, answers, parts=1):
    """The files of a run as the job writes them: input columns, answers, audit columns; never the
    day itself.
    """
    columns = {"flight": pa.array(flights, pa.int32())}
    columns |= answers
    rows = len(flights)
    at = dt.datetime.fromisoformat(f"{day}T12:00:00+00:00")
    columns |= {
        "weather_status": pa.array(["ok"] * rows, pa.string()),
        "weather_answered_at": pa.array([at] * rows, pa.timestamp("us", "UTC")),
        schema.PARTITION: pa.array([0] * rows, pa.int32()),
        schema.INPUT_SEQ: pa.array(range(rows), pa.int64()),
        schema.OUTPUT_SEQ: pa.array(range(rows), pa.int64()),
        schema.SEGMENT: pa.array([0] * rows, pa.int64()),
        schema.LATE: pa.array([False] * rows),
        schema.SOURCE_FILE: pa.array([f"file:///{day}"] * rows, pa.string()),
        schema.SOURCE_ROW: pa.array(range(rows), pa.int64()),
        schema.status("weather"): pa.array(["ok"] * rows, pa.string()),
        schema.source("weather"): pa.array(["call"] * rows, pa.string()),
        schema.attempts("weather"): pa.array(
            [[{"start": 1, "end": 2, "throttled": False}]] * rows,
            pa.list_(
                pa.struct([("start", pa.int64()), ("end", pa.int64()), ("throttled", pa.bool_())])
            ),
        ),
        schema.latency_ms("weather"): pa.array([1.5] * rows, pa.float64()),
        schema.paused_ms("weather"): pa.array([0.0] * rows, pa.float64()),
        schema.error("weather"): pa.array([None] * rows, pa.string()),
    }
    folder = Path(work_folder(TABLE), "runs", run).resolve()
    folder.mkdir(parents=True)
    table = pa.table(columns)
    step = -(-rows // parts) or 1
    for part in range(parts):
        pq.write_table(table.slice(part * step, step), folder / f"part-{part:05} {day}.parquet")
    return folder, tuple(sorted(map(str, folder.glob("*.parquet"))))


def run(
    run_id, day=FIRST, flights=(1, 2, 3), *, answers=None, returns=(), verdicts=(), parts=1, **facts
):
    """A record of a run, with its files written."""
    temperatures = {"temp_c": pa.array([float(flight) for flight in flights], pa.float64())}
    folder, files = files_of(
        run_id, day, flights, temperatures if answers is None else answers, parts
    )
    day_facts = DayFacts(
        declared=declared(*returns), day=day, run_id=run_id, input_files=(),
        input_columns=("flight",), folder=str(folder), files=files, shares=((10,),),
        started_at=f"{day}T02:15:00", finished_at=f"{day}T02:16:00",
    )  # fmt: skip
    figures = DayMetrics(rows_in=len(flights), rows_out=len(flights), rows_late=0, lookups=())
    return DayRecord(dataclasses.replace(day_facts, **facts), figures, tuple(verdicts))


def published(day=None):
    rows = DeltaTable(TABLE).to_pyarrow_table().to_pylist()
    return sorted(row["flight"] for row in rows if day is None or str(row["date"]) == day)


def replace_day(table, record):
    deliver(record.facts)
    publishing.replace_day(table, record)


def audited(day=FIRST):
    rows = DeltaTable(f"{TABLE}__audit").to_pyarrow_table().to_pylist()
    return sorted((row["run_id"], row["flight"]) for row in rows if str(row["date"]) == day)


@MOSTLY_IN_A_FOLDER
def test_the_first_day_creates_the_table_without_audit_columns():
    record = publishing.publish(run("a", parts=2))
    table = DeltaTable(TABLE)
    names = [field.name for field in table.schema().fields]
    assert names == ["flight", "temp_c", "weather_status", "weather_answered_at", "date"]
    assert published(FIRST) == [1, 2, 3]
    assert (record.state, record.published_version) == ("published", 0)
    assert table.metadata().partition_columns == ["date"]
    assert table.history(1)[0]["tidegate.run_id"] == "a"
    assert table.history(1)[0]["tidegate.rows"] == "3"


@MOSTLY_IN_A_FOLDER
def test_a_table_and_its_companion_tables_record_their_format():
    publishing.publish(run("r1"))
    publishing.publish(run("r2", SECOND))
    tables = (TABLE, audit.table_of(TABLE))
    assert [DeltaTable(table).transaction_version("tidegate.format") for table in tables] == [1, 1]


@MOSTLY_IN_A_FOLDER
@pytest.mark.parametrize("partition", ["interval", "current_date"])
def test_the_partition_column_may_be_named_as_a_keyword_of_sql(partition):
    for run_id in ("a", "b"):
        record = run(run_id)
        named = dataclasses.replace(record.facts.declared, partition=partition)
        publishing.publish(
            dataclasses.replace(record, facts=dataclasses.replace(record.facts, declared=named))
        )
    rows = DeltaTable(audit.table_of(TABLE)).to_pyarrow_table().to_pylist()
    assert [row["run_id"] for row in rows] == ["b"] * 3


@MOSTLY_IN_A_FOLDER
def test_a_table_of_a_newer_format_is_refused_and_unchanged():
    publishing.publish(run("r1"))
    newer = CommitProperties(app_transactions=[Transaction("tidegate.format", 2)])
    deltalake.write_deltalake(
        TABLE,
        DeltaTable(TABLE).to_pyarrow_table().slice(0, 0),
        mode="append",
        commit_properties=newer,
    )
    version = DeltaTable(TABLE).version()
    with pytest.raises(
        TidegateError, match="has format 2, and this Tidegate knows up to 1: upgrade it"
    ):
        publishing.publish(run("r2", SECOND))
    assert DeltaTable(TABLE).version() == version


@MOSTLY_IN_A_FOLDER
def test_the_record_of_a_run_contains_its_publication():
    record = publishing.publish(run("a"))
    assert run_records.load("flights", FIRST) == [record]
    assert record.published_at is not None


@EVERYWHERE
def test_a_day_that_is_published_again_is_replaced_and_other_days_are_untouched():
    publishing.publish(run("a"))
    publishing.publish(run("b", SECOND, [4, 5]))
    again = publishing.publish(run("c", FIRST, [1, 2, 9]))
    assert published(FIRST) == [1, 2, 9]
    assert published(SECOND) == [4, 5]
    assert again.published_version == 2
    old = DeltaTable(TABLE, version=1).to_pyarrow_table().column("flight").to_pylist()
    assert sorted(old) == [1, 2, 3, 4, 5]  # who reads the old version still can


def test_unpublished_files_lie_outside_the_folders_of_days():
    publishing.publish(run("a"))
    assert list(Path(TABLE).glob("date=*")) == []
    assert {uri.split("/runs/")[1].split("/")[0] for uri in DeltaTable(TABLE).file_uris()} == {"a"}


@MOSTLY_IN_A_FOLDER
def test_an_empty_day_removes_the_earlier_rows_and_their_audit():
    publishing.publish(run("a"))
    publishing.publish(run("b", SECOND, [4]))
    publishing.publish(run("c", FIRST, []))
    assert published() == [4]
    assert audited(FIRST) == []
    assert audited(SECOND) == [("b", 4)]


@MOSTLY_IN_A_FOLDER
def test_an_empty_first_day_makes_an_empty_table():
    record = publishing.publish(run("a", FIRST, []))
    assert record.state == "published"
    assert published() == []
    publishing.publish(run("b", SECOND, [4]))
    assert published() == [4]


@EVERYWHERE
def test_a_red_verdict_holds_the_day_back_and_readers_keep_the_old_day():
    publishing.publish(run("a"))
    red = Verdict("every_row_once", "failed", "error", "1 row doubled; first: flight 2")
    with pytest.raises(PublishConflict) as refused:
        publishing.publish(run("b", FIRST, [7], verdicts=[red]))
    assert str(refused.value) == (
        "2013-01-10 is held back: every_row_once: 1 row doubled; first: flight 2"
    )
    assert published() == [1, 2, 3]
    assert audited() == [("a", 1), ("a", 2), ("a", 3)]


@pytest.mark.parametrize(
    ("status", "severity", "holds"),
    [("not_run", "error", True), ("failed", "warn", False), ("passed", "error", False)],
)
def test_a_check_that_could_not_run_holds_the_day_back_and_a_warning_does_not(
    status, severity, holds
):
    record = run("a", verdicts=[Verdict("order_held", status, severity, "said")])
    if holds:
        with pytest.raises(PublishConflict):
            publishing.publish(record)
        assert not DeltaTable.is_deltatable(TABLE)
    else:
        assert publishing.publish(record).state == "published"


def keyed(flights):
    keys = [{"flight": str(flight)} for flight in flights]
    return {schema.key("weather"): pa.array(keys, pa.struct([("flight", pa.string())]))}


def wind(flights):
    temperatures = pa.array([float(flight) for flight in flights], pa.float64())
    return {"temp_c": temperatures, "wind_ms": pa.array([5.0] * len(flights), pa.float64())}


@MOSTLY_IN_A_FOLDER
def test_a_new_column_is_added_to_the_table_and_null_in_earlier_days():
    publishing.publish(run("a"))
    publishing.publish(
        run(
            "b",
            SECOND,
            [4],
            answers=wind([4]),
            returns=(("temp_c", "DOUBLE"), ("wind_ms", "DOUBLE")),
        )
    )
    rows = {
        row["flight"]: row["wind_ms"] for row in DeltaTable(TABLE).to_pyarrow_table().to_pylist()
    }
    assert rows == {1: None, 2: None, 3: None, 4: 5.0}


def committed_by_another(table):
    """A commit of another program, which changes no rows."""
    DeltaTable(table).alter.set_table_properties({"delta.appendOnly": "false"})


def test_a_run_whose_commit_response_was_lost_records_the_version_of_its_commit(monkeypatch):
    commit = DeltaTable.create_write_transaction

    def lost(table, *arguments, **named):
        commit(table, *arguments, **named)
        if table.table_uri.rstrip("/").endswith(TABLE):
            committed_by_another(TABLE)
            raise CommitFailedError

    publishing.publish(run("a"))
    monkeypatch.setattr(DeltaTable, "create_write_transaction", lost)
    assert publishing.publish(run("b", SECOND)).published_version == 1
    assert DeltaTable(TABLE).version() == 2


def test_a_commit_refused_by_delta_is_not_reported_as_another_publication():
    publishing.publish(run("a"))
    change_table(TABLE, protocol("rowTracking"))
    with pytest.raises(TidegateError, match=r"cannot be written: Unsupported .*RowTracking"):
        publishing.publish(run("b", SECOND))
    assert published() == [1, 2, 3]


@EVERYWHERE
def test_a_column_whose_commit_response_was_lost_is_added_once(monkeypatch):
    publishing.publish(run("a", FIRST, [1]))
    usual = TableAlterer.add_columns

    def lost(_, new):
        usual(DeltaTable(TABLE).alter, new)
        raise CommitFailedError("a concurrent transaction added a log entry")

    monkeypatch.setattr(TableAlterer, "add_columns", lost)
    returns = (("temp_c", "DOUBLE"), ("wind_ms", "DOUBLE"))
    publishing.publish(run("b", FIRST, [4], answers=wind([4]), returns=returns))
    assert DeltaTable(TABLE).to_pyarrow_table()["wind_ms"].to_pylist() == [5.0]


@MOSTLY_IN_A_FOLDER
def test_a_column_that_changed_its_type_is_refused_by_name_and_nothing_changes():
    publishing.publish(run("a"))
    text = {"temp_c": pa.array(["cold"], pa.string())}
    with pytest.raises(
        PublishConflict,
        match=r"column 'temp_c' is .*string.* in this run and .*double.* in the table",
    ):
        publishing.publish(run("b", FIRST, [7], answers=text))
    assert published() == [1, 2, 3]
    assert audited() == [("a", 1), ("a", 2), ("a", 3)]


@MOSTLY_IN_A_FOLDER
def test_a_column_that_is_no_longer_written_stays_with_null_values():
    returns = (("temp_c", "DOUBLE"), ("wind_ms", "DOUBLE"))
    publishing.publish(run("a", FIRST, [1], answers=wind([1]), returns=returns))
    publishing.publish(run("b", SECOND, [4]))
    rows = {
        row["flight"]: row["wind_ms"] for row in DeltaTable(TABLE).to_pyarrow_table().to_pylist()
    }
    assert rows == {1: 5.0, 4: None}


@EVERYWHERE
def test_a_run_overtaken_by_a_publication_of_its_day_is_refused_without_duplicates():
    publishing.publish(run("z", SECOND, [4]))
    loaded = DeltaTable(TABLE)
    publishing.publish(run("a", FIRST, [1, 2]))
    with pytest.raises(
        PublishConflict, match=r"another run published 2013-01-10 of flights meanwhile"
    ):
        replace_day(loaded, run("b", FIRST, [1, 2]))
    assert published(FIRST) == [1, 2]


@MOSTLY_IN_A_FOLDER
def test_a_run_of_the_only_day_is_refused_after_another_run_replaced_the_day():
    publishing.publish(run("a", FIRST, [1]))
    loaded = DeltaTable(TABLE)
    publishing.publish(run("b", FIRST, [2]))
    with pytest.raises(
        PublishConflict, match=r"another run published 2013-01-10 of flights meanwhile"
    ):
        replace_day(loaded, run("c", FIRST, [3]))
    assert published(FIRST) == [2]


@MOSTLY_IN_A_FOLDER
def test_a_concurrent_publication_of_another_day_is_not_a_conflict():
    publishing.publish(run("z", "2013-01-09", [9]))
    loaded = DeltaTable(TABLE)
    publishing.publish(run("a", FIRST, [1]))
    replace_day(loaded, run("b", SECOND, [4]))
    assert published() == [1, 4, 9]


@MOSTLY_IN_A_FOLDER
def test_a_column_added_by_another_day_meanwhile_is_not_a_conflict():
    publishing.publish(run("z", "2013-01-09", [9]))
    loaded = DeltaTable(TABLE)
    returns = (("temp_c", "DOUBLE"), ("wind_ms", "DOUBLE"))
    publishing.publish(run("a", FIRST, [1], answers=wind([1]), returns=returns))
    replace_day(loaded, run("b", SECOND, [4]))
    assert published() == [1, 4, 9]
    assert "wind_ms" in [field.name for field in DeltaTable(TABLE).schema().fields]


def race(jobs):
    """Publish these records at the same moment; what became of each."""
    barrier, found = threading.Barrier(len(jobs)), {}

    def one(record):
        barrier.wait(30)
        try:
            found[record.facts.run_id] = publishing.publish(record).state
        except PublishConflict as conflict:
            found[record.facts.run_id] = conflict

    threads = [threading.Thread(target=one, args=(job,)) for job in jobs]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    return found


@EVERYWHERE
@pytest.mark.parametrize("attempt", first_of(range(3)))
def test_runs_that_publish_the_first_day_at_once_publish_it_once_and_report_each_run(attempt):
    found = race([run("a", FIRST, [1, 2]), run("b", FIRST, [1, 2])])
    assert published() == [1, 2]
    assert set(found) == {"a", "b"}
    assert "published" in found.values()
    assert all(
        state == "published" or isinstance(state, PublishConflict) for state in found.values()
    )
    (uri,) = DeltaTable(TABLE).file_uris()
    winner = uri.split("/runs/")[1].split("/")[0]
    assert found[winner] == "published"
    assert {run_id for run_id, _ in audited()} == {winner}


@MOSTLY_IN_A_FOLDER
@pytest.mark.slow
@pytest.mark.parametrize("attempt", first_of(range(3)))
def test_days_published_at_once_are_all_in_the_table(attempt):
    days = [f"2013-01-{number}" for number in range(10, 16)]
    found = race([run(f"r{n}", day, [n]) for n, day in enumerate(days)])
    assert found == {f"r{n}": "published" for n in range(6)}
    assert published() == [0, 1, 2, 3, 4, 5]
    assert [audited(day) for day in days] == [[(f"r{n}", n)] for n in range(6)]


@MOSTLY_IN_A_FOLDER
def test_a_refused_run_removes_its_audit_rows():
    publishing.publish(run("a", FIRST, [1]))
    text = {"temp_c": pa.array(["cold"], pa.string())}
    with pytest.raises(PublishConflict):
        publishing.publish(run("b", FIRST, [1], answers=text))
    assert audited() == [("a", 1)]


@EVERYWHERE
def test_two_commits_that_both_saw_an_empty_table_do_not_double_its_first_day():
    first, second = run("a", FIRST, [1, 2]), run("b", FIRST, [1, 2])
    loaded = [publishing.created(first.facts), DeltaTable(TABLE)]
    replace_day(loaded[0], first)
    with pytest.raises(PublishConflict, match="another run published 2013-01-10"):
        replace_day(loaded[1], second)
    assert published() == [1, 2]


@EVERYWHERE
def test_a_crash_between_the_audit_and_the_commit_leaves_readers_the_old_day():
    publishing.publish(run("a", FIRST, [1, 2]))
    crashed = run("b", FIRST, [1, 9])
    audit.write(write_beside(crashed.facts))  # and here the process ends
    assert published() == [1, 2]
    readers_see = {uri.split("/runs/")[1].split("/")[0] for uri in DeltaTable(TABLE).file_uris()}
    assert {row for row in audited() if row[0] in readers_see} == {("a", 1), ("a", 2)}
    publishing.publish(crashed)
    assert published() == [1, 9]
    assert audited() == [("b", 1), ("b", 9)]


@contextlib.contextmanager
def no_file_of_more_than(size):
    """As a full disk does it: nothing that is written gets longer."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


@pytest.mark.parametrize("size", [0, 1000])  # the audit's rows cannot be written; its commit cannot
def test_a_publication_that_the_disk_refuses_is_reported_and_can_be_repeated(size):
    publishing.publish(run("a", FIRST, [1, 2]))
    second = run("b", FIRST, [1, 9])
    with (
        no_file_of_more_than(size),
        pytest.raises(TidegateError, match="flights or a table beside it") as reported,
    ):
        publishing.publish(second)
    assert str(reported.value).isprintable()
    assert published() == [1, 2]
    publishing.publish(second)
    assert published() == [1, 9]
    assert audited() == [("b", 1), ("b", 9)]


def test_a_file_that_cannot_be_replaced_stays_without_a_draft(tmp_path):
    kept = tmp_path / "record.json"
    durable.replace(kept, b"before")
    with no_file_of_more_than(0), pytest.raises(OSError, match=f"too large: '{kept}'"):
        durable.replace(kept, b"after")
    assert kept.read_text() == "before"
    assert list(tmp_path.iterdir()) == [kept]


@MOSTLY_IN_A_FOLDER
def test_the_audit_has_row_identity_and_all_audit_columns_of_the_published_run():
    publishing.publish(run("a", FIRST, [1, 2], parts=2))
    table = DeltaTable(f"{TABLE}__audit").to_pyarrow_table()
    wanted = {"flight", "run_id", "date", *schema.ROW_COLUMNS, *schema.audit_columns("weather")}
    assert set(table.column_names) == wanted
    assert table.num_rows == 2
    assert (
        table.column("_weather_attempts").to_pylist()
        == [[{"start": 1, "end": 2, "throttled": False}]] * 2
    )


def test_the_audit_finds_a_row_id_whatever_its_case():
    record = run("a")
    by_lower_name = dataclasses.replace(record.facts.declared, row_id=("FLIGHT",))
    publishing.publish(
        dataclasses.replace(record, facts=dataclasses.replace(record.facts, declared=by_lower_name))
    )
    assert audited() == [("a", 1), ("a", 2), ("a", 3)]


def test_pandas_and_pyarrow_read_the_published_files():
    publishing.publish(run("a", FIRST, [1, 2], parts=2))
    frame = DeltaTable(TABLE).to_pandas()
    assert isinstance(frame, pd.DataFrame)
    assert sorted(frame["temp_c"]) == [1.0, 2.0]
    files = [uri.removeprefix("file://") for uri in DeltaTable(TABLE).file_uris()]
    assert ds.dataset(files).count_rows() == 2


@pytest.mark.spark
def test_plain_spark_reads_the_published_files(spark):
    publishing.publish(run("a", FIRST, [1, 2], parts=2))
    publishing.publish(run("b", FIRST, [3]))
    rows = spark.read.parquet(*DeltaTable(TABLE).file_uris()).select("flight", "temp_c").collect()
    assert [tuple(row) for row in rows] == [(3, 3.0)]


def test_vacuum_finds_only_unpublished_files():
    publishing.publish(run("a", FIRST, [1]))
    run("b", FIRST, [2])
    table = DeltaTable(TABLE)
    found = table.vacuum(
        retention_hours=0, enforce_retention_duration=False, dry_run=True, full=True
    )
    assert [name.split("/")[1] for name in found] == ["b"]
    assert deltalake.__version__


def test_a_vacuum_that_the_disk_refuses_is_reported_and_can_be_repeated():
    publishing.publish(run("a", FIRST, [1]))
    publishing.publish(run("b", FIRST, [2]))
    with (
        no_file_of_more_than(0),
        pytest.raises(TidegateError, match=r"cannot be written: .* error: .*too large") as reported,
    ):
        vacuum(TABLE, older_than=dt.timedelta(0))
    assert str(reported.value).isprintable()
    assert vacuum(TABLE, older_than=dt.timedelta(0)).old == 1
    assert published() == [2]


SUMMARY = Summary(
    name="by_parity", sql="SELECT flight % 2 AS odd, count(*) AS flights FROM flights GROUP BY 1"
)
FLIGHTS = Enrichment(
    name="flights", input=Input(path="data/raw/flights"), output=Output(path=TABLE),
    summaries=[SUMMARY], lookups=[HttpLookup(
        name="weather", service=Service(name="w", url="http://w", max_concurrency=1),
        request="GET /{k}", keys={"k": "k"}, returns="temp_c DOUBLE", timeout=1.0,
    )],
)  # fmt: skip


def test_a_summary_replaces_the_day_that_is_made_again():
    publishing.publish(run("a", FIRST, [1, 2, 3]))
    publishing.publish(run("b", SECOND, [4]))
    assert summarize(FLIGHTS, SUMMARY, FIRST) == 2
    assert summarize(FLIGHTS, SUMMARY, SECOND) == 1
    publishing.publish(run("c", FIRST, [5, 7]))
    with no_file_of_more_than(0), pytest.raises(TidegateError, match="by_parity"):
        summarize(FLIGHTS, SUMMARY, FIRST)
    assert summarize(FLIGHTS, SUMMARY, FIRST) == 1
    rows = DeltaTable("data/published/by_parity").to_pyarrow_table().to_pylist()
    assert sorted((str(row["date"]), row["odd"], row["flights"]) for row in rows) == [
        (FIRST, 1, 2),
        (SECOND, 0, 1),
    ]


class LeaseOf:
    """The lease of a run that is paused right after it has confirmed it."""

    def __init__(self, meanwhile):
        self.confirm = meanwhile


@EVERYWHERE
@pytest.mark.parametrize("first", [True, False])
def test_a_run_paused_after_its_lease_check_does_not_publish_after_another_run(first, monkeypatch):
    if not first:
        publishing.publish(run("z", SECOND, [4]))
    other, paused = run("b", FIRST, [1, 2]), run("a", FIRST, [1, 9])
    # it expired too
    monkeypatch.setattr(publishing, "alone_with", lambda _table: contextlib.nullcontext())
    with pytest.raises(TidegateError):
        publishing.publish(paused, LeaseOf(lambda: publishing.publish(other)))
    assert published(FIRST) == [1, 2]
