"""The published table as folders of Parquet: readers without a table format see the old day or the
new one.
"""

import dataclasses
import os
import shutil
import threading
from pathlib import Path

import pyarrow as pa
import pyarrow.dataset as ds
import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable

from jobs.declare.values.table_conflicts import find_conflict
from jobs.errors import DeclarationError, PublishConflict, TidegateError
from jobs.run.plan.preflight import preflight
from jobs.schema.records import Verdict
from jobs.storage import exchange
from jobs.tables import publishing
from jobs.tables.shown import shown_as_parquet
from jobs.tables.shown.shown_as_parquet import days_left, refuse_foreign
from tests.jobs.tables import test_publishing
from tests.jobs.tables.test_publishing import EVERYWHERE, FIRST, SECOND, project, wind  # noqa: F401
from tests.support.moods import MOOD
from tidegate import Enrichment, Input, Output

FOLDER = Path("plain")


@pytest.fixture(autouse=True)
def here(project, monkeypatch):  # noqa: F811
    """Each test in a folder of its own, where replaced files are removed at once."""
    monkeypatch.setattr(shown_as_parquet, "LISTED_WITHIN", 0.0)


def run(*args, **facts):
    record = test_publishing.run(*args, **facts)
    declared = dataclasses.replace(record.facts.declared, parquet=str(FOLDER))
    return dataclasses.replace(record, facts=dataclasses.replace(record.facts, declared=declared))


def table():
    return ds.dataset(FOLDER, partitioning="hive").to_table().sort_by("flight")


def shown(day=None):
    rows = table().to_pylist()
    return [row["flight"] for row in rows if day is None or row["date"] == day]


@EVERYWHERE
def test_folders_have_no_audit_columns_and_a_day_replaces_its_folder():
    publishing.publish(run("a", parts=2))
    publishing.publish(run("b", SECOND, [7, 8]))
    publishing.publish(run("c", FIRST, [1, 9]))
    assert (shown(FIRST), shown(SECOND)) == ([1, 9], [7, 8])
    names = ["flight", "temp_c", "weather_status", "weather_answered_at"]
    delta = DeltaTable(test_publishing.TABLE).to_pyarrow_table().select(names).sort_by("flight")
    assert table().select(names).to_pylist() == delta.to_pylist()
    (file,) = FOLDER.glob(f"date={FIRST}/*")
    assert pq.read_schema(file).names == names
    assert sorted(path.name for path in FOLDER.iterdir()) == [
        "_tidegate",
        f"date={FIRST}",
        f"date={SECOND}",
    ]


@pytest.mark.spark
def test_spark_reads_the_folders_as_a_table_of_days(spark):
    publishing.publish(run("a"))
    publishing.publish(run("b", SECOND, [7]))
    publishing.publish(run("c", FIRST, [1]))
    rows = spark.read.parquet(str(FOLDER.resolve())).orderBy("flight").collect()
    assert [(row.flight, str(row.date)) for row in rows] == [(1, FIRST), (7, SECOND)]


def test_an_empty_day_has_no_folder_and_files_without_a_new_column_read_as_null():
    publishing.publish(run("a"))
    publishing.publish(run("b", SECOND, [7]))
    publishing.publish(run("c", FIRST, []))
    assert [path.name for path in FOLDER.glob("date=*")] == [f"date={SECOND}"]
    returns = (("temp_c", "DOUBLE"), ("wind_ms", "DOUBLE"))
    publishing.publish(run("d", FIRST, [1], answers=wind([1]), returns=returns))
    publishing.publish(run("e", SECOND, [7]))
    assert table()["wind_ms"].to_pylist() == [5.0, None]


def test_folders_keep_days_that_a_recreated_table_lacks():
    publishing.publish(run("a"))
    publishing.publish(run("b", SECOND, [7]))
    shutil.rmtree(test_publishing.TABLE)
    publishing.publish(run("c", FIRST, [8]))
    assert shown() == [7, 8]
    assert days_left(run("d", FIRST, []).facts.declared) == [SECOND]


def test_a_day_published_onto_a_backup_restored_by_a_version_is_shown():
    """The version and the table's id are then those that the folders show already."""
    publishing.publish(run("a"))
    shutil.copytree("data/published", "backup")
    publishing.publish(run("b", SECOND, [7]))
    shutil.rmtree("data/published")
    shutil.copytree("backup", "data/published")
    publishing.publish(run("c", FIRST, [8]))
    assert shown(FIRST) == [8]


def test_a_day_that_is_held_back_is_not_shown_in_folders():
    publishing.publish(run("a"))
    with pytest.raises(PublishConflict):
        publishing.publish(
            run("b", FIRST, [7], verdicts=[Verdict("every_row_once", "failed", "error", "doubled")])
        )
    assert shown() == [1, 2, 3]


@pytest.mark.parametrize("killed", ["show", "exchange"])
def test_a_kill_before_or_during_the_folders_is_repaired_by_the_next_day(killed, monkeypatch):
    publishing.publish(run("a"))

    def kill(*_):
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr(
            f"jobs.tables.shown.{'shown_elsewhere' if killed == 'show' else 'shown_as_parquet'}.{killed}",
            kill,
        )
        with pytest.raises(KeyboardInterrupt):
            publishing.publish(run("b", FIRST, [7]))
    assert shown() == [1, 2, 3]
    publishing.publish(run("c", SECOND, [9]))
    assert (shown(FIRST), shown(SECOND)) == ([7], [9])
    assert not (FOLDER / "_writing").exists()


@pytest.mark.parametrize(
    "killed", ["jobs.storage.durable.Path.replace", "jobs.tables.shown.shown_as_parquet.exchange"]
)
def test_after_a_kill_during_the_first_publication_the_folder_is_recognized(killed, monkeypatch):
    def kill(*_):
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr(killed, kill)
        with pytest.raises(KeyboardInterrupt):
            publishing.publish(run("a"))
    refuse_foreign(enrichment())
    publishing.publish(run("b", SECOND, [9]))
    assert (shown(FIRST), shown(SECOND)) == ([1, 2, 3], [9])


@pytest.mark.proof
def test_a_reader_sees_a_whole_day_or_missing_files_and_never_a_mixture(monkeypatch):
    monkeypatch.setattr(shown_as_parquet, "LISTED_WITHIN", 0.5)
    publishing.publish(run("r0", FIRST, [0] * 8, parts=4))
    seen, ended = set(), threading.Event()

    def read():
        while not ended.is_set():
            try:
                seen.add(tuple(shown(FIRST)))
            except FileNotFoundError:
                continue

    reader = threading.Thread(target=read)
    reader.start()
    try:
        for number in range(1, 7):
            publishing.publish(run(f"r{number}", FIRST, [number] * 8, parts=4))
    finally:
        ended.set()
        reader.join(60)
    assert seen <= {(number,) * 8 for number in range(7)}
    assert len(seen) > 1


def test_a_reader_that_opened_a_day_before_its_replacement_does_not_see_it_empty(monkeypatch):
    publishing.publish(run("a", parts=2))
    replacing = run("b", FIRST, [7])
    with monkeypatch.context() as patched:
        patched.setattr("jobs.tables.shown.shown_elsewhere.show", lambda _: None)
        publishing.publish(replacing)
    opened, listed = os.open(FOLDER / f"date={FIRST}", os.O_RDONLY), []
    shown_as_parquet.show(
        replacing.facts.declared,
        sleep=lambda _: listed.extend(os.listdir(opened)),  # noqa: PTH208  # a folder, not its name
    )
    os.close(opened)
    assert sorted(listed) == ["a-00000.parquet", "a-00001.parquet"]
    assert shown() == [7]
    assert not (FOLDER / "_writing").exists()


def test_without_an_atomic_exchange_the_day_is_replaced_by_renames(monkeypatch):
    monkeypatch.setattr(exchange, "_exchanged", lambda *_: False)
    publishing.publish(run("a"))
    publishing.publish(run("b", FIRST, [7]))
    assert shown() == [7]
    assert not (FOLDER / "_writing").exists()


def test_a_failing_disk_leaves_the_old_day_and_is_reported():
    publishing.publish(run("a"))
    (FOLDER / "_writing").write_text("a file in the way")
    with pytest.raises(
        TidegateError,
        match=(
            r"^output: plain or a table beside it cannot be "
            r"written: .*the ledger has"
        ),
    ):
        publishing.publish(run("b", FIRST, [7]))
    assert shown() == [1, 2, 3]


def enrichment(**changes):
    return Enrichment(
        name="flights",
        input=Input(path="in", partition="date", row_id=["flight"]),
        lookups=[MOOD],
        output=Output(path="out", **{"parquet": str(FOLDER)} | changes),
    )


def test_a_foreign_folder_is_refused_before_any_call():
    Path(f"in/date={FIRST}").mkdir(parents=True)
    pq.write_table(pa.table({"flight": [1], "k": ["abc"]}), f"in/date={FIRST}/rows.parquet")
    FOLDER.mkdir()
    preflight(enrichment(), FIRST)
    (FOLDER / "theirs.parquet").touch()
    with pytest.raises(DeclarationError) as refused:
        preflight(enrichment(), FIRST)
    assert str(refused.value) == (
        "flights: output: parquet: plain has files of others; name an empty folder, or one that is "
        "not there."
    )


@pytest.mark.parametrize("folder", ["out", "out/plain", "in/plain", "."])
def test_a_folder_inside_or_around_another_table_or_the_input_is_refused(folder):
    with pytest.raises(DeclarationError, match="inside or around it; name another folder"):
        enrichment(parquet=folder)


def test_two_enrichments_with_the_same_folder_are_refused():
    other = dataclasses.replace(
        enrichment(), name="others", output=Output(path="other", parquet=str(FOLDER))
    )
    assert find_conflict(("a:flights", enrichment()), [("b:others", other)]) == (
        "a:flights and b:others both write plain, folders of Parquet and folders of Parquet at "
        "once; move one (Output.path)."
    )


def test_a_folder_on_a_store_is_refused():
    with pytest.raises(
        DeclarationError, match="it must be a folder on a disk: a store cannot exchange the"
    ):
        Output(path="s3://lake/orders", parquet="s3://lake/plain")
