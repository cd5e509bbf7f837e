"""What killed runs left in the tables beside the published one, which no commit names."""

import shutil
from dataclasses import replace
from datetime import timedelta
from pathlib import Path

import pytest
from deltalake import DeltaTable

from jobs.commands.vacuum import vacuum
from jobs.storage import objects
from jobs.storage.urls import is_url
from jobs.tables import audit, publishing
from jobs.tables.leases.day_leases import leased
from tests.jobs.tables import test_publishing as days
from tests.jobs.tables.test_publishing import FIRST, FLIGHTS, SECOND, project  # noqa: F401
from tests.support.places import everywhere
from tidegate import Output

AT_ONCE = timedelta(0)
RUNS = ("a", "killed", "working")


def flights():
    return replace(FLIGHTS, output=Output(path=days.TABLE), summaries=())


def left_behind(beside, run_id):
    """The file that a run writes, or its store copies, before the commit."""
    names = [name for name in files(beside) if "run_id=a/" in name]
    for name in names:
        copy = name.replace("run_id=a/", f"run_id={run_id}/")
        if is_url(beside):
            objects.copy(f"{beside}/{name}", f"{beside}/{copy}")
        else:
            Path(beside, copy).parent.mkdir()
            shutil.copy(Path(beside, name), Path(beside, copy))


def files(beside):
    if is_url(beside):
        found = [listed.name for listed in objects.listed(beside)]
    else:
        found = [path.relative_to(beside).as_posix() for path in Path(beside).rglob("*.parquet")]
    return [name for name in found if "run_id=" in name]


def runs_with_files(beside):
    return {run for run in RUNS if any(f"run_id={run}/" in name for name in files(beside))}


@everywhere("project", on_store=pytest.mark.proof)
def test_vacuum_removes_audit_rows_that_a_killed_run_did_not_commit(project):  # noqa: F811
    publishing.publish(days.run("a", FIRST, [1, 2]))
    beside = audit.table_of(days.TABLE)
    left_behind(beside, "killed")
    left_behind(beside, "working")
    with leased(days.TABLE, SECOND, "working", wait=0):
        vacuum(flights())
        assert runs_with_files(beside) == {"a", "killed", "working"}
        vacuum(flights(), older_than=AT_ONCE)
        assert runs_with_files(beside) == {"a", "working"}
    vacuum(flights(), older_than=AT_ONCE)
    assert runs_with_files(beside) == {"a"}
    assert DeltaTable(beside).to_pyarrow_table().num_rows == 2


def test_vacuum_keeps_audit_rows_of_earlier_versions_as_long_as_asked(project):  # noqa: F811
    publishing.publish(days.run("a", FIRST, [1]))
    publishing.publish(days.run("b", FIRST, [2]))
    beside = audit.table_of(days.TABLE)
    vacuum(flights())
    assert DeltaTable(beside, version=0).to_pyarrow_table().num_rows == 1
    vacuum(flights(), older_than=AT_ONCE)
    with pytest.raises(FileNotFoundError):
        DeltaTable(beside, version=0).to_pyarrow_table()
