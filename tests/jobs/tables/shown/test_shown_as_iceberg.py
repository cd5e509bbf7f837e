"""The published table as an Iceberg table: its readers see the old day or the new one, of the same
files.
"""

import dataclasses
import datetime as dt
import json
import os
import shutil
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.exceptions import CommitStateUnknownException

from jobs.commands.vacuum import vacuum
from jobs.declare.values.table_conflicts import find_conflict
from jobs.errors import DeclarationError, PublishConflict, TidegateError
from jobs.input.day import find_input
from jobs.run.day import run_day
from jobs.run.engines.stages import ThreadStage
from jobs.run.plan.preflight import preflight
from jobs.schema import columns as schema
from jobs.schema.records import Verdict
from jobs.streams.batch_publishing import MicroBatch, complete_records, publish_batch
from jobs.tables import publishing
from jobs.tables.delta.copied_rows import keep_rows
from jobs.tables.records import run_records
from jobs.tables.shown import shown_elsewhere
from tests.jobs.tables import test_publishing
from tests.jobs.tables.test_publishing import EVERYWHERE, FIRST, SECOND, project, wind  # noqa: F401
from tests.support.lakes import lake_in
from tests.support.moods import MOOD
from tidegate import Enrichment, Input, Output

NAME = "lake.shop.flights"
LAKE = None


@pytest.fixture(autouse=True)
def lake(project, tmp_path, monkeypatch):  # noqa: F811
    store = {"s3.endpoint": os.environ.get("AWS_ENDPOINT_URL", ""), "s3.region": "us-east-1"}
    with lake_in(tmp_path, tmp_path / "warehouse", monkeypatch, **store) as catalog:
        monkeypatch.setitem(globals(), "LAKE", catalog)
        yield catalog


def run(*args, **facts):
    record = test_publishing.run(*args, **facts)
    declared = dataclasses.replace(record.facts.declared, iceberg=NAME)
    return dataclasses.replace(record, facts=dataclasses.replace(record.facts, declared=declared))


def table():
    return LAKE.load_table("shop.flights")


def shown(day=None, column="flight"):
    rows = (
        table().scan(f"date = '{day}'" if day else "true").to_arrow().sort_by("flight").to_pylist()
    )
    return [row[column] for row in rows]


@EVERYWHERE
def test_a_day_is_shown_without_audit_columns_and_replaced_in_one_snapshot():
    publishing.publish(run("a", parts=2))
    publishing.publish(run("b", SECOND, [7, 8]))
    publishing.publish(run("c", FIRST, [1, 9]))
    names = ["flight", "temp_c", "weather_status", "weather_answered_at", "date"]
    rows = table().scan().to_arrow()
    assert rows.column_names == names
    assert rows.sort_by("flight").to_pylist() == (
        DeltaTable(test_publishing.TABLE)
        .to_pyarrow_table()
        .select(names)
        .sort_by("flight")
        .to_pylist()
    )
    assert (shown(FIRST), shown(SECOND)) == ([1, 9], [7, 8])
    snapshots = table().snapshots()
    assert [snapshot.summary["tidegate.runs"] for snapshot in snapshots] == [
        '{"2013-01-10": ["a"]}', '{"2013-01-11": ["b"]}', '{"2013-01-10": ["c"]}',
    ]  # fmt: skip
    old = table().scan(snapshot_id=snapshots[1].snapshot_id).to_arrow()
    # who reads the old snapshot still can
    assert sorted(old["flight"].to_pylist()) == [1, 2, 3, 7, 8]


def test_an_empty_day_is_shown_empty_and_a_new_column_is_null_in_earlier_days():
    publishing.publish(run("a", FIRST, []))
    assert shown() == []
    publishing.publish(run("b", SECOND, [7]))
    returns = (("temp_c", "DOUBLE"), ("wind_ms", "DOUBLE"))
    publishing.publish(run("c", FIRST, [1], answers=wind([1]), returns=returns))
    assert shown(column="wind_ms") == [5.0, None]
    publishing.publish(run("d", SECOND, []))
    assert shown() == [1]


def test_days_before_and_after_a_key_gets_other_parts_are_read():
    """The keys are in the files, and pyiceberg reads no file with a field that has no id."""
    keys = [{"town": "ulm"}, {"town_id": 7}, {"town": ["ulm"], "place": {"land": "de"}}]
    for number, key in enumerate(keys):
        answers = {
            "temp_c": pa.array([1.0]),
            schema.key("weather"): pa.array([key]),
        }
        publishing.publish(run(f"r{number}", f"2013-01-1{number}", [number], answers=answers))
        assert shown() == list(range(number + 1))


def test_a_day_that_another_program_rewrote_names_no_run():
    publishing.publish(run("a", parts=2))
    DeltaTable(test_publishing.TABLE).optimize.z_order(["flight"])
    publishing.publish(run("b", SECOND, [7]))
    assert shown() == [1, 2, 3, 7]
    runs = table().current_snapshot().summary["tidegate.runs"]
    assert json.loads(runs) == {FIRST: [], SECOND: ["b"]}


def test_a_file_whose_rows_the_delta_log_does_not_count_is_shown_with_their_number():
    publishing.publish(run("a"))
    DeltaTable(test_publishing.TABLE).optimize.z_order(["flight"])
    (entry,) = Path(test_publishing.TABLE, "_delta_log").glob(f"{1:020}.json")
    actions = [json.loads(line) for line in entry.read_text().splitlines()]
    for action in actions:
        action.get("add", {}).pop("stats", None)
    entry.write_text("\n".join(map(json.dumps, actions)))
    publishing.publish(run("b", SECOND, [7]))
    assert shown() == [1, 2, 3, 7]
    files = table().inspect.files().select(["record_count"]).to_pydict()
    assert sorted(files["record_count"]) == [1, 3]


def test_kept_rows_without_an_audit_column_of_today_are_shown_beside_new_rows():
    publishing.publish(run("a", parts=3))
    record = run("b", FIRST, [7, 8])
    (file,) = record.facts.files
    rows = pq.read_table(file)
    pq.write_table(rows.append_column("_of_today", pa.array([1, 2])), file)
    kept = [(old, pa.array([True])) for old in run_records.load("flights")[0].facts.files]
    for number, source in enumerate(kept):
        keep_rows([source], f"{record.facts.folder}/{number}", ThreadStage().run)
    names = sorted(map(str, Path(record.facts.folder).rglob("kept-*")))
    publishing.publish(
        dataclasses.replace(
            record, facts=dataclasses.replace(record.facts, kept_files=tuple(names))
        )
    )
    assert shown() == [1, 2, 3, 7, 8]


def test_kept_rows_with_an_audit_column_of_before_are_shown_from_the_first_snapshot_on():
    before = test_publishing.run("a")
    (old,) = before.facts.files
    pq.write_table(pq.read_table(old).append_column("_of_before", pa.array([1, 2, 3])), old)
    publishing.publish(before)
    record = run("b", FIRST, [7, 8])
    source = (run_records.load("flights")[0].facts.files[0], pa.array([True, True, False]))
    keep_rows([source], f"{record.facts.folder}/0", ThreadStage().run)
    names = sorted(map(str, Path(record.facts.folder).rglob("kept-*")))
    publishing.publish(
        dataclasses.replace(
            record, facts=dataclasses.replace(record.facts, kept_files=tuple(names))
        )
    )
    assert shown() == [1, 2, 7, 8]


def test_a_day_that_is_held_back_is_not_shown():
    publishing.publish(run("a"))
    with pytest.raises(PublishConflict):
        publishing.publish(
            run("b", FIRST, [7], verdicts=[Verdict("every_row_once", "failed", "error", "doubled")])
        )
    assert (shown(), len(table().snapshots())) == ([1, 2, 3], 1)


def test_an_already_published_table_is_shown_as_a_whole_with_its_next_day():
    publishing.publish(test_publishing.run("a"))
    publishing.publish(run("b", SECOND, [7]))
    assert shown() == [1, 2, 3, 7]
    assert len(table().snapshots()) == 1


def test_a_kill_between_the_two_commits_is_repaired_by_the_next_day_or_by_vacuum(monkeypatch):
    publishing.publish(run("a"))
    with monkeypatch.context() as patched:
        patched.setattr(shown_elsewhere, "show", killed)
        for run_id, day, rows in (("b", SECOND, [7]), ("c", FIRST, [1])):
            with pytest.raises(KeyboardInterrupt):
                publishing.publish(run(run_id, day, rows))
    assert shown() == [1, 2, 3]
    publishing.publish(run("d", "2013-01-12", [9]))
    assert shown() == [1, 7, 9]
    with monkeypatch.context() as patched:
        patched.setattr(shown_elsewhere, "show", killed)
        with pytest.raises(KeyboardInterrupt):
            publishing.publish(run("e", FIRST, [2]))
    declared = dataclasses.replace(
        enrichment(), output=Output(path=test_publishing.TABLE, iceberg=NAME)
    )
    (behind,) = shown_elsewhere.lagging(declared.facts())
    assert behind == (
        f"output: {NAME} does not show version 4 of {test_publishing.TABLE}, as after a kill; "
        "`tidegate vacuum flights` or the next run of any day brings it there."
    )
    vacuum(declared, older_than=dt.timedelta(0))
    assert shown() == [2, 7, 9]  # no file that it names is gone
    assert len(table().snapshots()) == 1
    assert list(shown_elsewhere.lagging(declared.facts())) == []


def test_batches_of_a_stream_are_shown_also_after_a_kill_between_the_two_commits(
    monkeypatch,
):
    first, second = MicroBatch("query", 0), MicroBatch("query", 1)
    publish_batch(
        [run(f"{first.runs}x", flights=[1, 2]), run(f"{first.runs}y", SECOND, [7])], first, []
    )
    assert shown() == [1, 2, 7]
    with monkeypatch.context() as patched:
        patched.setattr(shown_elsewhere, "show", killed)
        later = run_records.save(run(f"{second.runs}x", flights=[3]))
        with pytest.raises(KeyboardInterrupt):
            publish_batch([later], second, [])
    assert shown() == [1, 2, 7]
    declared = dataclasses.replace(
        enrichment(), output=Output(path=test_publishing.TABLE, iceberg=NAME)
    )
    assert len(complete_records(declared, second)) == 1
    assert shown() == [1, 2, 3, 7]


def killed(_):
    raise KeyboardInterrupt


def committing(monkeypatch, before, after=lambda: None):
    """Do something before and after the next commit to the catalog."""
    commit = SqlCatalog.commit_table

    def once(*args):
        monkeypatch.setattr(SqlCatalog, "commit_table", commit)
        before()
        answer = commit(*args)
        after()
        return answer

    monkeypatch.setattr(SqlCatalog, "commit_table", once)


def test_a_commit_with_a_lost_response_is_recognized_as_our_commit(monkeypatch):
    publishing.publish(run("a"))

    def lost():
        raise CommitStateUnknownException("the connection broke")

    committing(monkeypatch, lambda: None, lost)
    publishing.publish(run("b", SECOND, [7]))
    assert (shown(), len(table().snapshots())) == ([1, 2, 3, 7], 2)


def test_another_program_that_commits_meanwhile_keeps_its_rows_and_the_day_is_shown(monkeypatch):
    publishing.publish(run("a"))
    theirs = table()
    foreign = (
        theirs.scan("flight = 1").to_arrow().set_column(4, "date", pa.array([dt.date(2012, 1, 1)]))
    )
    committing(monkeypatch, lambda: theirs.append(foreign))
    publishing.publish(run("b", FIRST, [7]))
    assert (shown(FIRST), shown("2012-01-01")) == ([7], [1])


def test_a_catalog_that_fails_leaves_the_old_day_and_says_so_in_one_sentence(monkeypatch):
    publishing.publish(run("a"))

    def down():
        raise OSError("the catalog is down")

    committing(monkeypatch, down)
    with pytest.raises(TidegateError) as failed:
        publishing.publish(run("b", FIRST, [7]))
    assert str(failed.value) == (
        f"output: {NAME} cannot be written: the catalog is down. It shows what was published "
        f"before, {test_publishing.TABLE} what is now. Fix that, then run the same again: the "
        "ledger has the answers."
    )
    assert shown() == [1, 2, 3]
    publishing.publish(run("c", FIRST, [7]))
    assert shown() == [7]


def test_a_recreated_table_removes_its_earlier_days_from_iceberg():
    publishing.publish(run("a"))
    publishing.publish(run("b", SECOND, [7]))
    theirs = table()
    rows = theirs.scan("flight = 1").to_arrow()
    theirs.append(rows.set_column(4, "date", pa.array([dt.date(2012, 1, 1)])))
    shutil.rmtree(test_publishing.TABLE)
    publishing.publish(run("c", FIRST, [8]))
    assert (shown(FIRST), shown(SECOND), shown("2012-01-01")) == ([8], [], [1])


def test_a_failing_catalog_in_check_or_vacuum_is_not_reported_as_a_failed_publication(monkeypatch):
    publishing.publish(run("a"))

    def down(*_):
        raise OSError("the catalog is down")

    monkeypatch.setattr(SqlCatalog, "load_table", down)
    declared = run("b").facts.declared
    with pytest.raises(TidegateError) as failed:
        list(shown_elsewhere.lagging(declared))
    assert str(failed.value) == (
        f"output: {NAME} cannot be read: the catalog is down. Once it can be, run the same again."
    )
    with pytest.raises(TidegateError) as failed:
        shown_elsewhere.forget_versions(declared, dt.timedelta(0))
    assert str(failed.value) == (
        f"output: {NAME} cannot expire snapshots: the catalog is down. Its old snapshots stay. Fix "
        "that, then run the same again."
    )


@pytest.mark.parametrize("name", ["2013-01-10T05Z", "eu"])
def test_hours_and_named_partitions_are_shown_as_strings(name):
    record = run("a")
    publishing.publish(
        dataclasses.replace(record, facts=dataclasses.replace(record.facts, day=name))
    )
    assert shown(name, "date") == [name] * 3
    assert shown("other") == []


# -- a run of the job
# --------------------------------------------------------------------------------------------------
def enrichment(path="out"):
    return Enrichment(
        name="flights",
        input=Input(path="in", partition="date", row_id=["flight"]),
        lookups=[MOOD],
        output=Output(path=path, iceberg=NAME),
    )


def written_input():
    deep = pa.struct(
        [
            ("lat", pa.float64()),
            ("tags", pa.list_(pa.string())),
            ("of", pa.map_(pa.string(), pa.int32())),
        ]
    )
    columns = pa.schema(
        [("flight", pa.int32()), ("k", pa.string()), ("price", pa.decimal128(9, 2)), ("day", pa.date32()),
         ("at", pa.timestamp("us", "UTC")), ("raw", pa.binary()), ("place", deep)]
    )  # fmt: skip
    row = {
        "k": "abc", "price": 1, "day": dt.date(2013, 1, 1),
        "at": dt.datetime(2013, 1, 10, tzinfo=dt.UTC), "raw": b"x",
        "place": {"lat": 1.5, "tags": ["x", None], "of": [("a", 1)]},
    }  # fmt: skip
    Path(f"in/date={FIRST}").mkdir(parents=True)
    rows = pa.Table.from_pylist([row | {"flight": 1}, {"flight": 2}], columns)
    pq.write_table(rows, f"in/date={FIRST}/rows.parquet")
    return rows


@pytest.mark.proof
@pytest.mark.spark
def test_a_day_of_the_job_is_shown_with_its_nested_columns_and_is_an_input_of_the_next(spark):
    rows = written_input()
    preflight(enrichment(), FIRST)
    publishing.publish(run_day(enrichment(), FIRST, "r1", checks="data_quality.day:check"))
    found = table().scan().to_arrow().sort_by("flight")
    assert found.select(rows.column_names).to_pylist() == rows.to_pylist()
    assert found["score"].to_pylist() == [3.0, None]
    preflight(enrichment(), FIRST)  # it fits the table that is there now
    again = Input(format="iceberg", table=NAME, partition="date")
    assert (
        find_input(
            dataclasses.replace(enrichment(), input=again, output=Output(path="more")), FIRST
        ).rows
        == 2
    )


def refused(path="out"):
    with pytest.raises(DeclarationError) as error:
        preflight(enrichment(path), FIRST)
    return str(error.value)


def test_a_table_that_cannot_be_shown_is_refused_before_any_call(lake, monkeypatch):
    written_input()
    assert "flights cannot show the files below file:///" in refused(path="team #1/out")
    lake.create_table("shop.flights", pa.schema([("flight", pa.string()), ("date", pa.date32())]))
    assert refused() == (
        "flights: output: lake.shop.flights is partitioned by nothing; it must be by date alone, "
        "as the published table is. Name another table (Output.iceberg)."
    )
    with lake.load_table("shop.flights").update_spec() as spec:
        spec.add_identity("date")
    with lake.load_table("shop.flights").update_schema(allow_incompatible_changes=True) as columns:
        columns.update_column("flight", required=True)
    assert refused() == (
        "flights: output: lake.shop.flights forbids null in flight, which a run does not check. "
        "Make the column optional, or name another table (Output.iceberg). Nothing was called."
    )
    with lake.load_table("shop.flights").update_schema() as columns:
        columns.make_column_optional("flight")
    assert refused() == (
        "flights: output: lake.shop.flights cannot show the table: Cannot change column type: "
        "flight: string -> int. Nothing was called."
    )
    lake.drop_table("shop.flights")
    lake.drop_namespace("shop")
    assert refused() == (
        "flights: output: the namespace of lake.shop.flights does not exist; create it in the "
        "catalog. Nothing was called."
    )
    monkeypatch.delenv("PYICEBERG_CATALOG__LAKE__URI")
    monkeypatch.delenv("PYICEBERG_CATALOG__LAKE__TYPE")
    monkeypatch.delenv("PYICEBERG_CATALOG__LAKE__WAREHOUSE")
    monkeypatch.delenv("PYICEBERG_CATALOG__LAKE__S3__ENDPOINT")
    monkeypatch.delenv("PYICEBERG_CATALOG__LAKE__S3__REGION")
    assert (
        "flights: output: lake.shop.flights is in a catalog 'lake', which is not configured here"
        in refused()
    )


def test_a_table_shown_twice_or_in_place_of_its_input_is_refused():
    other = dataclasses.replace(
        enrichment(), name="others", output=Output(path="other", iceberg=NAME)
    )
    assert find_conflict(("a:flights", enrichment()), [("b:others", other)]) == (
        "a:flights and b:others both write lake.shop.flights; name another (Output.iceberg)."
    )
    with pytest.raises(DeclarationError, match="the input itself; name another table"):
        dataclasses.replace(enrichment(), input=Input(format="iceberg", table=NAME))


def test_the_name_of_an_iceberg_table_has_a_catalog_and_a_namespace():
    with pytest.raises(DeclarationError, match="iceberg is 'flights'; it must be the table's name"):
        Output(path="out", iceberg="flights")
