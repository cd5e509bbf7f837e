"""The page over all tables: by records that a test plants, and by what `costs` bills."""

import dataclasses
import datetime as dt
import os
import random
from pathlib import Path

import pytest

from jobs.commands.costs import list_costs
from jobs.schema.records import Billed, UnwrittenRun
from jobs.tables import publishing
from jobs.tables.records import run_records
from orchestration.common.start_page import describe
from orchestration.common.table_pages import TablePages
from orchestration.common.table_status import add_costs, read_table, read_tables
from tests.jobs.commands.conftest import towns_in, verdict
from tests.support.readable import assert_readable

NOW = dt.datetime(2013, 1, 20, 7, 0, tzinfo=dt.UTC)
RED = dataclasses.replace(verdict("1 row lost"), status="failed")
REPORTS = Path("data/reports")


@pytest.fixture
def towns(tmp_path, monkeypatch):
    project = towns_in(tmp_path, monkeypatch)
    project.declare_too(
        "towns = replace(towns, schedule='15 2 * * *', publish_by='06:30', start='2013-01-15')",
        "fine = replace(towns, name='fine', output=replace(towns.output, path='fine/towns'))",
    )
    return project


def save(towns, enrichment, day, *, started_at, cost, calls=3, verdicts=(), **changes):
    """A record of a run that services billed; a cost that is None is of an undeclared price."""
    run_id = f"{enrichment}-{day}-{started_at}"
    towns.place = "data/published" if enrichment == "towns" else enrichment
    made = towns.written(day, [1, 2, 3], run_id, {}, verdicts)
    table = f"{towns.place}/towns"
    declared = dataclasses.replace(made.facts.declared, enrichment=enrichment, table=table)
    facts = dataclasses.replace(made.facts, declared=declared, started_at=started_at)
    billed = None if cost is None else Billed(calls, 0, "item", f"{cost:.4f}", "USD")
    (lookup,) = made.figures.lookups
    lookup = dataclasses.replace(lookup, calls=calls, billed=billed, latency_p99_ms=20.0 * calls)
    figures = dataclasses.replace(made.figures, lookups=(lookup,))
    return run_records.save(dataclasses.replace(made, facts=facts, figures=figures, **changes))


def published(towns, enrichment, day, cost=0.5):
    after = dt.date.fromisoformat(day) + dt.timedelta(days=1)
    at = f"{after}T02:15:00.000+00:00"
    record = save(towns, enrichment, day, started_at=at, cost=cost)
    publishing.publish(record, now=lambda: dt.datetime.fromisoformat(at))


def page():
    return describe(read_tables("declared", 14, NOW), NOW, REPORTS)


def test_a_table_without_its_last_day_is_listed_first_with_reason_and_next_step(towns):
    for day in range(15, 20):
        published(towns, "fine", f"2013-01-{day}")
    for day in range(15, 18):
        published(towns, "towns", f"2013-01-{day}")
    at = "2013-01-20T02:15:00.000+00:00"
    held = {"state": "held back", "reason": "every_row_once: 1 row lost", "verdicts": (RED,)}
    save(towns, "towns", "2013-01-19", started_at=at, cost=0.25, **held)
    found = page()
    assert found["is_red"]
    assert found["headline"] == "1 of 2 tables lacks its last day: towns."
    (wrong,) = found["wrong"]
    assert (wrong["day"], wrong["state"]) == ("2013-01-19", "held back")
    assert wrong["reason"] == "every_row_once: 1 row lost"
    assert "`tidegate" in wrong["next_step"]
    assert [line["name"] for line in found["lines"]] == ["towns", "fine"]
    towns_line, fine = found["lines"]
    assert "".join(cell["mark"] for cell in towns_line["days"]) == "✓✓✓?✗"
    assert "".join(cell["mark"] for cell in fine["days"]) == "✓✓✓✓✓"
    assert (towns_line["seen"], towns_line["age"]) == ("2013-01-17", "2 days ago")
    assert (fine["seen"], fine["age"], fine["cost"]) == ("2013-01-19", "5 h ago", "0.50 USD")
    assert [day[:2] for day in found["earlier"][0]["days"]] == [("2013-01-18", "missing")]
    assert {name: value for value, name in found["figures"]} == {
        "runs in 24 hours": "2", "rows in 24 hours": "6", "calls in 24 hours": "6",
        "answers from the ledger": "–", "billed in 24 hours": "0.75 USD",
        "billed this month, UTC": "4.25 USD",
    }  # fmt: skip


def test_charts_write_numbers_as_the_table_beside_them_does(towns):
    save(towns, "towns", "2013-01-19", started_at=NOW.isoformat(), cost=12345.67, calls=1_234_567)
    (line, *_) = [line for line in page()["lines"] if line["name"] == "towns"]
    labels = {name: chart["label"] for name, chart in line["charts"].items()}
    assert labels == {
        "calls": "calls of the last days: 1,234,567 to 1,234,567",
        "cost": f"cost of the last days: {line['cost']} to {line['cost']}",
        "p99": "p99 of the latency of the last days: 24,691,340 ms to 24,691,340 ms",
    }
    (bar,) = line["charts"]["calls"]["bars"]
    assert bar[2] == "2013-01-19: 1,234,567"


def test_only_pages_that_exist_are_linked(towns):
    published(towns, "towns", "2013-01-18")
    published(towns, "towns", "2013-01-19")
    (REPORTS / "towns" / "2013-01-19").mkdir(parents=True)
    (REPORTS / "towns" / "2013-01-19" / "index.html").touch()
    (REPORTS / "towns" / "index.html").touch()
    (REPORTS / "gone").mkdir()
    found = page()
    lines = {line["name"]: line for line in found["lines"]}
    assert lines["towns"]["href"] == "reports/towns/index.html"
    assert [cell["href"] for cell in lines["towns"]["days"]] == [
        "", "", "", "", "reports/towns/2013-01-19/index.html",
    ]  # fmt: skip
    assert lines["fine"]["href"] == ""
    assert found["others"] == ["gone"]


@pytest.mark.parametrize(
    "seed", [1, *(pytest.param(seed, marks=pytest.mark.proof) for seed in range(2, 40))]
)
def test_the_page_shows_the_cost_of_the_month_as_costs_does(towns, seed):
    draw = random.Random(seed)
    spans = [
        (dt.timedelta(days=draw.uniform(-40, 19)), draw.choice([None, 0, 1])) for _ in range(25)
    ]
    for span, price in spans:
        started = (dt.datetime(2013, 1, 1, tzinfo=dt.UTC) + span).isoformat(timespec="milliseconds")
        day = f"2012-{draw.randrange(1, 13):02}-{draw.randrange(1, 29):02}"
        cost = None if price is None else price * draw.randrange(1, 10**6) / 10**4
        name = draw.choice(["towns", "fine"])
        save(towns, name, day, started_at=started, cost=cost, state="published")
    status = read_tables("declared", 14, NOW)
    whole = add_costs(*(table.this_month.cost for table in status.tables))
    billed = {name: float(cost) for name, cost in list_costs("2013-01").totals().items()}
    assert whole == pytest.approx(billed)
    runs = sum(dt.timedelta(0) <= span < dt.timedelta(days=19) for span, _ in spans)
    assert sum(table.this_month.runs for table in status.tables) == runs


def test_costs_add_up_to_the_last_digit():
    costs = [{"EUR": 5e-13}, {"EUR": 6e-13, "USD": 107899989.2114}, {"USD": 26299997.37056}]
    assert add_costs(*costs) == {"EUR": 1.1e-12, "USD": 134199986.58196}


def test_records_of_days_without_a_new_run_are_not_read_again(towns, caplog):
    published(towns, "towns", "2013-01-19")
    old = Path("data/runs/towns/2012-03-01")
    old.mkdir()
    (old / "torn.json").write_text("{")
    at = dt.datetime(2012, 3, 2, tzinfo=dt.UTC).timestamp()
    os.utime(old, (at, at))
    assert read_table(towns.enrichment, 14, NOW).this_month.runs == 1
    assert "torn" not in caplog.text
    os.utime(old, (NOW.timestamp(), NOW.timestamp()))
    read_table(towns.enrichment, 14, NOW)
    assert "is torn" in caplog.text


def test_a_run_without_files_counts_as_a_day_that_is_not_published(towns):
    at = "2013-01-20T02:15:00.000+00:00"
    run = UnwrittenRun("towns", "2013-01-19", "r", "stopped: service", "down", "Wait.", at, at)
    run_records.save_unwritten(run)
    (wrong,) = [table for table in page()["wrong"] if table["name"] == "towns"]
    assert (wrong["state"], wrong["reason"], wrong["next_step"]) == (run.state, "down", "Wait.")


def test_the_headline_says_of_a_file_that_cannot_be_loaded_that_it_cannot_be_read(towns):
    published(towns, "towns", "2013-01-19")
    published(towns, "fine", "2013-01-19")
    Path("declared/broken.py").write_text("import missing_module")
    assert page()["headline"] == "declared.broken cannot be read."
    at = "2013-01-20T03:15:00.000+00:00"
    held = {"state": "held back", "reason": "1 row lost", "verdicts": (RED,)}
    save(towns, "towns", "2013-01-19", started_at=at, cost=0.25, **held)
    assert page()["headline"] == (
        "1 of 2 tables lacks its last day: towns; declared.broken cannot be read."
    )


def test_a_changed_declaration_is_read_without_a_restart(towns):
    start = TablePages("declared", REPORTS)
    assert "more_towns" not in start.make("/", {})[1]
    text = Path("declared/towns.py").read_text()
    Path("declared/more.py").write_text(text.replace('"towns"', '"more_towns"'))
    assert "more_towns" in start.make("/", {})[1]
    Path("declared/more.py").write_text("import missing_module")
    assert "declared.more cannot be loaded: line 1: ModuleNotFoundError" in start.make("/", {})[1]
    Path("declared/more.py").unlink()
    assert "declared.more" not in start.make("/", {})[1]


def test_without_a_package_the_start_page_says_so_and_links_to_the_reports(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (REPORTS / "orders").mkdir(parents=True)
    text = TablePages("no_such_package", REPORTS).make("/", {})[1]
    assert "there is no package &#39;no_such_package&#39; here" in text
    assert 'href="reports/orders/index.html"' in text


def test_foreign_texts_are_shown_as_text_and_commands_as_code(towns):
    at = "2013-01-20T02:15:00.000+00:00"
    reason, step = "<script>alert(1)</script>", "Run `tidegate run <b>` again."
    run_records.save_unwritten(
        UnwrittenRun("towns", "2013-01-19", "r", "failed", reason, step, at, at)
    )
    from data_quality.report.pages import render_page

    text = render_page("tables.html", page())
    assert "<script>alert" not in text
    assert "Run <code>tidegate run &lt;b&gt;</code> again." in text


@pytest.mark.ui
def test_the_page_is_read_on_a_telephone_and_axe_finds_nothing_serious(towns):
    from data_quality.report.pages import render_page

    for day in range(15, 19):
        published(towns, "fine", f"2013-01-{day}")
        published(towns, "towns", f"2013-01-{day}")
    save(towns, "towns", "2013-01-19", started_at="2013-01-20T02:15:00.000+00:00", cost=1,
         state="held back", reason="every_row_once: 1 row lost", verdicts=(RED,))  # fmt: skip
    towns.declare_too("late = replace(fine, name='late')", "new = replace(fine, name='new')")
    at = "2013-01-20T02:15:00.000+00:00"
    reason, step = "1 job of 40 keys is open at weather", "Nothing: the next run looks for it."
    waits = UnwrittenRun("late", "2013-01-19", "r", "waiting", reason, step, at, at)
    run_records.save_unwritten(waits)
    folder = Path("start")
    folder.mkdir()
    (folder / "red.html").write_text(render_page("tables.html", page()))
    Path("declared/towns.py").unlink()
    (folder / "nothing_declared.html").write_text(render_page("tables.html", page()))
    assert_readable(*folder.iterdir())
