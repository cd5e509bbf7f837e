"""Commits to tables on a store, whose answers get lost, and before which other programs commit."""

from pathlib import Path

import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake

from jobs.errors import TidegateError
from jobs.storage import objects
from jobs.tables import audit
from jobs.tables.delta import by_run
from jobs.tables.delta.delta_log import commit_on_top, table_at
from jobs.tables.publishing import publish
from tests.jobs.tables import test_publishing as days
from tests.support.killed_processes import behind_a_proxy

pytestmark = pytest.mark.process

DAYS = ["2013-01-10", "2013-01-11"]
ROOT = Path(__file__).parents[4]


@pytest.fixture
def place(s3, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    return f"{s3.bucket}/flights"


def rows(day, *numbers):
    return pa.table({"flight": pa.array(numbers, pa.int64()), "date": [day] * len(numbers)})


def append(table, day, *numbers):
    write_deltalake(table, rows(day, *numbers), mode="append", partition_by=["date"])


def numbers_at(place):
    return sorted(DeltaTable(place).to_pyarrow_table()["flight"].to_pylist())


def append_once(place):
    table = table_at(place)
    commit_on_top(table, lambda: append(table, DAYS[1], 2))


@pytest.mark.proof
@pytest.mark.parametrize("cuts", [False, True])
@pytest.mark.parametrize("at", range(3, 9))
def test_a_commit_with_a_lost_response_adds_its_rows_once(place, s3, monkeypatch, cuts, at):
    append(place, DAYS[0], 1)
    monkeypatch.setenv("PYTHONPATH", str(ROOT))
    with behind_a_proxy(s3, preload=__name__) as run:
        run(append_once, place, at=at, cuts=cuts)
    assert numbers_at(place) == [1, 2]


def test_a_log_with_a_missing_entry_is_reported_and_not_read_as_a_shorter_log(place):
    for number in range(4):
        append(place, DAYS[0], number)
    objects.delete(f"{place}/_delta_log", [f"{1:020}.json"])
    with pytest.raises(
        TidegateError, match=f"table {place}: its log, {place}/_delta_log, cannot be read: "
    ):
        table_at(place)


def test_rows_of_a_run_are_added_once_although_another_program_always_commits_first(
    place, monkeypatch
):
    days.TABLE = place
    publish(days.run("a", DAYS[0], [1]))
    beside, usual, races = audit.table_of(place), by_run.commit_on_top, iter(range(3))

    def behind_another(table, commit):
        def commit_second():
            if next(races, None) is not None:
                DeltaTable(beside).alter.set_table_properties(
                    {"delta.logRetentionDuration": "interval 9 days"}
                )
            commit()

        usual(table, commit_second)

    monkeypatch.setattr(by_run, "commit_on_top", behind_another)
    publish(days.run("b", DAYS[1], [2, 3]))
    found = DeltaTable(beside).to_pyarrow_table().to_pylist()
    assert sorted((row["run_id"], row["flight"]) for row in found) == [("a", 1), ("b", 2), ("b", 3)]
