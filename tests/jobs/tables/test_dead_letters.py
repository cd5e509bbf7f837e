"""Dead letters: rows that ended as their policy says stay in the day, and stand with their reason
beside it.
"""

import datetime as dt
import subprocess
import sys
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable

from jobs.errors import PublishConflict
from jobs.ledger.keys import key_text
from jobs.schema import columns as schema
from jobs.schema.records import (
    DayFacts,
    DayMetrics,
    DayRecord,
    DeclaredFacts,
    LookupFacts,
    LookupMetrics,
    Verdict,
)
from jobs.storage.work_folders import work_folder
from jobs.tables import dead_letters, publishing
from jobs.tables.delivery import with_rows
from jobs.tables.records import run_records
from jobs.tables.rows_beside import letters
from tests.support.places import everywhere, place_of

TABLE = "data/published/flights"
LETTERS = f"{TABLE}__dead_letters"
FIRST, SECOND = "2013-01-10", "2013-01-11"
ATTEMPT = pa.struct([("start", pa.int64()), ("end", pa.int64()), ("throttled", pa.bool_())])


@pytest.fixture(autouse=True)
def project(tmp_path, monkeypatch, request):
    monkeypatch.chdir(tmp_path)
    table = f"{place_of(request, 'data/published')}/flights"
    monkeypatch.setitem(globals(), "TABLE", table)
    monkeypatch.setitem(globals(), "LETTERS", f"{table}__dead_letters")


def written(
    run_id, *rows, day=FIRST, wanted=("timeout", "error"), keys=True, hidden_key=False, verdicts=()
):
    """A record of a run whose files hold these rows: (flight, status, error, ends of its
    attempts).
    """
    flights, statuses, errors, ends = zip(*rows, strict=True) if rows else ((), (), (), ())
    count = len(rows)
    attempts = [
        [{"start": end - 5, "end": end, "throttled": False} for end in made] for made in ends
    ]
    columns = {
        "Flight": pa.array(flights, pa.int32()),
        "temp_c": pa.array([3.0 if status == "ok" else None for status in statuses], pa.float64()),
        "weather_status": pa.array(statuses, pa.string()),
        "weather_answered_at": pa.array([None] * count, pa.timestamp("us", "UTC")),
        schema.PARTITION: pa.array([0] * count, pa.int32()),
        schema.INPUT_SEQ: pa.array(range(count), pa.int64()),
        schema.OUTPUT_SEQ: pa.array(range(count), pa.int64()),
        schema.SEGMENT: pa.array([0] * count, pa.int64()),
        schema.LATE: pa.array([False] * count, pa.bool_()),
        schema.SOURCE_FILE: pa.array([f"file:///{day}"] * count, pa.string()),
        schema.SOURCE_ROW: pa.array(range(count), pa.int64()),
        schema.status("weather"): pa.array(statuses, pa.string()),
        schema.source("weather"): pa.array(["call"] * count, pa.string()),
        schema.attempts("weather"): pa.array(attempts, pa.list_(ATTEMPT)),
        schema.latency_ms("weather"): pa.array([1.5] * count, pa.float64()),
        schema.paused_ms("weather"): pa.array([0.0] * count, pa.float64()),
        schema.error("weather"): pa.array(errors, pa.string()),
    }
    if keys:
        kind = pa.struct([("flight", pa.int32()), ("day", pa.date32())])
        asked = [{"flight": flight, "day": dt.date.fromisoformat(day)} for flight in flights]
        columns[schema.key("weather")] = pa.array(asked, kind)
    folder = Path(work_folder(TABLE), "runs", run_id).resolve()
    folder.mkdir(parents=True)
    pq.write_table(pa.table(columns), folder / "part-0.parquet")
    lookup = LookupFacts(
        "weather",
        "http",
        "weather_api",
        (("temp_c", "DOUBLE"),),
        2.0,
        10,
        dead_letters=tuple(wanted),
        hidden_key=hidden_key,
    )
    declared = DeclaredFacts(
        enrichment="flights", table=TABLE, input_path="data/raw/flights", partition="date",
        mode="ordered", lookups=(lookup,), row_id=("flight",), fingerprint="f" * 16,
    )  # fmt: skip
    facts = DayFacts(
        declared=declared, day=day, run_id=run_id, input_files=(), input_columns=("Flight",),
        folder=str(folder), files=(str(folder / "part-0.parquet"),), shares=((10,),),
        started_at=f"{day}T02:15:00+00:00", finished_at=f"{day}T02:16:00+00:00",
    )  # fmt: skip
    outcomes = {outcome: statuses.count(outcome) for outcome in schema.OUTCOMES}
    figures = DayMetrics(
        count, count, 0, (LookupMetrics("weather", outcomes, count, 0, 1.0, 1.0, None, None),)
    )
    return DayRecord(facts, figures, verdicts)


def stand():
    """The letters that there are: day, run, flight, status."""
    if not DeltaTable.is_deltatable(LETTERS):
        return []
    rows = DeltaTable(LETTERS).to_pyarrow_table().to_pylist()
    return sorted((str(row["date"]), row["run_id"], row["Flight"], row["_status"]) for row in rows)


OK = (1, "ok", None, [10])
LATE = (2, "timeout", "no answer within 2.0 s, 1 attempts", [20])
BROKEN = (3, "error", "the service answered 500", [30, 45])
MISSED = (4, "miss", None, [50])
JOINED = (5, "timeout", "no answer within 2.0 s, waiting for an equal request", [])


@everywhere("project", on_store=pytest.mark.proof)
def test_dead_letters_stay_in_the_day_and_are_listed_with_reasons():
    record = publishing.publish(written("a", OK, LATE, BROKEN, MISSED, JOINED))
    assert DeltaTable(TABLE).to_pyarrow_table().num_rows == 5
    rows = DeltaTable(LETTERS).to_pyarrow_table().to_pylist()
    by_flight = {row.pop("Flight"): row for row in rows}
    assert sorted(by_flight) == [2, 3, 5]
    assert by_flight[3] == {
        "_lookup": "weather", "_key": '[3,"2013-01-10"]',
        "_status": "error", "_error": "the service answered 500", "_attempts": 2,
        "_at": dt.datetime(1970, 1, 1, 0, 0, 0, 45, tzinfo=dt.UTC), "run_id": "a",
        "date": dt.date(2013, 1, 10),
    }  # fmt: skip
    assert by_flight[5]["_attempts"] == 0
    # the end of the run
    assert by_flight[5]["_at"] == dt.datetime(2013, 1, 10, 2, 16, tzinfo=dt.UTC)
    assert DeltaTable(LETTERS).metadata().partition_columns == ["date", "run_id"]
    assert record.dead_letters == 3


def test_a_personal_key_stands_as_a_hash():
    publishing.publish(written("a", OK, LATE, hidden_key=True))
    (row,) = DeltaTable(LETTERS).to_pyarrow_table().to_pylist()
    assert row["_key"] == key_text((2, dt.date(2013, 1, 10)), hidden=True)
    assert row["_key"].startswith("blake2b:")


def test_the_declaration_chooses_the_outcomes_that_are_dead_letters():
    publishing.publish(written("a", OK, LATE, BROKEN, MISSED, wanted=["miss"]))
    assert stand() == [(FIRST, "a", 4, "miss")]
    publishing.publish(written("b", OK, LATE, BROKEN, MISSED, day=SECOND, wanted=[]))
    assert stand() == [(FIRST, "a", 4, "miss")]


@everywhere("project", on_store=pytest.mark.proof)
def test_only_the_published_run_of_a_day_has_dead_letters():
    publishing.publish(written("a", OK, LATE, BROKEN))
    publishing.publish(written("b", OK, LATE, day=SECOND))
    publishing.publish(written("c", OK, LATE))
    assert stand() == [(FIRST, "c", 2, "timeout"), (SECOND, "b", 2, "timeout")]
    publishing.publish(written("d", OK))
    assert stand() == [(SECOND, "b", 2, "timeout")]
    assert dead_letters.of_day(TABLE, "date", FIRST).num_rows == 0
    assert dead_letters.of_day(TABLE, "date", SECOND).num_rows == 1


@everywhere("project", on_store=pytest.mark.proof)
def test_a_held_back_day_has_its_dead_letters_in_its_record_and_not_in_the_table():
    publishing.publish(written("a", OK, LATE))
    red = Verdict("weather__errors_tolerated", "failed", "error", "50 % of the rows ended as error")
    held = run_records.hold_back(written("b", OK, BROKEN, verdicts=(red,)), red.sentence)
    with pytest.raises(PublishConflict):
        publishing.publish(held)
    assert stand() == [(FIRST, "a", 2, "timeout")]
    (record,) = [
        record for record in run_records.load("flights", FIRST) if record.facts.run_id == "b"
    ]
    assert record.dead_letters == 1
    assert [batch.num_rows for batch in letters(with_rows(record.facts), record.facts)] == [1]


@everywhere("project", on_store=pytest.mark.proof)
def test_a_run_that_loses_to_another_run_removes_its_dead_letters(monkeypatch):
    publishing.publish(written("a", OK, LATE))
    loser = written("b", OK, BROKEN)

    def lost(*_, **__):
        raise PublishConflict("another run published the day meanwhile")

    monkeypatch.setattr(publishing, "replace_day", lost)
    with pytest.raises(PublishConflict):
        publishing.publish(loser)
    assert stand() == [(FIRST, "a", 2, "timeout")]


@everywhere("project", on_store=pytest.mark.proof)
def test_dead_letters_of_a_crash_before_the_commit_are_removed_by_the_next_run(monkeypatch):
    publishing.publish(written("a", OK, LATE))

    def killed(*_, **__):
        raise KeyboardInterrupt

    crashing = written("b", OK, BROKEN)
    with monkeypatch.context() as patch:
        patch.setattr(publishing, "replace_day", killed)
        with pytest.raises(KeyboardInterrupt):
            publishing.publish(crashing)
    assert stand() == [(FIRST, "a", 2, "timeout"), (FIRST, "b", 3, "error")]
    publishing.publish(written("c", OK, BROKEN))
    assert stand() == [(FIRST, "c", 3, "error")]


@everywhere("project", on_store=pytest.mark.proof)
def test_an_empty_day_has_no_dead_letters():
    publishing.publish(written("a"))
    assert stand() == []


ENDS = f"""
from jobs.tables import dead_letters
print(len(dead_letters.of_day({TABLE!r}, "date", {FIRST!r}).to_pylist()))
"""


@everywhere("project", on_store=pytest.mark.proof)
def test_dead_letters_are_read_without_a_filesystem_of_python(project, monkeypatch):
    """Arrow's threads free its buffers after the interpreter has ended, which aborts the
    process.
    """
    publishing.publish(written("a", OK, LATE, BROKEN))
    monkeypatch.setattr(
        "deltalake.fs.DeltaStorageHandler.from_table", lambda *_: pytest.fail("of Python")
    )
    assert dead_letters.of_day(TABLE, "date", FIRST).num_rows == 2


@pytest.mark.proof
@pytest.mark.process
def test_a_program_that_read_dead_letters_exits_without_an_error(project):
    publishing.publish(written("a", *[LATE] * 2000))
    for _ in range(40):
        ended = subprocess.run(
            [sys.executable, "-c", ENDS], capture_output=True, text=True, check=False
        )
        assert (ended.returncode, ended.stdout) == (0, "2000\n"), ended.stderr
