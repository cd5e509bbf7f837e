"""Which run readers see, where a kill came between its commit and its record."""

import shutil

import pytest
from deltalake import DeltaTable

from jobs.commands.vacuum import vacuum
from jobs.ledger.keys import key_text
from jobs.storage import durable
from jobs.tables import publishing
from jobs.tables.delta.asked_keys import KeysOf
from jobs.tables.erasing import without_rows
from jobs.tables.leases.day_leases import leased
from jobs.tables.records import run_records
from jobs.tables.records.published_runs import last_published
from jobs.tables.shown.shown_days import lost_days
from tests.jobs.tables import test_publishing as days
from tests.jobs.tables.test_publishing import FIRST, FLIGHTS, SECOND, keyed, project  # noqa: F401
from tests.support.places import everywhere

EVERYWHERE = everywhere("project")


class Kill(BaseException):
    """As kill -9: nothing that runs afterwards heeds it."""


def kill(*_):
    raise Kill


def publish_and_die(record):
    """Publish, and die before the record says so."""
    run_records.save(record)
    with pytest.MonkeyPatch.context() as dying:
        dying.setattr(run_records, "save", kill)
        with pytest.raises(Kill):
            publishing.publish(record)


@EVERYWHERE
def test_after_a_kill_the_last_published_run_is_the_run_that_readers_see(project):  # noqa: F811
    publishing.publish(days.run("a", FIRST, [1]))
    publish_and_die(days.run("b", FIRST, [2]))
    assert days.published(FIRST) == [2]
    assert last_published("flights", FIRST).facts.run_id == "b"
    assert last_published("flights", FIRST, before="b").facts.run_id == "a"


@pytest.mark.parametrize("flights", [[2], []], ids=["rows", "no rows"])
def test_vacuum_completes_the_record_of_a_published_run_that_was_killed(project, flights):  # noqa: F811
    publishing.publish(days.run("a", FIRST, [1]))
    publish_and_die(days.run("b", FIRST, flights))
    run_records.save(days.run("never", SECOND, [3]))
    vacuum(FLIGHTS)
    record = run_records.of_run("flights", FIRST, "b")
    assert (record.state, record.published_version) == ("published", 1)
    assert run_records.of_run("flights", SECOND, "never").state == "written"
    assert [*lost_days(FLIGHTS, run_records.load("flights"))] == []


def test_a_day_emptied_by_a_killed_run_is_not_reported_as_lost(project):  # noqa: F811
    publishing.publish(days.run("a", FIRST, [1]))
    publish_and_die(days.run("b", FIRST, []))
    assert [*lost_days(FLIGHTS, run_records.load("flights"))] == []
    assert DeltaTable(days.TABLE).version() == 1


def test_a_day_missing_in_the_table_is_reported_as_lost(project):  # noqa: F811
    publishing.publish(days.run("a", FIRST, [1]))
    publishing.publish(days.run("b", SECOND, [2]))
    DeltaTable(days.TABLE).delete("date = '2013-01-11'")
    publishing.publish(days.run("c", FIRST, []))
    lost = lost_days(FLIGHTS, run_records.load("flights"))
    assert [day for day, _ in lost] == [SECOND]


def test_a_day_of_a_restored_table_is_lost_until_it_is_published_again(project):  # noqa: F811
    publishing.publish(days.run("a", FIRST, [1]))
    shutil.copytree(days.TABLE, "backup")
    publishing.publish(days.run("b", FIRST, [2]))
    shutil.rmtree(days.TABLE)
    shutil.copytree("backup", days.TABLE)
    for number in range(2):  # until the versions have passed that of the lost publication
        lost = lost_days(FLIGHTS, run_records.load("flights"))
        assert [day for day, _ in lost] == [FIRST]
        publishing.publish(days.run(f"c{number}", SECOND, [3]))
    assert [day for day, _ in lost_days(FLIGHTS, run_records.load("flights"))] == [FIRST]
    publishing.publish(days.run("d", FIRST, [2]))
    assert [*lost_days(FLIGHTS, run_records.load("flights"))] == []


@pytest.mark.parametrize("gone", [["1"], ["1", "2"]], ids=["some rows", "all rows"])
def test_a_killed_forget_that_had_committed_has_a_record(project, gone):  # noqa: F811
    publishing.publish(record := days.run("a", FIRST, [1, 2], answers=keyed([1, 2])))
    keys = KeysOf("weather", ("flight",), {key_text((key,), hidden=False) for key in gone})
    save = run_records.save
    with pytest.MonkeyPatch.context() as dying, leased(days.TABLE, FIRST, "b", wait=0) as lease:
        dying.setattr(
            run_records,
            "save",
            lambda record: kill() if record.state == "published" else save(record),
        )
        with pytest.raises(Kill):
            without_rows(record, record.facts.files, keys, run_id="b", lease=lease)
    assert [*lost_days(FLIGHTS, run_records.load("flights"))] == []
    vacuum(FLIGHTS)
    last = last_published("flights", FIRST)
    assert (last.facts.run_id, last.published_version) == ("b", 1)
    assert last.rows_published == len(days.published(FIRST)) == 2 - len(gone)


def test_vacuum_removes_what_a_killed_process_was_writing_of_a_record(project, tmp_path):  # noqa: F811
    publishing.publish(days.run("a", FIRST, [1]))
    record = days.run("b", FIRST, [2])
    with pytest.MonkeyPatch.context() as dying:
        dying.setattr(durable.Path, "replace", kill)
        with pytest.raises(Kill):
            run_records.save(record)
    drafts = [*tmp_path.glob("data/runs/**/.*.draft")]
    assert len(drafts) == 1
    vacuum(FLIGHTS)
    assert drafts[0].exists()
    later = drafts[0].stat().st_mtime + 8 * 86_400
    vacuum(FLIGHTS, clock=lambda: later)
    assert not drafts[0].exists()
