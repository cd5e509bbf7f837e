"""The commands that run days, against a real service whose own log counts the calls."""

import asyncio
import datetime as dt
import os
import subprocess
import sys
from pathlib import Path

import pyarrow as pa
import pytest
from aiohttp import web
from deltalake import DeltaTable

from jobs.process.spark_submit import SparkSubmit
from jobs.run.engines.engine import ENGINE, LOCAL
from jobs.tables.leases.day_leases import leased
from tests.support.program_here import in_this_session
from tidegate.__main__ import main

DAY, NEXT = "2013-01-10", "2013-01-11"
ROOT = Path(__file__).parents[3]
TABLE = "data/published/towns"


@pytest.fixture
def asked(towns, monkeypatch, service):
    """The service that `towns` asks; a day of ten rows with ten towns."""
    monkeypatch.setenv("WEATHER_URL", service.url)
    towns.write_input(DAY, range(10))
    return service


@pytest.fixture
def locally(monkeypatch):
    """Days run by the local engine, in this process."""
    monkeypatch.setenv(ENGINE, LOCAL)
    monkeypatch.setattr(SparkSubmit, "started", in_this_session)


def tidegate(*arguments):
    return main([*arguments, "--package", "declared"])


def rows_of(day):
    rows = (
        DeltaTable(TABLE)
        .to_pyarrow_table(filters=[("date", "=", dt.date.fromisoformat(day))])
        .to_pylist()
    )
    return {row["number"]: row for row in rows}


def letters():
    rows = DeltaTable(f"{TABLE}__dead_letters").to_pyarrow_table().to_pylist()
    return sorted((row["number"], row["_key"], row["_status"]) for row in rows)


@pytest.mark.usefixtures("locally")
def test_columns_declared_in_another_case_are_checked_and_replayed(towns, local_days, capsys):
    towns.declare_too(
        "import datetime as dt",
        "from tidegate import EventTime, Input",
        'read = Input(path="data/raw/towns", row_id=["Number"])',
        'time = EventTime("At", max_out_of_orderness=dt.timedelta(0))',
        'towns = replace(towns, input=read, mode="key_ordered", key=["Town"], event_time=time)',
    )
    times = pa.array([dt.datetime(2013, 1, 10, hour, tzinfo=dt.UTC) for hour in range(8)])
    local_days.write_input(DAY, list("abcdefgh"), AT=times)
    local_days.fails = {"b": 500}
    assert local_days.run(DAY) == 0
    assert letters() == [(1, '["b"]', "error")]
    local_days.fails = {}
    assert local_days.run(DAY, command="replay") == 0
    assert letters() == []
    assert "failed" not in capsys.readouterr().out


def failing_for(*towns):
    """A service that is broken for some towns."""

    async def answer(request):
        if request.path.rpartition("/")[2] in towns:
            return web.Response(status=500)
        return web.json_response({"temp_c": 3.5, "wind": {"speed": 5.0}})

    return answer


@pytest.mark.usefixtures("locally")
def test_days_are_run_until_a_day_fails_and_a_replay_calls_only_for_dead_letters(asked, capsys):
    asked.answer = failing_for("town-8")
    assert tidegate("run", "towns", "--from", DAY, "--to", "2013-01-13") == 2
    first, second = capsys.readouterr().out.splitlines()
    assert first == (
        f"{DAY}  published   10 rows, 10 calls, 0 answers from the ledger, 1 dead letter; version 0"
    )
    assert second == (
        f"{NEXT}  no input    towns: input: there is no data/raw/towns/date={NEXT} for {NEXT}; "
        "nothing can be enriched."
    )
    assert rows_of(DAY)[8]["weather_status"] == "error"
    assert letters() == [(8, '["town-8"]', "error")]
    before = len(asked.log)

    asked.answer = failing_for()
    assert tidegate("replay", "towns", "--day", DAY) == 0
    assert asked.log[before:] == ["/v1/town-8"]
    assert capsys.readouterr().out == (
        f"{DAY}  published   10 rows, 1 call, 9 answers from the ledger; version 1\n"
    )
    assert {row["weather_status"] for row in rows_of(DAY).values()} == {"ok"}
    assert letters() == []

    assert tidegate("replay", "towns", "--day", DAY) == 0
    assert capsys.readouterr().out == (
        f"{DAY}  has no dead letters: nothing to do, nothing was called.\n"
    )
    assert len(asked.log) == before + 1


@pytest.mark.usefixtures("asked", "locally")
def test_a_report_that_cannot_be_written_is_a_warning_and_the_day_is_published(capsys):
    Path("data/reports/towns/index.html").mkdir(parents=True)  # in the way of the page
    assert tidegate("run", "towns", "--day", DAY) == 0
    first, second = capsys.readouterr().out.splitlines()
    assert first.startswith(f"{DAY}  published   10 rows, 10 calls")
    assert second.startswith(f"{DAY}  warning     its report is not written: ")
    assert len(rows_of(DAY)) == 10


def test_a_day_held_by_another_run_is_not_started_and_reported_in_one_sentence(
    towns, asked, capsys
):
    with leased(TABLE, DAY, "theirs"):
        assert tidegate("run", "towns", "--day", DAY, "--wait", "0.1") == 1
    message = capsys.readouterr()
    assert message.out == ""
    assert message.err.startswith("2013-01-10 is being run by run theirs (process ")
    assert message.err.endswith("; nothing was started.\n")
    assert asked.log == []


@pytest.mark.spark
@pytest.mark.proof
def test_a_new_column_costs_no_call_and_a_refresh_calls_only_for_its_answers(towns, asked, capsys):
    towns.write_input(NEXT, range(6, 16))
    asked.answer = cold_in("town-7")
    assert tidegate("run", "towns", "--from", DAY, "--to", NEXT) == 0
    assert len(asked.log) == len(set(asked.log)) == 16  # 4 towns in common
    capsys.readouterr()

    towns.declare(returns="temp_c DOUBLE, wind_ms DOUBLE")
    assert tidegate("remap", "weather", "--from", DAY) == 0
    assert capsys.readouterr().out.splitlines() == [
        "towns: 2 days",
        # 2 adds the column
        f"{DAY}  published   10 rows, 0 calls, 10 answers from the ledger; version 3",
        f"{NEXT}  published   10 rows, 0 calls, 10 answers from the ledger; version 4",
    ]
    assert len(asked.log) == 16
    assert {row["wind_ms"] for day in (DAY, NEXT) for row in rows_of(day).values()} == {5.0}

    asked.answer = cold_in()
    assert tidegate("refresh", "weather", "--where", "answer.temp_c = 0", "--run") == 0
    assert asked.log[16:] == ["/v1/town-7"]
    assert capsys.readouterr().out.splitlines()[:2] == [
        "weather: 1 stored answer meets the condition.",
        f"  towns: 2 days use them: {DAY}, {NEXT}",
    ]
    assert {row["temp_c"] for day in (DAY, NEXT) for row in rows_of(day).values()} == {3.5}

    assert tidegate("forget", "weather", "--key", "town=town-7") == 0
    assert sorted(rows_of(DAY)) == [0, 1, 2, 3, 4, 5, 6, 8, 9]
    assert sorted(rows_of(NEXT)) == [6, 8, 9, 10, 11, 12, 13, 14, 15]


@pytest.mark.spark
@pytest.mark.proof
def test_a_killed_run_continues_when_the_same_command_is_run_again(towns, asked, wait_for, capsys):
    towns.write_input(NEXT, range(40))

    async def slow(_):
        await asyncio.sleep(0.25)
        return web.json_response({"temp_c": 3.5})

    asked.answer = slow
    command = [
        sys.executable,
        "-m",
        "tidegate",
        "run",
        "towns",
        "--day",
        NEXT,
        "--package",
        "declared",
    ]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(ROOT), str(Path.cwd())])}
    with subprocess.Popen(command, env=environment, stdout=subprocess.DEVNULL) as killed:
        wait_for(lambda: len(asked.log) >= 20, 240)
        killed.kill()
    assert not DeltaTable.is_deltatable(TABLE) or rows_of(NEXT) == {}
    assert tidegate("run", "towns", "--day", NEXT) == 0
    again = len(asked.log) - len(set(asked.log))
    # in flight, and one flush interval: half a second of four calls of a quarter
    assert again <= 4 + 8
    assert f"{NEXT}  published   40 rows" in capsys.readouterr().out
    assert {row["weather_status"] for row in rows_of(NEXT).values()} == {"ok"}


def cold_in(*towns):
    """A service that has an impossible temperature for some towns."""

    async def answer(request):
        cold = request.path.rpartition("/")[2] in towns
        return web.json_response({"temp_c": 0.0 if cold else 3.5, "wind_ms": 5.0})

    return answer
