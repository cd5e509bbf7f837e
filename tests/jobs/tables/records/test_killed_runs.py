"""A run that is killed says nothing: the next one removes its files, and the report names it with
its bill.
"""

import dataclasses
import os
import shutil
from pathlib import Path

import pytest

from data_quality.day_quality import DayQuality
from data_quality.report.day_runs import list_day_runs
from jobs.process.day_pipeline import DayPipeline, run_ids
from jobs.process.publish_decision import render_report
from jobs.schema.records import Billed, BilledUnit, DayFacts, PriceFacts
from jobs.tables.leases.day_leases import leased
from jobs.tables.records import run_bills, run_records
from jobs.tables.records.killed_runs import killed_runs, with_costs
from tests.jobs.commands.conftest import towns_in, verdict
from tests.support.scripted_spark import ScriptedSubmit

DAY = "2013-01-10"
TABLE = "data/published/towns"


@pytest.fixture
def towns(tmp_path, monkeypatch):
    monkeypatch.setenv("WEATHER_URL", "http://weather.example")
    project = towns_in(tmp_path, monkeypatch)
    project.write_input(DAY, [1, 2])
    return project


def killed(towns, run_id, *, units=0, published=False):
    """A run of the day that wrote rows and keys, and was killed before its record was saved."""
    if published:  # by another copy of the project, whose records are elsewhere
        towns.publish(DAY, [1, 2], run_id=run_id)
        shutil.rmtree("data/runs")
    else:
        towns.written(DAY, [1, 2], run_id, {})
    keys = Path(TABLE, "runs", f"{run_id}-keys")
    keys.mkdir()
    (keys / "keys.parquet").write_bytes(b"personal")
    log = run_records.run_log("towns", DAY, run_id)
    log.parent.mkdir(parents=True, exist_ok=True)
    log.touch()
    os.utime(log, (1e9, 1e9))
    with leased(TABLE, DAY, run_id):
        declared = towns.enrichment.facts()
        priced = dataclasses.replace(
            declared.lookups[0], prices=(PriceFacts("0.0040", "USD", "item"),)
        )
        facts = DayFacts(
            dataclasses.replace(declared, lookups=(priced,)),
            DAY,
            run_id,
            (),
            (),
            "",
            (),
            (),
            "2001-09-09T01:00:00+00:00",
            "",
        )
        if units:
            meter = run_bills.begin(facts, towns.enrichment.lookups).open()
            meter.add("weather", "item", 20_000, units)
            meter.close()


def run_again(towns, run_id="next"):
    submit = ScriptedSubmit(
        enrichment=towns.enrichment,
        script=lambda day, run: towns.written(day, [1, 2], run, {}, [verdict("there")]),
    )
    pipeline = DayPipeline(
        reference="declared.towns:towns",
        enrichment=towns.enrichment,
        quality=DayQuality(),
        submit=submit,
        wait=0.1,
    )
    return [*pipeline.run([DAY], run_id=run_id)][-1]


def folders():
    return sorted(path.name for path in Path(TABLE, "runs").iterdir())


def test_the_next_run_of_a_day_removes_the_files_of_a_killed_one(towns):
    killed(towns, "killed")
    assert folders() == ["killed", "killed-keys"]
    assert run_again(towns).is_published
    assert folders() == ["next"]


def test_published_files_of_a_killed_run_stay(towns):
    killed(towns, "elsewhere", published=True)
    assert run_again(towns).is_published
    assert folders() == ["elsewhere", "next"], "older versions of the table have them"


def test_files_of_a_recorded_run_and_of_another_day_stay(towns):
    run_records.save(towns.written(DAY, [1, 2], "held", {}))
    with leased(TABLE, DAY, "held"):
        towns.written("2013-01-11", [1], "other day", {})
    run_again(towns)
    assert folders() == ["held", "next", "other day"]


def test_the_report_names_a_killed_run_with_its_bill_and_no_running_run(towns):
    killed(towns, "killed", units=3)
    with leased(TABLE, DAY, "at work"):
        run_records.run_log("towns", DAY, "at work").touch()
        (run,) = killed_runs("towns", TABLE)
    assert (run.run_id, run.state, run.ended_at) == (
        "killed",
        "killed",
        "2001-09-09T01:46:40.000+00:00",
    )
    run_records.run_log("towns", DAY, "at work").unlink()
    run_again(towns)
    page = Path(f"data/reports/towns/{DAY}/index.html").read_text()
    lines = page.partition("Runs of this day")[2].split("<tr>")[2:]
    assert ["killed" in line for line in lines] == [False, True]
    assert "0.012 USD" in lines[1]
    assert "the run ended without a report, as after a kill" in lines[1]
    assert killed_runs("towns", TABLE)[0].run_id == "killed", "as long as its log is there"


def test_the_cost_of_a_run_without_files_is_one_sum_by_currency(towns, monkeypatch):
    billed = {
        name: Billed(1, 0, "item", cost, currency)
        for name, cost, currency in (("a", "0.30", "USD"), ("b", "0.20", "USD"), ("c", "2", "EUR"))
    }
    monkeypatch.setattr(run_bills, "charges_so_far", lambda _: billed)
    killed(towns, "killed")
    (run,) = with_costs(killed_runs("towns", TABLE))
    assert run.cost == "0.50 USD, 2 EUR"


def test_a_killed_run_made_as_many_calls_as_items_or_else_requests_were_billed(towns, monkeypatch):
    parts = (BilledUnit("request", 7, 0, "0.07"), BilledUnit("token", 900, 0, "0.01"))
    batches = (BilledUnit("request", 2, 0, "0.02"), BilledUnit("item", 100, 0, "0.10"))
    billed = {
        "a": Billed(7, 0, "request", "0.08", "USD", by_unit=parts),
        "b": Billed(5, 0, "item", "0.05", "USD"),
        "c": Billed(2, 0, "request", "0.12", "USD", by_unit=batches),
        "d": Billed(900, 0, "token", "0.01", "USD"),
    }
    monkeypatch.setattr(run_bills, "charges_so_far", lambda _: billed)
    killed(towns, "killed")
    runs = with_costs(killed_runs("towns", TABLE))
    (line,) = list_day_runs(DAY, [], runs)
    assert (line.calls, line.rows) == (112, None)
    for name in "abc":
        del billed[name]
    assert with_costs(runs)[0].calls is None


def test_a_run_killed_during_its_checks_keeps_its_figures(towns):
    made = towns.written(DAY, [1, 2], "killed", {})
    run_records.save(made)
    run_records.run_log("towns", DAY, "killed").touch()
    (line,) = list_day_runs(DAY, run_records.load("towns"), killed_runs("towns", TABLE))
    assert (line.state, line.rows, line.calls) == ("killed", 2, 2)
    render_report(DayQuality(), "towns", TABLE)
    assert "not published: killed" in Path(f"data/reports/towns/{DAY}/index.html").read_text()


def test_the_log_of_a_run_has_one_name_for_all_engines_and_old_logs_are_found(
    tmp_path, monkeypatch
):
    monkeypatch.chdir(tmp_path)
    new = run_records.run_log("towns", DAY, "new")
    old = new.with_name("old.spark.log")
    new.parent.mkdir(parents=True, exist_ok=True)
    for log in (new, old):
        log.touch()
    assert new.name == "new.log"
    assert run_records.run_logs("towns") == [(DAY, "new", new), (DAY, "old", old)]


def test_the_log_of_a_partition_with_a_dot_in_its_name_has_the_whole_run_id(tmp_path, monkeypatch):
    """`replay`, `forget` and the report of killed runs go by it."""
    monkeypatch.chdir(tmp_path)
    ids = run_ids("new", ["eu.west", "us"])
    for day, run_id in ids.items():
        log = run_records.run_log("towns", day, run_id)
        log.parent.mkdir(parents=True)
        log.touch()
    assert {day: run for day, run, _ in run_records.run_logs("towns")} == ids
