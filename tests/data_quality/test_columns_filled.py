"""A column that lost all its values holds the day back; one that never had a value is a warning."""

import itertools
import subprocess
import sys

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from aiohttp import web
from deltalake import DeltaTable

from data_quality.checks.columns_filled import ColumnsFilled
from data_quality.history import EarlierDay
from data_quality.rows.written_day import WrittenDay
from jobs.schema.records import DayMetrics, LookupFacts
from tests.data_quality.honest_day import DAY, declare, honest_day

BEFORE = "2013-01-09"
DECLARED = """
from tidegate import Enrichment, HttpLookup, Input, Ledger, Output, Service

towns = Enrichment(
    name="towns",
    input=Input(path="raw"),
    lookups=[
        HttpLookup(
            name="weather",
            service=Service(name="weather", url="{url}", max_concurrency=5),
            request="GET /{{town}}",
            keys={{"town": "town"}},
            returns="degrees INT, {column} DOUBLE",
            {more}timeout=5.0,
        )
    ],
    output=Output(path="published"),
    ledger=Ledger(path="ledger"),
)
"""


@pytest.fixture
def project(tmp_path, service):
    """Two days of 30 towns, of which the service knows degrees and wind."""

    async def answer(_request):
        return web.json_response({"degrees": 3, "wind": 2.5})

    service.answer = answer
    for day in (BEFORE, DAY):
        (tmp_path / f"raw/date={day}").mkdir(parents=True)
        pq.write_table(
            pa.table({"town": [f"town{n}" for n in range(30)]}),
            tmp_path / f"raw/date={day}/a.parquet",
        )

    def run(day, column="wind", more=""):
        (tmp_path / "enrichments").mkdir(exist_ok=True)
        text = DECLARED.format(url=service.url, column=column, more=more)
        (tmp_path / "enrichments/towns.py").write_text(text)
        words = [sys.executable, "-m", "tidegate", "run", "towns", "--day", day]
        done = subprocess.run(
            [*words, "--engine", "local"], cwd=tmp_path, capture_output=True, text=True, check=False
        )
        return done.returncode, done.stdout + done.stderr

    run.table = tmp_path / "published"
    return run


def test_a_misspelt_path_is_a_warning_at_first_and_never_blanks_what_readers_have(project):
    status, printed = project(DAY, column="wnd")
    assert status == 0
    assert "warning     weather__columns_filled: wnd is null in all 30 rows" in printed
    assert "no published day has a value by it" in printed
    assert project(DAY)[0] == 0
    status, printed = project(DAY, more='paths={"wind": "$.wnd"}, ')
    assert status != 0
    assert "wind is null in all 30 rows with an answer, by the path $.wnd" in printed
    assert f"in {DAY} as published, 30 rows had a value by the path $.wind" in printed
    table = DeltaTable(str(project.table)).to_pyarrow_table()
    assert table["wind"].null_count == 0


@pytest.mark.proof
def test_a_path_that_was_changed_wrongly_holds_the_next_day_back(project):
    assert project(BEFORE)[0] == 0
    status, printed = project(DAY, more='paths={"wind": "$.wnd"}, ')
    assert (status != 0, f"in {BEFORE} as published" in printed) == (True, True), printed
    allowed = 'null_share={"wind": 1.0}, paths={"wind": "$.wnd"}, '
    status, printed = project(DAY, more=allowed)
    assert status == 0, printed


PATHS = (None, "$.old", "$.new")  # None: the day before knew no such column
VALUES = (0, 7)


def model(answers, filled, allowed, same, before):
    """The severity by the documented rules, of a column whose path is $.new."""
    if not answers or filled or allowed:
        return ""
    for is_same, (path, values) in ((True, same), (False, before)):
        if values and path == "$.old" and (is_same or answers >= 20):
            return "error"
        if values and path == "$.new" and is_same and answers >= 20:
            return "error"
    return "warn" if answers >= 20 and "$.new" not in (same[0], before[0]) else ""


def of_history(known):
    path, values = known
    if path is None:
        return None
    figures = DayMetrics(0, 0, 0, ())
    return EarlierDay(figures, {}, {"firm": {"score": values}}, {"firm": {"score": path}})


def test_every_history_of_a_column_is_judged_as_documented(tmp_path):
    known = [(None, 0), *itertools.product(PATHS[1:], VALUES)]
    seen = set()
    for answers, filled, allowed, same, before in itertools.product(
        (0, 1, 19, 20), (0, 1), (False, True), known, known
    ):
        lookup = LookupFacts(
            "firm", "http", "vendor", (("score", "DOUBLE"),), None, 1,
            null_share=(("score", 1.0),) if allowed else (), paths=(("score", "$.new"),),
        )  # fmt: skip
        earlier = {BEFORE: of_history(before)} if of_history(before) else {}
        facts = honest_day(tmp_path, sizes=()).facts()
        day = WrittenDay(None, facts, None, None, earlier=earlier, published=of_history(same))
        check = ColumnsFilled(declare(lookups=(lookup,)), lookup)
        found = check.finding([({"ok": answers}, {"score": min(filled, answers)})], day)
        severity = "" if found.success else "warn" if found.lacks_history else "error"
        case = (answers, filled, allowed, same, before)
        assert severity == model(*case), case
        seen.add(severity)
    assert seen == {"", "warn", "error"}
