"""What the first version wrote is read by this one: a ledger, a published table, and the records of
its runs.

Written by tests/golden/write.py and the commands run, compact, forget and refresh of that version;
never written anew.
"""

import shutil
from pathlib import Path

import pyarrow as pa
import pytest
from deltalake import DeltaTable

from jobs.commands.check import Finding, check_package
from jobs.commands.replaying.replay import find_letters
from jobs.declare.ledger_settings import FOR_EVER
from jobs.ledger.answers import as_answers
from jobs.ledger.declared_folder import request_fingerprint
from jobs.ledger.keys import key_text
from jobs.ledger.selection import select
from jobs.ledger.store import LedgerFolder
from jobs.run.day import run_day
from jobs.run.estimating.estimate import estimate
from jobs.tables import audit
from jobs.tables.records import run_records
from tests.golden.declared.golden import order, towns, weather

GOLDEN = Path(__file__).parent / "golden"
WRITTEN_IN = "/golden/project"
FIRST, SECOND = "2024-05-01", "2024-05-02"


@pytest.fixture
def project(tmp_path, monkeypatch):
    """The golden files as the data of a project of their own, which is the current folder."""
    shutil.copytree(GOLDEN / "format_1", tmp_path / "data")
    for record in (tmp_path / "data" / "runs").rglob("*.json"):
        record.write_text(record.read_text().replace(WRITTEN_IN, str(tmp_path)))
    monkeypatch.chdir(tmp_path)
    return tmp_path


def spoken_for(lookup, keys):
    folder = LedgerFolder(towns.ledger.path, lookup.name, request_fingerprint(lookup))
    wanted = pa.array([key_text(key, hidden=False) for key in keys], pa.string())
    return {
        answer.key: (answer.outcome, answer.response)
        for answer in as_answers(select(folder, wanted, now_us=1 << 60, ttl=FOR_EVER).answers)
    }


def test_each_key_of_a_ledger_of_format_1_has_the_record_that_it_had(project):
    known = spoken_for(weather, [(f"town-{number}",) for number in range(1, 13)])
    assert {key: outcome for key, (outcome, _) in known.items()} == {
        f'["town-{number}"]': "miss" if number == 3 else "ok" for number in range(1, 13)
    }
    assert known['["town-7"]'][1] == b'{"temp_c":7.5,"at":"2024-05-01T12:00:00Z"}'
    ordered = spoken_for(order, [(number,) for number in range(1, 13)])
    assert {key: outcome for key, (outcome, _) in ordered.items()} == {
        f"[{number}]": "asked" if number == 4 else "ok" for number in range(1, 13)
    }
    assert ordered["[5]"][1] == b'{"ordered":500}'


def test_the_days_of_a_table_of_format_1_are_read_with_their_audit_letters_and_records(project):
    rows = DeltaTable(towns.output.path).to_pyarrow_table().to_pylist()
    assert sorted((str(row["date"]), row["number"], row["temp_c"]) for row in rows) == [
        *((FIRST, number, None if number == 3 else number + 0.5) for number in range(1, 8)),
        *((SECOND, number, number + 0.5) for number in range(5, 13)),
    ]
    assert DeltaTable(audit.table_of(towns.output.path)).to_pyarrow_table().num_rows == len(rows)
    assert sorted(find_letters(towns, FIRST)["_key"].to_pylist()) == ['["town-3"]', "[4]"]
    assert [record.state for record in run_records.latest("towns")] == ["published", "published"]


@pytest.mark.spark
def test_a_run_on_files_of_format_1_makes_no_call_and_plan_and_check_read_its_days(
    project, spark, service, monkeypatch
):
    monkeypatch.setenv("GOLDEN_URL", service.url)
    monkeypatch.setitem(spark.sparkContext.environment, "GOLDEN_URL", service.url)
    assert [(name, finding) for name, _, finding in check_package("tests.golden.declared")] == [
        ("towns", Finding.RIGHT)
    ]
    planned = estimate(lambda: spark, towns, [FIRST, SECOND])
    assert (planned.published, [lookup.asked for lookup in planned.lookups]) == (2, [0, 0])
    for day in (FIRST, SECOND):
        record = run_day(towns, day, f"again-{day}")
        assert [lookup.calls for lookup in record.figures.lookups] == [0, 0]
        assert record.figures.rows_out == 8
    assert service.log == []
