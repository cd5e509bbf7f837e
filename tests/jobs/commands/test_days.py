"""The commands that run days, against a real service whose own log counts the calls."""

import datetime as dt
import sys
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from aiohttp import web
from deltalake import DeltaTable

from jobs.tables.leases import leased
from tidegate.__main__ import main

DAY, NEXT = "2013-01-10", "2013-01-11"
TABLE = "data/published/towns"
DECLARATION = """
from tidegate import Enrichment, Env, HttpLookup, Input, Output, Retry, Service, Tolerance

lookup = HttpLookup(
    name="weather",
    service=Service(name="weather_api", url=Env("WEATHER_URL"), max_concurrency=4),
    request="GET /v1/{{town}}",
    keys={{"town": "trim(town)"}},
    returns="{returns}",
    timeout=5.0,
    retry=Retry(retries=0),
)
towns = Enrichment(
    name="towns",
    input=Input(path="data/raw/towns", row_id=["number"]),
    lookups=[lookup],
    output=Output(path="data/published/towns"),
    tolerance=Tolerance(error=0.2),
    pii={pii},
)
"""


@pytest.fixture
def towns(tmp_path, monkeypatch, service):
    """A day of ten rows with ten towns, and their declaration in a package of its own."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setenv("WEATHER_URL", service.url)
    write_day(DAY, range(10))
    Path("declared").mkdir()
    Path("declared/__init__.py").touch()

    def declare(returns="temp_c DOUBLE", pii=()):
        for name in ("declared", "declared.towns"):
            sys.modules.pop(name, None)  # the next command reads it anew, as a new process would
        Path("declared/towns.py").write_text(DECLARATION.format(returns=returns, pii=list(pii)))

    declare()
    service.declare = declare
    return service


def write_day(day, numbers):
    folder = Path(f"data/raw/towns/date={day}")
    folder.mkdir(parents=True)
    rows = {"number": pa.array(numbers, pa.int32()), "town": [f" town-{number} " for number in numbers]}
    pq.write_table(pa.table(rows), folder / "part-0.parquet")


def tidegate(*arguments):
    return main([*arguments, "--package", "declared"])


def rows_of(day):
    rows = DeltaTable(TABLE).to_pyarrow_table(filters=[("date", "=", dt.date.fromisoformat(day))]).to_pylist()
    return {row["number"]: row for row in rows}


def failing_for(*towns):
    """A service that is broken for some towns."""

    async def answer(request):
        if request.path.rpartition("/")[2] in towns:
            return web.Response(status=500)
        return web.json_response({"temp_c": 3.5, "wind": {"speed": 5.0}})

    return answer


@pytest.mark.spark
def test_days_are_run_one_after_the_other_until_one_fails_with_a_line_for_each(towns, capsys):
    towns.answer = failing_for("town-8")
    assert tidegate("run", "towns", "--from", DAY, "--to", "2013-01-13") == 2
    first, second = capsys.readouterr().out.splitlines()
    assert first == f"{DAY}  published   10 rows, 10 calls, 0 answers from the ledger, 1 dead letters; version 1"
    assert second == (
        f"{NEXT}  failed      towns: input: there is no data/raw/towns/date={NEXT} for {NEXT}; nothing can be enriched."
    )
    assert rows_of(DAY)[8]["weather_status"] == "error"


def test_a_day_that_somebody_else_runs_is_left_to_him_and_said_in_one_sentence(towns, capsys):
    with leased(TABLE, DAY, "theirs"):
        assert tidegate("run", "towns", "--day", DAY, "--wait", "0.1") == 1
    said = capsys.readouterr()
    assert said.out == ""
    assert said.err.startswith("2013-01-10 is being run by run theirs (process ")
    assert said.err.endswith("; nothing was started beside it.\n")
    assert towns.log == []
