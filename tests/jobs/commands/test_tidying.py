"""compact and vacuum on the command line: what they say, and that they lose nothing."""

import os
import time
from pathlib import Path

import pyarrow as pa
import pytest
from deltalake import DeltaTable

from jobs.declare.ledger_settings import FOR_EVER
from jobs.ledger.keys import key_text
from jobs.ledger.selection import select
from jobs.storage.stored_files import is_there
from jobs.tables.delivery import deliver
from jobs.tables.leases.day_leases import leased
from tests.support.places import everywhere
from tidegate.__main__ import main

DAY = "2013-01-10"


@everywhere("towns", on_store=pytest.mark.proof)
def test_compact_loses_no_answer_and_reports_its_work(towns, capsys):
    assert main(["compact", "--package", "declared"]) == 0
    assert capsys.readouterr().out == "Nothing is stored yet.\n"
    for number in range(5):
        towns.store({number: {"temp_c": 1.0}})
    assert main(["compact", "weather", "--package", "declared"]) == 0
    message = capsys.readouterr().out
    assert message.startswith(
        "weather               5 records; 5 parts taken in, 0 records dropped, 0 files deleted   "
    )
    wanted = pa.array([key_text((f"town-{number}",)) for number in range(5)])
    assert select(towns.folder, wanted, now_us=2**60, ttl=FOR_EVER).answers.num_rows == 5


def test_compact_removes_files_of_a_run_killed_days_ago_and_none_of_a_run_at_work(towns):
    towns.store({1: {"temp_c": 1.0}})
    for run_id, age in (("killed", 3 * 86_400), ("at-work", 10)):
        towns.folder.replace(f"runs/{run_id}/index-1.arrow", b"x")
        path = Path(towns.folder.path, "runs", run_id, "index-1.arrow")
        os.utime(path, (time.time() - age,) * 2)
    assert main(["compact", "--package", "declared"]) == 0
    assert [path.name for path in Path(towns.folder.path, "runs").iterdir()] == ["at-work"]


@everywhere("towns", on_store=pytest.mark.proof)
def test_vacuum_keeps_young_files_and_reports_the_removed_files_of_each_table(towns, capsys):
    towns.publish(DAY, [1, 2], statuses={2: "error"})
    towns.publish(DAY, [1], run_id="again")
    towns.written(DAY, [1], "never published", {})
    assert main(["vacuum", "towns", "--package", "declared"]) == 0
    assert set(capsys.readouterr().out.splitlines()) == {
        f"{towns.place}/{name}: 0 old files and 0 folders of runs removed"
        for name in ("towns", "towns__audit", "towns__dead_letters", "by_town")
    }
    assert main(["vacuum", "towns", "--keep-days", "0", "--package", "declared"]) == 0
    assert (
        f"{towns.place}/towns: 1 old file and 1 folder of a run removed"
        in capsys.readouterr().out.splitlines()
    )
    assert DeltaTable(f"{towns.place}/towns").to_pyarrow_table()["number"].to_pylist() == [1]
    for days in ("-1", "740000"):
        assert main(["vacuum", "towns", "--keep-days", days, "--package", "declared"]) == 2
        expected = f"--keep-days is {days}; it must be 0 to 36,500.\n"
        assert capsys.readouterr().err == expected
    assert main(["vacuum", "towns", "--keep-days", "8", "--package", "declared"]) == 2


def test_vacuum_removes_files_of_a_crashed_publication_and_none_of_a_run_at_work(towns, s3):
    towns.place = s3.bucket
    towns.declare()
    kept = towns.publish(DAY, [1]).facts
    crashed = [
        deliver(towns.written(DAY, [2], run_id, {}).facts) for run_id in ("crashed", "at work")
    ]
    with leased(f"{s3.bucket}/towns", "2013-01-11", "at work"):
        assert main(["vacuum", "towns", "--package", "declared"]) == 0
        assert all(map(is_there, [*kept.files, *crashed[0].files, *crashed[1].files]))
        assert main(["vacuum", "towns", "--keep-days", "0", "--package", "declared"]) == 0
    found = [is_there(file) for facts in (kept, *crashed) for file in facts.files]
    assert found == [True, False, True]
