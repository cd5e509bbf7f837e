"""A column that lost all its values holds the day back; one that never had a value is a warning."""

import importlib
import itertools
import sys
from collections import Counter
from dataclasses import replace
from functools import partial

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from aiohttp import web
from deltalake import DeltaTable

from data_quality.checks.columns_filled import ColumnsFilled
from data_quality.history import EarlierDay, published_day
from data_quality.rows.written_day import WrittenDay
from jobs.process.spark_submit import SparkSubmit
from jobs.run.engines.engine import ENGINE, LOCAL
from jobs.schema.records import DayMetrics, DayRecord, LookupFacts, LookupMetrics, RowChanges
from tests.data_quality.honest_day import DAY, declare, honest_day
from tests.support.program_here import in_this_session
from tests.support.towns_declared import declare_towns
from tidegate.__main__ import main

BEFORE = "2013-01-09"


@pytest.fixture
def project(tmp_path, service, monkeypatch, capsys, modules_of_others):
    """Two days of 30 towns, of which the service knows degrees and wind."""

    async def answer(_request):
        return web.json_response({"degrees": 3, "wind": 2.5})

    service.answer = answer
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setenv(ENGINE, LOCAL)
    monkeypatch.setattr(SparkSubmit, "started", in_this_session)
    for day in (BEFORE, DAY):
        (tmp_path / f"raw/date={day}").mkdir(parents=True)
        pq.write_table(
            pa.table({"town": [f"town{n}" for n in range(30)]}),
            tmp_path / f"raw/date={day}/a.parquet",
        )

    def run(day, column="wind", more=""):
        (tmp_path / "enrichments").mkdir(exist_ok=True)
        (tmp_path / "enrichments/__init__.py").touch()
        returns, ledger = f"degrees INT, {column} DOUBLE", 'Ledger(path="ledger")'
        text = declare_towns(service.url, returns=returns, of_lookup=more, ledger=ledger)
        (tmp_path / "enrichments/towns.py").write_text(text)
        for name in ("enrichments", "enrichments.towns"):
            sys.modules.pop(name, None)
        importlib.invalidate_caches()
        return main(["run", "towns", "--day", day]), "".join(capsys.readouterr())

    run.table = tmp_path / "published"
    return run


def test_a_misspelt_path_first_warns_and_never_blanks_a_published_column(project):
    status, printed = project(DAY, column="wnd")
    assert status == 0
    assert "warning     weather__columns_filled: wnd is null in all 30 rows" in printed
    assert "the column or its path is new" in printed
    assert project(DAY)[0] == 0
    status, printed = project(DAY, more='paths={"wind": "$.wnd"}, ')
    assert status != 0
    assert "wind is null in all 30 rows with an answer by the path $.wnd" in printed
    assert f"in {DAY} as published, 30 rows of 30 had a value by the path $.wind" in printed
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


PATHS = ("", "$.old", "$.new")  # "": the day before knew no such column
OF = 100  # answers of an earlier day
VALUES = (0, 1, 40, 100)  # of them with a value


def model(answers, filled, allowed, *, kept, same, before):
    """The severity by the documented rules, of a column whose path is $.new."""
    if not answers or filled or allowed:
        return ""
    for is_same, (path, values) in ((True, same), (False, before)):
        expected = answers * values / OF
        if path == "$.old" and (expected >= 1 if is_same else expected >= 20):
            return "error"
        if path == "$.new" and is_same and expected >= 20 and answers > kept:
            return "error"
    if None in (same[0], before[0]) or "$.new" in (same[0], before[0]):
        return ""
    return "warn" if answers >= 20 else ""


def of_history(known):
    """A published day; path None: its record is of an older version."""
    path, values = known
    if path == "":
        return None
    firm = LookupMetrics("firm", {"ok": OF, "miss": 3}, 0, 0, 0.0, 0.0, None, None)
    paths = {} if path is None else {"firm": {"score": path}}
    return EarlierDay(DayMetrics(0, 0, 0, (firm,)), {}, {"firm": {"score": values}}, paths)


def test_every_history_of_a_column_is_judged_as_documented(tmp_path):
    known = [("", 0), (None, 0), *itertools.product(PATHS[1:], VALUES)]
    facts, seen = honest_day(tmp_path, sizes=()).facts(), set()
    for answers, filled, allowed, kept, same, before in itertools.product(
        (0, 1, 3, 19, 20, 49, 50, 2000), (0, 1), (False, True), (0, 1, 100), known, known
    ):
        lookup = LookupFacts(
            "firm", "http", "vendor", (("score", "DOUBLE"),), None, 1,
            null_share=(("score", 1.0),) if allowed else (), paths=(("score", "$.new"),),
        )  # fmt: skip
        earlier = {BEFORE: of_history(before)} if of_history(before) else {}
        changes = RowChanges(0, 0, 0, 0, kept) if kept else None
        day = WrittenDay(
            None, replace(facts, changes=changes), None, None, earlier=earlier,
            published=of_history(same),
        )  # fmt: skip
        check = ColumnsFilled(declare(lookups=(lookup,)), lookup)
        part = Counter({"ok": answers}), Counter({"score": min(filled, answers)})
        found = check.finding([part], day)
        severity = "" if found.success else "warn" if found.lacks_history else "error"
        case = (answers, filled, allowed, kept, same, before)
        assert severity == model(*case[:3], kept=kept, same=same, before=before), (case, found)
        seen.add(severity)
    assert seen == {"", "warn", "error"}


def test_an_empty_column_of_a_vendor_is_named_as_it_is_declared_in_the_advice(tmp_path):
    lookup = LookupFacts(
        "firm", "http", "vendor", (("firm_score", "DOUBLE"),), None, 1, choice="best",
        paths=(("firm_score", "$.new"),),
    )  # fmt: skip
    day = WrittenDay(None, honest_day(tmp_path, sizes=()).facts(), None, None)
    part = Counter({"ok": 50}), Counter({"firm_score": 0})
    found = ColumnsFilled(declare(lookups=(lookup,)), lookup).finding([part], day)
    assert found.sentence.startswith("firm_score is null in all 50 rows")
    assert found.sentence.endswith("declare null_share={'score': 1.0}")


def test_a_partition_with_a_name_and_a_moved_table_have_no_history_to_lose(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    facts = replace(honest_day(tmp_path, sizes=()).facts(), day="EU")
    lookup = facts.declared.lookups[0]
    check = ColumnsFilled(facts.declared, lookup)
    found = check.finding([(Counter({"ok": 50}), Counter())], WrittenDay(None, facts, None, None))
    assert found.success
    record = DayRecord(facts, DayMetrics(0, 0, 0, ()), state="published")
    path = tmp_path / "data/runs/flights_enriched/EU/r1.json"
    path.parent.mkdir(parents=True)
    path.write_text(record.to_json())
    here = partial(published_day, "flights_enriched", "EU")
    assert here(table=facts.declared.table) is not None
    assert here(table="elsewhere") is None
